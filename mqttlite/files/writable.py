"""Says why a folder cannot be written."""

import os
from pathlib import Path


def why_unwritable(folder: Path) -> str:
    """Why a folder cannot be created or written; empty if it can. Nothing is created."""
    path = folder.absolute()
    existing = next(each for each in (path, *path.parents) if each.exists())
    if not existing.is_dir():
        return f"{path}: {existing} is a file; name a folder"
    if not os.access(existing, os.W_OK | os.X_OK):
        return f"{path}: this user may not write to {existing}; name another folder"
    return ""
