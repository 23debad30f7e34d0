"""The last pass. In: encoded shards and the choice of documents. Out: the dataset's arrays, manifest and card."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coref_automl.corpus import encode, select
from coref_automl.corpus.card import card, counts_table
from coref_automl.corpus.dataset import Ints, smallest_type, write_dataset
from coref_automl.corpus.encode import special_of, tokenizer_of
from coref_automl.corpus.overlap import evaluation_fingerprint, report
from coref_automl.corpus.pack import filled_blocks, pack
from coref_automl.corpus.recipe import PrepareRecipe
from coref_automl.corpus.select import Choice
from coref_automl.corpus.shards import Index
from coref_automl.corpus.sources import SOURCES, licence_of
from coref_automl.errors import WorkError
from coref_automl.korean import kiwi_version
from coref_automl.progress import Progress
from coref_automl.records import Document
from coref_automl.store import read_json, read_jsonl, write_jsonl

_VERSIONS = ("coref-automl", "numpy", "tokenizers", "transformers")


@dataclass(frozen=True, slots=True, eq=False)
class _Encoded:
    """All pieces of kept documents in corpus order. Tokens and mentions stay in the shards' files."""

    shard: NDArray[np.int32]
    offset: NDArray[np.int64]
    length: NDArray[np.int64]
    document: NDArray[np.int64]
    chains: NDArray[np.int64]
    marks_at: NDArray[np.int64]
    marks: NDArray[np.int64]


def refuse_empty(index: Index, choice: Choice, recipe: PrepareRecipe, progress: Progress) -> None:
    """Name the sources that contribute nothing before the long work begins; without `allow_empty` they end it."""
    _refuse_empty(_counted(index, choice, np.zeros((len(index), 4), np.int64), frozenset()), recipe, progress)


def _refuse_empty(sources: list[dict[str, Any]], recipe: PrepareRecipe, progress: Progress) -> None:
    empty = [source for source in sources if not source["kept"]]
    if not empty:
        return
    why = (max(s["dropped"], key=s["dropped"].__getitem__, default="no rows") for s in empty)
    named = ", ".join(f"{source['name']} ({reason})" for source, reason in zip(empty, why, strict=True))
    if not recipe.allow_empty or len(empty) == len(sources):
        progress.note(counts_table({"sources": sources}, sizes=False))
        raise WorkError(f"These sources contribute no document: {named}. Leave them out, relax a filter, or pass --allow-empty.")
    progress.note(f"NOTHING came from: {named}")


