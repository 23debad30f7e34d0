"""Coreference heads on the texts that choose between them: by genre, with intervals, and against the first head.

python benchmarks/coref_by_genre.py HEAD ... --novels koconovel_coref.jsonl.xz --out answers

In: heads (a model folder, or bundled:ko-mini-coref); folders with a common stem (`heads/everyday-s0`, `-s1`) are seeds of one
setting. Out: a table of CoNLL on the dev sides of the everyday texts, of ko-coref's others and of the novels, and
OUT/<head>-<texts>.jsonl, the answers. `coref evaluate` leaves these documents out, because they chose the head's epoch.
"""

from __future__ import annotations

import argparse
import re
from dataclasses import replace
from pathlib import Path

from coref_automl.base.records import Estimate, grouped
from coref_automl.extras.coreference.answers import DocumentAnswer, answer_documents
from coref_automl.extras.coreference.data import read_schemes
from coref_automl.extras.coreference.documents import CorefDocument
from coref_automl.extras.coreference.evaluate import models_of
from coref_automl.extras.coreference.metrics import Ratio, difference, estimates, sum_scores
from coref_automl.extras.coreference.model import load_model
from coref_automl.extras.coreference.split import sides_of

EVERYDAY, GENERAL = "data/ko-coref/everyday-dev.jsonl.xz", "data/ko-coref/dev.jsonl.xz"
MODES = ("found", "gold")
ALL = "all"
Answers = dict[str, list[DocumentAnswer]]


def dev_texts(novels: str | None) -> dict[str, tuple[CorefDocument, ...]]:
    texts = {name: read_schemes((path,)).documents for name, path in (("everyday", EVERYDAY), ("general", GENERAL))}
    if novels:
        documents = read_schemes((f"characters={novels}",), skip_bad=True).documents
        dev = sides_of("koconovel", documents).side("dev", documents)
        texts["novels"] = tuple(replace(document, genre="novel") for document in dev)
    return texts


def answered(head: str, texts: dict[str, tuple[CorefDocument, ...]], out: Path, device: str) -> Answers:
    """Answer all texts with one head, or read what it answered before."""
    model, answers = None, Answers()
    for name, documents in texts.items():
        path = out / f"{re.sub('[^a-z0-9-]', '-', Path(head).name)}-{name}.jsonl"
        if not path.is_file():
            model = model or load_model(models_of(head)[0], device)
            DocumentAnswer.write(path, answer_documents(model, documents))
        answers[name] = DocumentAnswer.read(path)
    return answers


def shown(estimate: Estimate, sign: str = "") -> str:
    return f"{100 * estimate.value:{sign}.1f} [{100 * estimate.low:{sign}.1f}, {100 * estimate.high:{sign}.1f}]"


def rows(seeds: list[Answers], first: Answers, texts: dict[str, tuple[CorefDocument, ...]]) -> list[list[str]]:
    table = []
    for name, documents in texts.items():
        genres = sorted({document.genre for document in documents})
        for genre in [ALL, *(genres if len(genres) > 1 else ())]:
            chosen = [index for index, document in enumerate(documents) if genre in (ALL, document.genre)]

            def sums(answers: Answers, mode: str, name: str = name, chosen: list[int] = chosen) -> list[dict[str, Ratio]]:
                return [answers[name][index].sums[mode] for index in chosen]

            found, gold = ([sums(answers, mode) for answers in seeds] for mode in MODES)
            mention = sum_scores(scores for seed in found for scores in seed)["mention"]
            cells = [shown(estimates(scores)["conll"]) for scores in (found, gold)]
            cells.append(f"{100 * mention.f1:.1f} ({100 * mention.recall:.1f}/{100 * mention.precision:.1f})")
            if seeds[0] is not first:
                cells.append(shown(difference(found, sums(first, "found"))["conll"], "+"))
            table.append([name if genre == ALL else genre, str(len(chosen)), *cells])
    return table


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("heads", nargs="+")
    options.add_argument("--novels")
    options.add_argument("--out", type=Path, required=True)
    options.add_argument("--device", default="cpu")
    arguments = options.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    texts = dev_texts(arguments.novels)
    settings = grouped(arguments.heads, lambda head: re.sub(r"-s\d+$", "", head))
    first: Answers = {}
    for setting, heads in settings.items():
        seeds = [answered(head, texts, arguments.out, arguments.device) for head in heads]
        first = first or seeds[0]
        print(f"\n**{Path(setting).name}**, seeds: {len(seeds)}\n")
        print("| dev texts | n | found | gold mentions | mention F1 (R/P) | found against the first |\n|---|--:|---|---|---|---|")
        for row in rows(seeds, first, texts):
            print("| " + " | ".join([*row, ""][:6]) + " |")


if __name__ == "__main__":
    main()
