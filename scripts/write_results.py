"""Write the published results from the archives in results/: docs/results.*, the tables of docs/carry-over.md, and that of
the small DeBERTa in docs/kf-deberta.md.

python scripts/write_results.py RUNS...    keep the numbers of these runs in results/experiment, then write the pages
python scripts/write_results.py            write the pages again from what is kept
"""

import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from coref_automl.comparison.archive import archive
from coref_automl.report.checkpoint_report import report
from coref_automl.report.printout import recommend
from coref_automl.report.rendering import markdown_table
from coref_automl.report.wording import claims_table, sentence, verdicts_table
from coref_automl.say import Say
from coref_automl.store import read_json, write_json, write_text

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "results" / "experiment"
STUDY = ROOT / "results" / "carry-over"
DEBERTA = ROOT / "results" / "deberta"
DOCS = ROOT / "docs"
CARRY_OVER = DOCS / "carry-over.md"
KF_DEBERTA = DOCS / "kf-deberta.md"
TITLES = {
    "en": "Results from ko-mini: which objective, which length, how much training, judged by cloze passages",
    "ko": "ko-mini의 결과: 어느 목표, 어느 길이, 얼마나 오래 (빈칸 지문으로 판정)",
}
METRIC = "lambada_top1_strict"
"""What the experiment is judged by: on items of version 3 strict has a ceiling of 4.5% of Real (docs/carry-over.md)."""
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
LEFT_OUT = ("best (epoch)", "points per million tokens", "최고 (에폭)", "백만 토큰당 (점)")
"""Columns of the table of methods that docs/kf-deberta.md has no room for."""
ENGLISH = Say("en")


def pages(lang: str) -> dict[Path, str]:
    """The report in one language, as it should read: Markdown, and for English the page beside it."""
    with TemporaryDirectory() as folder:
        made = report(str(KEPT), out=folder, lang=lang, title=TITLES[lang], metric=METRIC)
        text, page = (Path(path).read_text("utf-8") for path in (made.markdown, made.page))
    if lang == "ko":
        return {DOCS / "results.ko.md": text}
    return {DOCS / "results.md": text, DOCS / "results.html": page}


def side_by_side(text: str) -> list[str]:
    """The lines of a report's table of methods; none where its Markdown has none."""
    table = re.search(r"^\| [^|]+ \| (?:seeds|시드) \| (?:tokens|토큰) \| Real@1.*\n(?:^\|.*\n)+", text, re.MULTILINE)
    lines = [line.strip("| ").split(" | ") for line in table.group().splitlines()] if table else []
    kept = [at for at, name in enumerate(lines[0]) if name not in LEFT_OUT] if lines else []
    return [f"| {' | '.join(line[at] for at in kept)} |" for line in lines]


def between_markers(page: str, made: str) -> str:
    """A page with the part between its markers made anew; one without them is left as it is."""
    if BEGIN not in page or END not in page:
        return page
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n{made}\n{rest[rest.index(END) :]}"


def carry_over_tables() -> str:
    """The verdicts of the kept study, and what each kind of step cost."""
    verdicts = markdown_table(verdicts_table(recommend(STUDY, lang="en"), ENGLISH))
    kinds: dict[str, list[dict[str, float]]] = {}
    for label, facts in read_json(STUDY / "costs.json").items():
        kind, _, name = label.partition(" ")
        kinds.setdefault(f"{kind} {name.split('pct')[0]}%" if kind == "relation" else kind, []).append(facts)
    rows = [
        f"| {kind} | {len(several)} | {sum(one['seconds'] for one in several):,.0f} | "
        f"{max(one['peak_gigabytes'] for one in several):.1f} | {sum(one.get('tokens', 0) for one in several):,.0f} |"
        for kind, several in kinds.items()
    ]
    head = "| step | how many | seconds, added up | most GPU memory of one (GB) | tokens trained on |"
    return "\n".join([verdicts, "", head, "| --- | ---: | ---: | ---: | ---: |", *rows])


def keep_answer() -> None:
    """The answer of the kept study beside it, as `study` leaves it."""
    answer = recommend(STUDY, lang="en")
    write_json(STUDY / "answer.json", answer.to_json())
    write_text(STUDY / "verdicts.md", f"{markdown_table(verdicts_table(answer, ENGLISH))}\n")


def deberta_tables() -> str:
    """The small DeBERTa's methods side by side, and its verdicts between objectives."""
    with TemporaryDirectory() as folder:
        made = report(str(DEBERTA), out=folder, lang="en")
        text = Path(made.markdown).read_text("utf-8")
    assert made.answer
    method = made.answer.question("method")
    assert method
    claims = [one for one in method.claims if not one.outcome.endswith(":mrr")]
    others = [made.answer.of_pair(claims[0].a, claims[0].b, name) for name in ("real_far1_strict", "lambada_top1_strict")]
    told = " ".join(sentence(one, ENGLISH) for one in others if one)
    return "\n".join([*side_by_side(text), "", markdown_table(claims_table(claims, ENGLISH)), "", told])


def main(runs: list[str]) -> None:
    if runs:
        print(archive(runs, out=KEPT), file=sys.stderr)
    keep_answer()
    for page, made in ((CARRY_OVER, carry_over_tables()), (KF_DEBERTA, deberta_tables())):
        page.write_text(between_markers(page.read_text("utf-8"), made), "utf-8")
    for lang in TITLES:
        for path, text in pages(lang).items():
            path.write_text(text, "utf-8")
            print(path.relative_to(ROOT), file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