def assemble(
    index: Index,
    choice: Choice,
    recipe: PrepareRecipe,
    evaluation: list[Document],
    out: Path,
    *,
    progress: Progress,
    missing: list[str],
    hub: list[str],
) -> dict[str, Any]:
    from coref_automl.models.load import tokenizer_fingerprint

    tokenizer = tokenizer_of(recipe.model)
    special = special_of(tokenizer, recipe.model)
    dtype = smallest_type(len(tokenizer))
    stems = [_stem(shard.stem) for shard in index.shards]
    encoded, facts = _gather(index, choice, stems)
    sources = _counted(index, choice, facts, frozenset(hub))
    _refuse_empty(sources, recipe, progress)
    packing = pack(encoded.length, recipe.seq_len)
    order = packing.order
    pieces = np.column_stack([packing.block, packing.start, encoded.length, encoded.document])[order]
    real = int(encoded.length.sum())
    kept_rows = np.flatnonzero(choice.kept & (facts[:, 3] == 0))
    write_jsonl(out / "documents.jsonl", _documents(index, kept_rows))
    manifest = {
        "mode": recipe.mode,
        "tokenizer": recipe.model,
        "tokenizer_fingerprint": tokenizer_fingerprint(tokenizer),
        "vocabulary": len(tokenizer),
        "pad_id": special.pad,
        "cls_id": special.cls,
        "sep_id": special.sep,
        "mask_id": special.mask,
        "documents": len(kept_rows),
        "pieces": len(encoded.length),
        "tokens": real,
        "padding_share": 1 - real / (packing.blocks * recipe.seq_len),
        "unknown_share": int(facts[kept_rows, 2].sum()) / max(1, real),
        "mentions": int(encoded.marks.sum()),
        "chains": int(encoded.chains.sum()),
        "sources": sources,
        "inputs": [{key: entry[key] for key in ("label", "rows", "fingerprint")} for entry in index.inputs],
        "missing": missing,
        "eval_sets": [{"name": Path(name).name, "fingerprint": evaluation_fingerprint(Path(name))} for name in recipe.eval_sets],
        "overlap": _overlap(index, choice, stems, evaluation),
        "examples": index.examples,
        "settings": recipe.settings(),
        "versions": _versions(recipe),
    }
    with progress.stage("pack", packing.blocks, "blocks") as stage:
        tokens = [
            np.memmap(stem.with_suffix(".tokens"), dtype, "r") if stem.with_suffix(".tokens").stat().st_size else None
            for stem in stems
        ]

        def piece(number: int) -> Ints:
            held = tokens[encoded.shard[number]]
            low = int(encoded.offset[number])
            return np.empty(0, dtype) if held is None else held[low : low + int(encoded.length[number])]

        def shown() -> Iterator[Ints]:
            for block in filled_blocks(packing, encoded.length, piece, seq_len=recipe.seq_len, pad_id=special.pad, dtype=dtype):
                yield block
                stage.advance()

        return write_dataset(
            out,
            blocks=shown(),
            count=packing.blocks,
            seq_len=recipe.seq_len,
            dtype=dtype,
            pieces=pieces,
            mentions=_placed_mentions(encoded, packing.block, packing.start, order, stems),
            mention_count=int(encoded.marks.sum()),
            manifest=manifest,
            card=card,
        )


def _stem(read: Path) -> Path:
    return read.parent.parent / "encode" / read.name


def _gather(index: Index, choice: Choice, stems: list[Path]) -> tuple[_Encoded, NDArray[np.int64]]:
    """The pieces of kept documents, and for every document (characters, tokens, unknown, reason)."""
    parts: dict[str, list[NDArray[Any]]] = {
        name: [] for name in ("shard", "offset", "length", "row", "chains", "marks_at", "marks")
    }
    facts = np.zeros((len(index), 4), np.int64)
    for number, stem in enumerate(stems):
        row_of = _rows_of(index, number)
        with np.load(stem.with_suffix(".npz")) as arrays:
            pieces, documents = arrays["pieces"].astype(np.int64), arrays["documents"]
        marks = np.load(stem.with_suffix(".mentions.npy"), mmap_mode="r")
        facts[row_of[documents[:, 0]]] = documents[:, 1:]
        count = np.bincount(marks[:, 0], minlength=len(pieces)) if len(pieces) else np.empty(0, np.int64)
        kept = choice.kept[row_of[pieces[:, 0]]]
        columns = {
            "shard": np.full(len(pieces), number, np.int64),
            "offset": np.cumsum(pieces[:, 1]) - pieces[:, 1],
            "length": pieces[:, 1],
            "row": row_of[pieces[:, 0]],
            "chains": pieces[:, 2],
            "marks_at": np.cumsum(count) - count,
            "marks": count,
        }
        for name, column in columns.items():
            parts[name].append(column[kept])
    joined = {name: np.concatenate(arrays) if arrays else np.empty(0, np.int64) for name, arrays in parts.items()}
    order = np.argsort(joined["row"], kind="stable")
    row = joined.pop("row")[order]
    _, document = np.unique(row, return_inverse=True)
    columns = {name: column[order] for name, column in joined.items()}
    return _Encoded(**{**columns, "shard": columns["shard"].astype(np.int32)}, document=document.astype(np.int64)), facts


def _rows_of(index: Index, number: int) -> NDArray[np.int64]:
    """For every document of a shard, in the shard's order: its row in the index."""
    rows = np.flatnonzero(index.shard == number)
    row_of = np.empty(index.shards[number].documents, np.int64)
    row_of[index.place[rows]] = rows
    return row_of


