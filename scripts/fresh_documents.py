"""Documents and passages that no archived study has judged or chosen with. In: a corpus folder and the archives of `results/`.
Out: OUT/judge.jsonl, OUT/train.jsonl and OUT/passages.jsonl.

    python scripts/fresh_documents.py CORPUS --novels koconovel_coref.jsonl.xz --silver lambada_silver.jsonl.xz --out fresh

Documents are taken in the order of a hash of their id. Left out: those of the standard hold-out, those of `data/ko-coref`, and,
of those to judge with, documents of which any archived item was made: an item's id is a hash of its text and span, so every span
that a hidden word could have is looked up. Passages share no twenty characters with a silver one.

    python scripts/fresh_documents.py CORPUS --novels ... --silver ... --out more --again evalsets/fresh

More passages of the works in that set, one for every sentence that ends one: they overlap, and works keep their halves.
"""

from __future__ import annotations

import argparse
import json
import lzma
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from coref_automl.base.fingerprints import fingerprint
from coref_automl.base.korean import Tagger, default_cache
from coref_automl.base.store import write_jsonl
from coref_automl.corpus.chains import mentions
from coref_automl.corpus.clean import limits, normalise, rank
from coref_automl.evaluation.evalset import EvalSet

SALT = "fresh-1/"
TAKEN = {"kowiki": (1100, 1400, 2500, 12_000), "precedents_2": (330, 420, 2500, 12_000)}
"""Of each source: documents to judge with at most, documents to train on, characters at least and at most."""
BEFORE = ("all-rows", "carry-over", "deberta", "experiment", "four-times", "portfolio", "portfolio-sixty")
"""The archives there were when this was chosen; with later ones the choice would be another. Some have left the tree or were
replaced since: take `results/` from a commit before that (`git log -- results/four-times`)."""
OVERLAP = 20
"""Characters that a passage must not share with a silver passage."""
LEAST_SENTENCES, MOST_CHARACTERS = 3, 420
WORD = re.compile("[가-힣]{2,}")
TAIL = re.compile(
    "(들)?(은|는|이|가|을|를|의|에|에게|에게서|에서|와|과|도|만|로|으로|까지|부터|한테|께|께서|이나|나|처럼|보다)?(?![가-힣])"
)
"""What may stand behind an answer."""


def archived() -> set[str]:
    """The ids of all items in the archives."""
    if gone := [name for name in BEFORE if not Path("results", name).is_dir()]:
        raise SystemExit(f"results/ lacks {', '.join(gone)}; take it from a commit that has them: git log -- results/{gone[0]}")
    return {str(item) for name in BEFORE for path in Path("results", name).glob("items-*.npz") for item in np.load(path)["item"]}


def was_judged(text: str, known: set[str]) -> bool:
    """Was any archived Real or Real-far item made of this text?"""
    identity = fingerprint(text)
    spans = {
        (word.start(), word.start() + length) for word in WORD.finditer(text) for length in range(2, min(len(word[0]), 8) + 1)
    }
    return any(
        fingerprint(f"{task}/{version}", identity, span) in known
        for span in spans
        for task in ("real", "real-far")
        for version in (1, 2, 3)
    )


def rows(path: Path) -> Iterator[dict[str, Any]]:
    with lzma.open(path, "rt", encoding="utf-8") as handle:
        yield from map(json.loads, handle)


