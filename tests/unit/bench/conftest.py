"""Makes `bench` importable: it is not installed, and comes last so that it hides nothing that is."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[3]))
