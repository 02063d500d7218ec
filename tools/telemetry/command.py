"""tools/telemetry_gen: the command line. Parses, makes one call, prints.

Invariant: what is missing or wrong is one sentence on stderr; stdout has the rows that were written.
"""

import sys
import time
from pathlib import Path

import click

_EPILOG = """\b
Exit codes:
  0  the dataset is written
  1  it cannot be written
  2  an option is wrong, or numpy or pyarrow is missing
"""


@click.command(epilog=_EPILOG, context_settings={"help_option_names": ["--help"], "max_content_width": 100})
@click.option("--devices", type=click.IntRange(30, 1_000_000), required=True, help="How many, of six classes.")
@click.option("--days", type=click.FloatRange(1, 100), required=True, help="From 2026-11-01.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), required=True, help="New or empty.")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="The same seed, the same rows.")
@click.option("--format", "form", type=click.Choice(["parquet", "jsonl"]), default="parquet", show_default=True)
@click.option("--interval", type=click.IntRange(1, 3600), default=10, show_default=True, help="Seconds per row.")
@click.option("--troubles", default="default", show_default=True, metavar="WHICH", help="KIND=NUMBER,… or none.")
def command(devices: int, days: float, out: Path, seed: int, form: str, interval: int, troubles: str) -> None:
    """Write telemetry of a fleet that never was, with troubles that are known: truth.json beside it tells them."""
    try:
        from tools.telemetry.generate import Order, generate
    except ModuleNotFoundError as error:
        print(f"error: {error.name} is missing: pip install 'mqttlite[spark,telemetry]'", file=sys.stderr)
        sys.exit(2)
    if 3600 % interval:
        raise click.UsageError(f"--interval {interval}: an hour must be a multiple of it, such as 10, 30 or 60.")
    if out.exists() and any(out.iterdir()):
        raise click.UsageError(f"--out {out} is not empty.")
    began = time.monotonic()
    try:
        out.mkdir(parents=True, exist_ok=True)
        rows = generate(Order(devices, days, seed, interval, form, troubles), out, _progress)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    except OSError as error:
        print(f"error: cannot write to {out}: {error}", file=sys.stderr)
        sys.exit(1)
    took_s = time.monotonic() - began
    for name, number in sorted(rows.items()):
        print(f"{number:>12,}  {name}")
    print(f"{rows.total():>12,}  rows in {took_s:.1f} s, {rows.total() / took_s * 60 / 1e6:.1f} M a minute")


def _progress(share: float) -> None:
    if sys.stderr.isatty():
        print(f"\r{share:6.1%}", end="" if share < 1 else "\n", file=sys.stderr)


if __name__ == "__main__":
    command()
