"""Write the published results from the archives in results/: docs/results.*, the tables of docs/carry-over.md, and that of
the small DeBERTa in docs/kf-deberta.md.

python scripts/write_results.py RUNS...    keep the numbers of these runs in results/experiment, then write the pages
python scripts/write_results.py            write the pages again from what is kept
"""

import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from coref_automl.base.folders import natural_order
from coref_automl.base.say import Say
from coref_automl.base.store import read_json, write_json, write_text
from coref_automl.comparison.archive import archive
from coref_automl.comparison.reader import open_results
from coref_automl.evaluation.metrics import hits
from coref_automl.evaluation.results import StoredEvaluation
from coref_automl.extras.pages.checkpoint_report import report
from coref_automl.extras.pages.rendering import markdown_table
from coref_automl.extras.pages.sections.questions import claims_table
from coref_automl.report.printout import recommend
from coref_automl.report.wording import ClaimText
from coref_automl.statistics.crossed import crossed_verdict

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "results" / "experiment"
STUDY = ROOT / "results" / "carry-over"
DEBERTA = ROOT / "results" / "deberta"
DOCS = ROOT / "docs"
CARRY_OVER = DOCS / "carry-over.md"
KF_DEBERTA = DOCS / "kf-deberta.md"
TITLES = {
    "en": "Results from ko-mini: which objective, which length, how much training, judged by hidden nouns",
    "ko": "ko-mini의 결과: 어느 목표, 어느 길이, 얼마나 오래 (가린 명사로 판정)",
}
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
NOUNS = "<!-- nouns: begin -->", "<!-- nouns: end -->"
ITEMS = {
    "Real": ("real1", ""), "names": ("real1", "NNP"), "common nouns": ("real1", "NNG"),
    "Real-far": ("real_far1", ""), "far names": ("real_far1", "NNP"), "far common nouns": ("real_far1", "NNG"),
    "silver cloze passages": ("lambada_top1", ""),
}  # fmt: skip
METHODS = "mlm", "entity", "copy+link+light"
LEFT_OUT = ("best (epoch)", "points per million tokens", "최고 (에폭)", "백만 토큰당 (점)")
"""Columns of the table of methods that docs/kf-deberta.md has no room for."""
ENGLISH = Say("en")


def pages(lang: str) -> dict[Path, str]:
    """The report in one language, as it should read: Markdown, and for English the page beside it."""
    with TemporaryDirectory() as folder:
        made = report(str(KEPT), out=folder, lang=lang, title=TITLES[lang])
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


def between_markers(page: str, made: str, begin: str = BEGIN, end: str = END) -> str:
    """A page with the part between its markers made anew; one without them is left as it is."""
    if begin not in page or end not in page:
        return page
    before, _, rest = page.partition(begin)
    return f"{before}{begin}\n{made}\n{rest[rest.index(end) :]}"


def noun_table() -> str:
    """The last checkpoints of the experiment at 2,048 tokens, names and common nouns apart, with 95% intervals."""
    last: dict[str, StoredEvaluation] = {}
    for stored in sorted(open_results([str(KEPT)]).counted(), key=lambda one: natural_order(one.evaluation.checkpoint)):
        if stored.evaluation.seq_len == 2048:
            last[stored.evaluation.checkpoint.partition("/")[0]] = stored

    def found(name: str, metric: str, tag: str) -> tuple[list[NDArray[np.bool_]], NDArray[np.str_]]:
        runs = [hits([one for one in last[run].scores() if tag in ("", one.tag)], metric) for run in last if run.startswith(name)]
        return [run[1] for run in runs], runs[0][2]

    heads = [*(f"`{name}`" for name in METHODS), *(f"`{name}` - `mlm`" for name in METHODS[1:])]
    lines = ["| items | base | " + " | ".join(heads) + " |", "|---|---:|" + "---:|" * len(METHODS) + "---|" * len(METHODS[1:])]
    for label, (metric, tag) in ITEMS.items():
        base, documents = found("bundled", metric, tag)
        runs = {name: found(f"{name}-2048", metric, tag)[0] for name in METHODS}
        gains = [crossed_verdict(runs[name], runs["mlm"], documents).interval for name in METHODS[1:]]
        cells = [f"{100 * np.mean(shares):.1f}" for shares in (base, *runs.values())]
        cells += [f"{100 * one.value:+.1f} [{100 * one.low:+.1f}, {100 * one.high:+.1f}]" for one in gains]
        lines.append(f"| {label}, {len(documents):,} | {' | '.join(cells)} |")
    return "\n".join(lines)


def carry_over_tables() -> str:
    """The verdicts of the kept study, and what each kind of step cost."""
    verdicts = markdown_table(claims_table(recommend(STUDY, lang="en").claims, ENGLISH))
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
    write_text(STUDY / "verdicts.md", f"{markdown_table(claims_table(answer.claims, ENGLISH))}\n")


def deberta_tables() -> str:
    """The small DeBERTa's methods side by side, and its verdicts between objectives."""
    with TemporaryDirectory() as folder:
        made = report(str(DEBERTA), out=folder, lang="en")
        text = Path(made.markdown).read_text("utf-8")
    assert made.answer
    method = made.answer.question("method")
    assert method
    claims = [one for one in method.claims if not one.outcome.endswith(":mrr")]
    others = [made.answer.of_pair(claims[0].a, claims[0].b, name) for name in ("real_far1", "lambada_top1")]
    told = " ".join(ClaimText(claim, ENGLISH).sentence() for claim in others if claim)
    return "\n".join([*side_by_side(text), "", markdown_table(claims_table(claims, ENGLISH)), "", told])


def main(runs: list[str]) -> None:
    if runs:
        print(archive(runs, out=KEPT), file=sys.stderr)
    keep_answer()
    for page, made in ((CARRY_OVER, carry_over_tables()), (KF_DEBERTA, deberta_tables())):
        page.write_text(between_markers(page.read_text("utf-8"), made), "utf-8")
    CARRY_OVER.write_text(between_markers(CARRY_OVER.read_text("utf-8"), noun_table(), *NOUNS), "utf-8")
    for lang in TITLES:
        for path, text in pages(lang).items():
            path.write_text(text, "utf-8")
            print(path.relative_to(ROOT), file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