def _placed_mentions(
    encoded: _Encoded, block: NDArray[np.int64], start: NDArray[np.int64], order: NDArray[np.int64], stems: list[Path]
) -> Iterator[Ints]:
    """Mentions in the order of the blocks, in offsets of the block, chains numbered from 0 within it."""
    marks = [np.load(stem.with_suffix(".mentions.npy"), mmap_mode="r") for stem in stems]
    current, chains = -1, 0
    for piece in order.tolist():
        if block[piece] != current:
            current, chains = int(block[piece]), 0
        if count := int(encoded.marks[piece]):
            low = int(encoded.marks_at[piece])
            found = np.array(marks[encoded.shard[piece]][low : low + count])
            found[:, 0] = current
            found[:, 1:3] += np.int32(start[piece])
            found[:, 3] += np.int32(chains)
            chains += int(encoded.chains[piece])
            yield found


def _counted(index: Index, choice: Choice, facts: NDArray[np.int64], hub: frozenset[str]) -> list[dict[str, Any]]:
    """A line a source: documents in, kept, dropped by reason, characters and tokens."""
    lines = []
    for number, name in enumerate(index.sources):
        rows = np.flatnonzero(index.source == number)
        dropped = Counter(index.dropped.get(name, {}))
        chosen = rows[choice.kept[rows]]
        for reasons, codes in ((select.REASONS, choice.reason[rows]), (encode.REASONS, facts[chosen, 3])):
            for code, count in zip(*np.unique(codes[codes > 0], return_counts=True), strict=True):
                dropped[reasons[int(code)]] += int(count)
        good = chosen[facts[chosen, 3] == 0]
        came = len(rows) + sum(index.dropped.get(name, {}).values())
        licence = licence_of(name) if name in hub or name not in SOURCES else "not stated by a local file"
        lines.append(
            {
                "name": name,
                "licence": licence,
                "in": came,
                "kept": len(good),
                "dropped": dict(sorted(dropped.items())),
                "characters": int(facts[good, 0].sum()),
                "tokens": int(facts[good, 1].sum()),
            }
        )
    return sorted(lines, key=lambda line: line["name"])


def _documents(index: Index, rows: NDArray[np.int64]) -> Iterator[dict[str, str]]:
    """Who the numbers in blocks.npy are, so that anyone can check what was trained on."""
    opened: dict[int, list[dict[str, str]]] = {}
    for row in rows.tolist():
        shard = int(index.shard[row])
        if shard not in opened:
            if len(opened) > 16:
                opened.clear()
            opened[shard] = [
                {"source": r["source"], "id": r["id"], "title": r["title"]} for r in read_jsonl(index.shards[shard].texts)
            ]
        yield opened[shard][int(index.place[row])]


def _overlap(index: Index, choice: Choice, stems: list[Path], evaluation: list[Document]) -> dict[str, Any] | None:
    if not evaluation:
        return None
    found: list[NDArray[np.uint64]] = []
    seen: list[tuple[int, int, str, str, str]] = []
    for number, stem in enumerate(stems):
        row_of = _rows_of(index, number)
        with np.load(stem.with_suffix(".npz")) as arrays:
            found.append(arrays["runs"][choice.kept[row_of[arrays["run_places"]]]])
        for place, *entry in read_json(stem.with_suffix(".json"))["overlap"]:
            if choice.kept[row_of[place]]:
                seen.append((int(row_of[place]), *entry))
    examples = [(run, source, identity, words) for _, run, source, identity, words in sorted(seen)]
    return report(evaluation, np.unique(np.concatenate(found)), examples).to_json()


def _versions(recipe: PrepareRecipe) -> dict[str, str]:
    found = {name: version(name) for name in _VERSIONS}
    if recipe.mode != "mlm":
        found["kiwi"] = kiwi_version()
    if recipe.near_duplicates:
        found["rensa"] = version("rensa")
    return found
