"""Write the published results: an archive of runs, docs/results.* from it, and the headline of both READMEs.

python scripts/write_results.py RUNS...    keep the numbers of these runs in results/experiment, then write the pages
python scripts/write_results.py            write the pages again from what is kept
"""

import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from coref_automl.comparison.archive import archive
from coref_automl.report.checkpoint_report import report

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "results" / "experiment"
DOCS = ROOT / "docs"
TITLES = {"en": "Results: which objective, which length, how many epochs", "ko": "결과: 어느 목표, 어느 길이, 몇 에폭"}
READMES = {"en": ROOT / "README.md", "ko": ROOT / "README.ko.md"}
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"


def pages(lang: str) -> dict[Path, str]:
    """The report in one language, as it should read: Markdown, and for English the page beside it."""
    with TemporaryDirectory() as folder:
        made = report(str(KEPT), out=folder, lang=lang, title=TITLES[lang])
        text, page = (Path(path).read_text("utf-8") for path in (made.markdown, made.page))
    if lang == "ko":
        return {DOCS / "results.ko.md": text}
    return {DOCS / "results.md": text, DOCS / "results.html": page}


def headline(text: str) -> str:
    """Of a report's Markdown: methods side by side; where methods have several seeds, those and their base at their lengths."""
    table = re.search(r"^\| [^|]+ \| (?:seeds|시드) \| (?:tokens|토큰) \| Real@1.*\n(?:^\|.*\n)+", text, re.MULTILINE)
    if table is None:
        return ""
    head, rule, *rows = table.group().splitlines()
    others = set(re.findall(r"^\| [^|]*\((.+?)\) \|", table.group(), re.MULTILINE))
    bases, several = [], []
    for row in rows:
        name, seeds = (cell.strip() for cell in row.split("|")[1:3])
        if seeds == "–" and name.split(" @")[0] not in others:
            bases.append(row)
        elif seeds.isdigit() and not name.endswith(")"):
            several.append(row)
    lengths = {row.split("|")[1].split()[-1] for row in several}
    bases = [row for row in bases if "@" not in row or row.split("|")[1].split("@")[1].strip() in lengths]
    return "\n".join([head, rule, *([*bases, *several] if several else rows)])


def with_headline(readme: str, text: str) -> str:
    """A README with the part between its markers made anew; one without them is left as it is."""
    if BEGIN not in readme or END not in readme:
        return readme
    before, _, rest = readme.partition(BEGIN)
    return f"{before}{BEGIN}\n{headline(text)}\n{rest[rest.index(END) :]}"


def main(runs: list[str]) -> None:
    if runs:
        print(archive(runs, out=KEPT), file=sys.stderr)
    for lang, readme in READMES.items():
        found = pages(lang)
        found[readme] = with_headline(readme.read_text("utf-8"), next(iter(found.values())))
        for path, text in found.items():
            path.write_text(text, "utf-8")
            print(path.relative_to(ROOT), file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
