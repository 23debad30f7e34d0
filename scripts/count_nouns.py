"""Counts nouns over documents for the rules of the cloze tasks. In: JSONL files with `text`. Out: a table of frequent nouns.

    python scripts/count_nouns.py CORPUS.jsonl.xz=700 NEWS.jsonl.xz=120 ... > src/coref_automl/assets/nouns/frequent.tsv

One row per noun: the word, in how many of 1,000 documents it occurs, in how many of 100 occurrences a verbal or adjectival
suffix follows it. Kept: nouns in 1% of the documents or more, and those in 0.3% that are verbal in a quarter of their places.
The first 3,000 characters of each document count, so that long documents do not decide.
"""

from __future__ import annotations

import json
import lzma
import random
import sys
from collections import Counter
from pathlib import Path

from coref_automl.corpus.chains import mentions
from coref_automl.korean import VERBAL, Tagger, default_cache

LEAST, LEAST_VERBAL, VERBAL_SHARE, CHARACTERS = 0.01, 0.003, 0.25, 3_000


def main(arguments: list[str]) -> None:
    texts: list[str] = []
    for path, _, most in (argument.partition("=") for argument in arguments):
        with lzma.open(Path(path), "rt", encoding="utf-8") as handle:
            rows = [str(json.loads(line)["text"]) for line in handle]
        random.Random(1).shuffle(rows)
        texts += [text[:CHARACTERS] for text in rows[: int(most)] if len(text) > 300]
    documents: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    verbal: Counter[str] = Counter()
    for text, tags in zip(texts, Tagger(default_cache()).tag(texts), strict=True):
        found = mentions(text, tags)
        documents.update({mention.form for mention in found})
        seen.update(mention.form for mention in found)
        verbal.update(mention.form for mention in found if mention.around & VERBAL)
    for form, count in sorted(documents.items(), key=lambda entry: (-entry[1], entry[0])):
        share, made = count / len(texts), verbal[form] / seen[form]
        if share >= LEAST or (share >= LEAST_VERBAL and made >= VERBAL_SHARE):
            print(form, round(1000 * share), round(100 * made), sep="\t")


if __name__ == "__main__":
    main(sys.argv[1:])
