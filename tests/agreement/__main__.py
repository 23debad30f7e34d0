"""Many studies: `python -m tests.agreement --count 2000 --seed 1`. Prints what it finds; exit status 1 if it finds anything."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
from pathlib import Path

from tests.agreement.checks import findings
from tests.agreement.studies import draw, write
from tests.agreement.surfaces import printed


def checked(seed: int, *, light: bool = False) -> list[str]:
    """What is found wrong with the surfaces of one study; a command that fails is a finding."""
    plan = draw(seed, light=light)
    with tempfile.TemporaryDirectory(prefix="agreement") as folder:
        root = Path(folder)
        try:
            return findings(plan, printed(write(plan, root / "runs"), root / "out"))
        except Exception:
            return [traceback.format_exc(limit=-4)]


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m tests.agreement", description=__doc__)
    options.add_argument("--count", type=int, default=100)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--minutes", type=float, default=1e9, help="stop after so many")
    asked = options.parse_args()
    began, wrong, done = time.monotonic(), 0, 0
    for seed in range(asked.seed, asked.seed + asked.count):
        found = checked(seed)
        done += 1
        wrong += bool(found)
        for told in found:
            print(f"study {seed}: {told}", flush=True)
        if time.monotonic() - began > 60 * asked.minutes:
            break
    print(f"{done} studies from seed {asked.seed}, {wrong} with findings, {time.monotonic() - began:.0f} s")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
