"""The documents of the bundled evaluation set. In: a corpus folder. Out: JSON lines for `prepare eval`.

    python scripts/bundled_documents.py CORPUS --out documents.jsonl
    coref-automl prepare eval --source local:documents.jsonl --all-documents --single-entry \
        --per-document 6 --per-source 500 --task real --task new --task lambada \
        --lambada bundled:cloze --model bundled:ko-mini --out src/coref_automl/assets/evalsets/bundled

Wikinews and court decisions of the standard hold-out, which the bundled encoder never read
(`ko_mini_corpus.py`), of moderate length; decisions on violent and sexual offences are left out.
"""

from __future__ import annotations

import argparse
import json
import lzma
import re
from pathlib import Path

from coref_automl.base.store import write_jsonl
from coref_automl.corpus.clean import rank

TAKEN = {"wikinews_ko": (160, 300, 3000), "court_precedents": (145, 600, 3000)}
"""Of each source: documents, characters at least and at most."""
HELD_OUT = 300
"""Documents that the bundled encoder's pretraining held out of each source, at most half of them."""
LEFT_OUT = re.compile("강간|추행|성폭력|성매매|간음|성교|살해|음란")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    chosen = []
    for name, (most, shortest, longest) in TAKEN.items():
        with lzma.open(given.corpus / f"{name}.jsonl.xz", "rt", encoding="utf-8") as handle:
            rows = [json.loads(line) for line in handle]
        held = sorted(rows, key=lambda row: rank(row["id"]))[: min(HELD_OUT, len(rows) // 2)]
        fitting = [row for row in held if shortest <= len(row["text"]) <= longest]
        decent = [row for row in fitting if not LEFT_OUT.search(row["text"])]
        chosen += decent[:most]
    write_jsonl(given.out, chosen)
    print(f"{len(chosen)} documents, {sum(len(row['text']) for row in chosen):,} characters")


if __name__ == "__main__":
    main()
