"""Take the READMEs' picture. In: the published report. Out: docs/images/report.png, its first screen in Chromium.

python scripts/take_picture.py [docs/results.html] [docs/images/report.png]
"""

import subprocess
import sys
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parent.parent
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--hide-scrollbars",
    "--window-size=1280,1000",
    "--virtual-time-budget=20000",
)


def take(page: Path, picture: Path) -> None:
    """The page as it opens, charts drawn, 1,280 points wide."""
    browser = which("chromium") or which("chromium-browser") or which("google-chrome")
    if browser is None:
        sys.exit("Chromium is not installed; install it (apt install chromium fonts-nanum) and run this again.")
    if not page.is_file():
        sys.exit(f"{page} does not exist; run first: make results")
    with TemporaryDirectory() as profile:
        place = ("--user-data-dir=" + profile, f"--screenshot={picture.resolve()}")
        subprocess.run([browser, *FLAGS, *place, page.resolve().as_uri()], check=True, capture_output=True, timeout=300)


if __name__ == "__main__":
    given = [Path(argument) for argument in sys.argv[1:]]
    report, picture = [*given, *(ROOT / "docs/results.html", ROOT / "docs/images/report.png")[len(given) :]]
    take(report, picture)
    print(picture, file=sys.stderr)