def choose(corpus: Path, source: str, spoken_for: set[str], known: set[str]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The documents of a source to judge with, and those to train on."""
    judged, trained, least, most = TAKEN[source]
    found = {row["id"]: row for path in sorted(corpus.glob(f"{source}*.jsonl.xz")) for row in rows(path)}
    limit = limits(("", one) for one in found)[""]
    taken = {one for one in found if rank(one) <= limit} | spoken_for
    free = (row for row in found.values() if row["id"] not in taken and least <= len(row["text"]) <= most)
    order = sorted(free, key=lambda row: rank(SALT + row["id"]))
    judge = [row for row in order[:judged] if not was_judged(normalise(row["text"]), known)]
    print(f"{source}: {len(found)} documents, {len(order)} free, {judged - len(judge)} of the first {judged} judged before")
    return judge, order[judged : judged + trained]


def passages(texts: list[dict[str, str]], shingles: set[str], *, overlap: bool) -> Iterator[dict[str, Any]]:
    """Passages in the way of the silver ones: the gap is a noun of the last sentence that occurs earlier in the passage.

    Unless they may, they do not overlap. Which fitting noun of a sentence is hidden, and which other noun is the row's candidate,
    is by lot.
    """
    for row, tags in zip(texts, Tagger(default_cache(), threads=1).tag(row["text"] for row in texts), strict=True):
        text, found = row["text"], mentions(row["text"], tags)
        ends = [0, *map(int, tags.sentence_ends)]
        old = [at for at in range(len(text)) if text[at : at + OVERLAP] in shingles]
        free = 0
        for low, high in pairwise(ends):
            free = max([free, *(at + OVERLAP for at in old if low <= at < high)])
            starts = [end for end in ends if free <= end <= low and high - end <= MOST_CHARACTERS]
            if len(starts) < LEAST_SENTENCES:
                continue
            start = starts[0]
            before = {noun.form for noun in found if start <= noun.start < low}
            fit = [
                noun
                for noun in found
                if low <= noun.start < high
                and noun.form in before
                and text[low:high].count(noun.form) == 1
                and not text[noun.start - 1 : noun.start].strip(" \n‘“'\"(")
                and TAIL.match(text, noun.end)
            ]
            others = sorted(before | {noun.form for noun in found if low <= noun.start < high})
            passage = text[start:high].strip()
            if not fit or "_" in passage:
                continue
            hidden = min(fit, key=lambda noun: rank(f"{SALT}{passage}{noun.start}"))
            wrong = [form for form in others if form not in hidden.form and hidden.form not in form]
            if not wrong:
                continue
            free = free if overlap else high
            gap = text[start : hidden.start] + "_" + text[hidden.end : high]
            candidate = min(wrong, key=lambda form: rank(f"{SALT}{passage}{form}"))
            yield {**row, "text": gap.strip(), "answer": hidden.form, "candidate": candidate}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--novels", type=Path, required=True)
    parser.add_argument("--silver", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--again", type=Path)
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    silver = [row["text"].replace("_", row["answer"]) for row in rows(chosen.silver)]
    shingles = {text[at : at + OVERLAP] for text in silver for at in range(len(text) - OVERLAP + 1)}
    novels = [{"text": normalise(row["text"]), "title": row["novel"], "source": "koconovel"} for row in rows(chosen.novels)]
    tales = rows(chosen.corpus / "fairytale.jsonl.xz")
    novels += [{"text": normalise(row["text"]), "title": row["title"], "source": "fairytale"} for row in tales]
    unlike = list({row["text"]: row for row in novels}.values())
    if chosen.again:
        works = EvalSet.open(chosen.again).halves
        unlike = [row for row in unlike if row["title"] in works]
    hidden = list(passages(unlike, shingles, overlap=chosen.again is not None))
    write_jsonl(chosen.out / "passages.jsonl", ({"index": at, **row} for at, row in enumerate(hidden)))
    print(f"passages: {len(hidden)} of {len({row['title'] for row in hidden})} novels and tales")
    if chosen.again:
        return
    known = archived()
    annotated = {row["origin"] for path in sorted(Path("data/ko-coref").glob("*.jsonl.xz")) for row in rows(path)}
    judge: list[dict[str, Any]] = []
    train: list[dict[str, Any]] = []
    for source in TAKEN:
        first, then = choose(chosen.corpus, source, annotated, known)
        judge += first
        train += then
    write_jsonl(chosen.out / "judge.jsonl", judge)
    write_jsonl(chosen.out / "train.jsonl", train)
    for name, part in (("judge", judge), ("train", train)):
        print(f"{name}: {len(part)} documents, {sum(len(row['text']) for row in part) / 1e6:.1f} million characters")


if __name__ == "__main__":
    main()
