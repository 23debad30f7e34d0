"""Write the published results: an archive of runs, docs/results.* from it, the headline of both READMEs, and docs/carry-over.md's
tables from the archive of its study.

python scripts/write_results.py RUNS...    keep the numbers of these runs in results/experiment, then write the pages
python scripts/write_results.py            write the pages again from what is kept
"""

import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from coref_automl.comparison.archive import archive
from coref_automl.decoder import decode
from coref_automl.report.checkpoint_report import report
from coref_automl.say import speaking
from coref_automl.store import read_json
from coref_automl.study.verdicts import Verdict, markdown

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "results" / "experiment"
STUDY = ROOT / "results" / "carry-over"
DOCS = ROOT / "docs"
CARRY_OVER = DOCS / "carry-over.md"
TITLES = {
    "en": "Results from ko-mini's second edition: which objective, which length, how many epochs",
    "ko": "ko-mini 2판의 결과: 어느 목표, 어느 길이, 몇 에폭",
}
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
    """A README with the methods side by side of a report's Markdown."""
    return between_markers(readme, headline(text))


def between_markers(page: str, made: str) -> str:
    """A page with the part between its markers made anew; one without them is left as it is."""
    if BEGIN not in page or END not in page:
        return page
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n{made}\n{rest[rest.index(END) :]}"


def study_tables() -> str:
    """The verdicts of the kept study, and what each kind of step cost."""
    found = decode(list[Verdict], read_json(STUDY / "verdicts.json"))
    kinds: dict[str, list[dict[str, float]]] = {}
    for label, facts in read_json(STUDY / "costs.json").items():
        kind, _, name = label.partition(" ")
        kinds.setdefault(f"{kind} {name.split('pct')[0]}%" if kind == "relation" else kind, []).append(facts)
    rows = [
        f"| {kind} | {len(several)} | {sum(one['seconds'] for one in several):,.0f} | "
        f"{max(one['peak_gigabytes'] for one in several):.1f} |"
        for kind, several in kinds.items()
    ]
    head = "| step | how many | seconds, added up | most GPU memory of one (GB) |\n| --- | ---: | ---: | ---: |"
    with speaking("en"):
        return "\n".join([markdown(found), head, *rows])


def main(runs: list[str]) -> None:
    if runs:
        print(archive(runs, out=KEPT), file=sys.stderr)
    CARRY_OVER.write_text(between_markers(CARRY_OVER.read_text("utf-8"), study_tables()), "utf-8")
    for lang, readme in READMES.items():
        found = pages(lang)
        found[readme] = with_headline(readme.read_text("utf-8"), next(iter(found.values())))
        for path, text in found.items():
            path.write_text(text, "utf-8")
            print(path.relative_to(ROOT), file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
