"""Whether the core got dearer than what was accepted last, and the file that remembers it.

`kept.json` holds, for each interpreter, what each piece of work cost when somebody last said that it may.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

KEPT: Final = Path(__file__).resolve().parent / "kept.json"
TOLERANCE: Final = 0.03
"""The same core in the same folder counts the same to the instruction; from another folder, at other addresses, half a
per cent more or less. Three per cent is a change of the code."""
ACCEPT: Final = "python -m bench guard --accept"

Shares = Mapping[str, float]
Kept = dict[str, dict[str, float]]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What there is to say, and whether it is bad news."""

    dearer: bool
    sentences: tuple[str, ...]


def load(path: Path = KEPT) -> Kept:
    """What was accepted, by interpreter; nothing, before anything was."""
    if not path.exists():
        return {}
    kept: Kept = json.loads(path.read_text(encoding="utf-8"))
    return kept


def accept(interpreter: str, shares: Shares, path: Path = KEPT) -> None:
    """From now on it may cost that much; what other interpreters may is left alone."""
    kept = {**load(path), interpreter: dict(shares)}
    text = json.dumps(kept, indent=2, sort_keys=True, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def judge(interpreter: str, shares: Shares, kept: Kept) -> Verdict:
    """Compare with what was accepted for this interpreter."""
    if interpreter not in kept:
        known = "; ".join(sorted(kept)) or "none"
        return Verdict(
            False,
            (
                f"Nothing to compare with: no figures were kept for {interpreter} (kept: {known}). "
                f"To begin with today's: {ACCEPT}",
            ),
        )
    before = kept[interpreter]
    dearer, cheaper, unknown = [], [], []
    for name, share in shares.items():
        if name not in before:
            unknown.append(name)
            continue
        change = share / before[name] - 1
        if change > TOLERANCE:
            dearer.append(f"{name} costs {_percent(change)} more instructions than was accepted")
        elif change < -TOLERANCE:
            cheaper.append(f"{name} {_percent(-change)}")
    gone = sorted(before.keys() - shares.keys())
    sentences = []
    if dearer:
        sentences.append(f"Dearer: {'; '.join(dearer)}. If that is the price of something worth it: {ACCEPT}")
    if unknown or gone:
        named = [*(f"{name} is new" for name in unknown), *(f"{name} is gone" for name in gone)]
        sentences.append(f"Not what was kept: {', '.join(named)}. To keep what is now: {ACCEPT}")
    if cheaper:
        sentences.append(f"Cheaper: {', '.join(cheaper)}. So that it stays so: {ACCEPT}")
    if not sentences:
        sentences.append(f"{len(shares)} pieces of work cost what was accepted, within {_percent(TOLERANCE)}.")
    return Verdict(bool(dearer or unknown or gone), tuple(sentences))


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
