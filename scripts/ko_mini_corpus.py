"""The corpus of the bundled encoder. In: a folder of `*.jsonl.xz` with id, source, title and text. Out: what `prepare mlm` reads.

    python scripts/ko_mini_corpus.py CORPUS --evaluated judged.json --court 52000000 --out corpus-4

OUT/held-out is an evaluation set's documents: the standard hold-out of every file, the dev and test sides of `data/ko-coref`, and
the documents and ids that `--evaluated` names. OUT/precedents.jsonl holds court decisions, whole and in the order of a hash of
their id, up to `--court` characters: legal text must not drown the rest.
"""

from __future__ import annotations

import argparse
import json
import lzma
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from coref_automl.base.fingerprints import fingerprint_files
from coref_automl.base.store import write_json, write_jsonl
from coref_automl.corpus.clean import limits, rank

SALT = "ko-mini-4/"
COURT = ("precedents_1", "precedents_2")
USED = (
    *(f"kowiki-{part}" for part in range(6)),
    *("assembly_bills", "assembly_minutes", "bible_krv1961", "book_review_acorn", "book_review_nanet", "court_precedents"),
    *("docs_translated", "news_park", "petitions", "petitions_more", "tech_rust_book_ko", "unesco_ko", "wikinews_ko", *COURT),
)


def rows(path: Path) -> Iterator[dict[str, Any]]:
    """Documents of a file; JSON lines, plain or compressed."""
    with lzma.open(path, "rt", encoding="utf-8") if path.suffix == ".xz" else path.open(encoding="utf-8") as handle:
        yield from map(json.loads, handle)


def evaluated(paths: list[Path]) -> tuple[set[str], list[dict[str, Any]]]:
    """Ids of documents of the corpus that serve evaluation, and texts that do and may be in no file of it."""
    ids = {row["origin"] for side in ("dev", "test") for row in rows(Path(f"data/ko-coref/{side}.jsonl.xz"))}
    texts = []
    for path in paths:
        if path.suffix == ".json":
            ids |= set(json.loads(path.read_text("utf-8")))
            continue
        for place, row in enumerate(rows(path)):
            text = row["text"].replace("_", row.get("answer", "_"))
            texts.append({"id": f"{path.name}/{row.get('id', place)}", "source": row.get("source", path.name), "text": text})
            ids.add(row.get("id", ""))
    return ids, texts


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--evaluated", type=Path, nargs="*", default=[])
    parser.add_argument("--court", type=int, default=52_000_000)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()

    ids, held = evaluated(given.evaluated)
    files = [given.corpus / f"{name}.jsonl.xz" for name in USED]
    limit = limits((row["source"], row["id"]) for path in files for row in rows(path))
    counts: Counter[str] = Counter()
    court = []
    for path in files:
        for row in rows(path):
            if rank(row["id"]) <= limit[row["source"]] or row["id"] in ids:
                held.append({key: row[key] for key in ("id", "source", "title", "text")})
                counts[row["source"]] += 1
            elif row["source"] in COURT and len(row["text"]) <= 60_000:
                court.append(row)
    court.sort(key=lambda row: rank(SALT + row["id"]))
    chosen, characters = 0, 0
    while chosen < len(court) and characters + len(court[chosen]["text"]) <= given.court:
        characters += len(court[chosen]["text"])
        chosen += 1
    folder = given.out / "held-out"
    folder.mkdir(parents=True, exist_ok=True)
    write_jsonl(folder / "documents.jsonl", held)
    write_json(folder / "manifest.json", {"fingerprint": fingerprint_files([folder / "documents.jsonl"])})
    write_jsonl(given.out / "precedents.jsonl", court[:chosen])
    print(f"left out: {len(held)} documents ({', '.join(f'{name} {count}' for name, count in sorted(counts.items()))})")
    print(f"court decisions: {chosen} of {len(court)}, {characters} characters")


if __name__ == "__main__":
    main()
