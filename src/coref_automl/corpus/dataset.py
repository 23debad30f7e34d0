"""Packed datasets on disk. In: blocks of token ids, document pieces, mention spans. Out: rows, memory-mapped, numpy alone.

tokens.npy    [blocks, seq_len]  token ids in the smallest unsigned type that holds the vocabulary
blocks.npy    [pieces, 4] int32  (block, start, length, document number), sorted by block and start
mentions.npy  [mentions, 4]      (block, start, end, chain) in token offsets of the block, sorted by block and start
manifest.json                    settings, counts and fingerprints; card.md says the same to a person

Training verifies the fingerprint of the arrays before its first step and refuses edited or damaged ones. Tables are read some
rows at a time, because a dataset may be many times larger than memory.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from coref_automl.base.config import choose
from coref_automl.base.decoder import decode_stored
from coref_automl.base.errors import DatasetError, InputError, RecipeError
from coref_automl.base.fingerprints import chunks_of, fingerprint_files
from coref_automl.base.folders import MANIFEST, claim_folder, is_done, mark_done, with_article
from coref_automl.base.guard import read_array
from coref_automl.base.progress import Progress
from coref_automl.base.store import atomic_write, read_json, read_jsonl, write_json, write_text
from coref_automl.corpus.manifest import AGAIN, DatasetManifest

KIND = "dataset"
TOKENS, PIECES, MENTIONS, CARD = "tokens.npy", "blocks.npy", "mentions.npy", "card.md"

_ROWS_AT_ONCE = 1 << 18
"""Rows of a table in memory at a time."""

Ints = NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class PackedRow:
    """One block: its tokens, the piece of every token (from 1; 0 is padding), and mentions (start, end, chain)."""

    tokens: Ints
    segments: Ints
    mentions: Ints


@dataclass(frozen=True, slots=True, eq=False)
class PackedDataset:
    """A prepared dataset, memory-mapped: opening it reads no tokens.

    With `token_rows`, row i is `tokens[token_rows[i]]`; pieces and mentions count dataset rows, not rows of `tokens`.
    """

    folder: Path
    manifest: DatasetManifest
    tokens: Ints
    pieces: Ints
    mentions: Ints
    token_rows: Ints | None = None

    @classmethod
    def open(cls, folder: Path) -> PackedDataset:
        folder = Path(folder)
        if folder.is_file():
            raise DatasetError(
                f"{folder} is a file, not a prepared dataset; run: coref-automl prepare combined --source local:{folder} "
                "--model MODEL --out prepared, and pass that folder."
            )
        if not folder.is_dir():
            raise DatasetError(f"The dataset {folder} does not exist. Make it with: coref-automl prepare mlm --out {folder} ...")
        if not (folder / MANIFEST).is_file():
            raise DatasetError(f"{folder} is not a prepared dataset (no {MANIFEST}). Make one with: coref-automl prepare")
        if not is_done(folder):
            raise DatasetError(f"The dataset {folder} is unfinished; run the same `coref-automl prepare` command again.")
        try:
            stored = read_json(folder / MANIFEST)
            _check_kind(folder, stored)
            manifest = decode_stored(DatasetManifest, stored, str(folder / MANIFEST), error=DatasetError, remedy=AGAIN)
            tokens, pieces, mentions = (read_array(folder / name, mapped=True) for name in (TOKENS, PIECES, MENTIONS))
        except DatasetError:
            raise
        except InputError as error:
            raise DatasetError(f"The dataset {folder} is damaged ({error}); {AGAIN}.") from error
        if fault := _wrong_shape(manifest, tokens, pieces, mentions):
            raise DatasetError(f"The dataset {folder} is damaged ({fault}); {AGAIN}.")
        return cls(folder, manifest, tokens, pieces, mentions)

    def verify(self, progress: Progress) -> None:
        """Raise DatasetError unless the arrays have the bytes that were prepared."""
        arrays = [self.folder / name for name in (TOKENS, PIECES, MENTIONS)]
        with progress.stage("verify dataset", sum(path.stat().st_size for path in arrays), "bytes") as stage:

            def read(path: Path) -> Iterator[bytes]:
                for chunk in chunks_of(path):
                    stage.advance(len(chunk))
                    yield chunk

            if fingerprint_files(arrays, read=read) != self.fingerprint:
                raise DatasetError(
                    f"The arrays of {self.folder} have changed since they were prepared: edited, or damaged; restore them from a "
                    "copy, or prepare the dataset again in another folder."
                )

    def cut_to(self, seq_len: int) -> PackedDataset:
        """The same blocks as shorter rows, for a first phase at a shorter length; only the tables of spans are copied.

        A piece that crosses an edge continues in the next row as another piece. A mention that crosses one is dropped, and so are
        rows of padding alone.
        """
        if seq_len == self.seq_len:
            return self
        if seq_len > self.seq_len or self.seq_len % seq_len:
            raise DatasetError(
                f"{self.folder} has blocks of {self.seq_len:,} tokens, which rows of {seq_len:,} do not divide; "
                f"prepare it with --seq-len {seq_len}."
            )
        tokens = self.tokens.reshape(-1, seq_len)
        pieces, mentions = _cut_pieces(self, seq_len), _cut_mentions(self, seq_len)
        filled = np.bincount(pieces[:, 0], minlength=len(tokens)) > 0
        token_rows = None
        if not filled.all():
            token_rows, new_row = np.flatnonzero(filled), np.cumsum(filled) - 1
            mentions = mentions[filled[mentions[:, 0]]]
            pieces[:, 0], mentions[:, 0] = new_row[pieces[:, 0]], new_row[mentions[:, 0]]
        manifest: DatasetManifest = {**self.manifest, "seq_len": seq_len, "blocks": int(filled.sum())}
        return PackedDataset(self.folder, manifest, tokens, pieces, mentions, token_rows)

    @property
    def seq_len(self) -> int:
        return int(self.tokens.shape[1])

    @property
    def fingerprint(self) -> str:
        """A hash of the bytes of the three arrays."""
        return self.manifest["fingerprint"]

    def __len__(self) -> int:
        return len(self.tokens if self.token_rows is None else self.token_rows)

    def pieces_of(self, index: int) -> Ints:
        """The (block, start, length, document) rows of one block."""
        return _rows_of(self.pieces, index)

    def lengths(self) -> NDArray[np.int64]:
        """The number of tokens of every row, without padding."""
        lengths = np.zeros(len(self), np.int64)
        for row, _, length, _ in (part.T for part in portions(self.pieces)):
            if not ((row >= 0) & (row < len(self))).all():
                raise DatasetError(f"The dataset {self.folder} is damaged ({PIECES} names rows that are not there); {AGAIN}.")
            np.add.at(lengths, row, length)
        return lengths

    @property
    def sources(self) -> list[str]:
        """The sources with documents in the dataset, the largest first."""
        used = [source for source in self.manifest.get("sources", []) if source["kept"]]
        return [source["name"] for source in sorted(used, key=lambda source: -source["tokens"])]

    def contexts(self) -> NDArray[np.float64]:
        """The mean length, over the tokens of each row, of the piece that a token is in."""
        squares = np.zeros(len(self))
        for row, _, length, _ in (part.T for part in portions(self.pieces)):
            np.add.at(squares, row, length.astype(np.float64) ** 2)
        return np.asarray(squares / self.lengths(), np.float64)

    def row_weights(self, mix: Mapping[str, float]) -> NDArray[np.float64]:
        """The weight of every row, with mean 1, from the weights of sources in `mix`; tokens of other sources weigh 1."""
        path = self.folder / "documents.jsonl"
        names = [str(row["source"]) for row in read_jsonl(path)] if path.is_file() else []
        for name in mix:
            choose(name, dict.fromkeys(names), "source")
        of_document, weights = np.array([mix.get(name, 1.0) for name in names]), np.zeros(len(self))
        for row, _, length, document in (part.T for part in portions(self.pieces)):
            np.add.at(weights, row, length * of_document[document])
        weights /= self.lengths()
        if weights.min() == weights.max():
            effect = "leaves nothing to train on" if not weights.any() else "changes nothing"
            raise RecipeError(f"--mix {effect} in {self.folder}, with the sources {', '.join(dict.fromkeys(names))}; correct it.")
        return np.asarray(weights / weights.mean(), np.float64)

    def row(self, index: int) -> PackedRow:
        if not 0 <= index < len(self):
            raise IndexError(f"row {index} of a dataset of {len(self)} rows")
        segments = np.zeros(self.seq_len, np.int32)
        for number, (_, start, length, _) in enumerate(self.pieces_of(index), 1):
            segments[start : start + length] = number
        mentions = _rows_of(self.mentions, index)[:, 1:]
        token_row = index if self.token_rows is None else self.token_rows[index]
        return PackedRow(np.asarray(self.tokens[token_row]), segments, mentions)

    def check_tokenizer(self, fingerprint: str) -> None:
        """Refuse a model whose tokenizer is not the one that made the token ids."""
        if self.manifest.get("tokenizer_fingerprint") != fingerprint:
            name = self.manifest.get("tokenizer")
            raise DatasetError(
                f"{self.folder} was prepared with the tokenizer of {name}, not this model's; "
                "prepare the texts again with --model and this model's name."
            )


def _check_kind(folder: Path, manifest: Any) -> None:
    """Refuse a folder of another kind by its kind, rather than as damaged."""
    kind = str(manifest.get("kind", KIND)) if isinstance(manifest, dict) else "file of another shape"
    if kind != KIND:
        raise DatasetError(f"{folder} is not a prepared dataset, it is {with_article(kind)}; make one: coref-automl prepare")


def _wrong_shape(manifest: DatasetManifest, tokens: Ints, pieces: Ints, mentions: Ints) -> str | None:
    shape = (manifest["blocks"], manifest["seq_len"])
    if tokens.shape != shape:
        return f"tokens are {tokens.shape}, the manifest says {shape}"
    for name, array, rest in ((TOKENS, tokens, shape[1:]), (PIECES, pieces, (4,)), (MENTIONS, mentions, (4,))):
        if array.shape[1:] != rest or array.dtype.kind not in "iu":
            return f"{name} is {array.shape} of {array.dtype}"
    return None


def portions(table: Ints) -> Iterator[Ints]:
    """Yield a table some rows at a time, so that one larger than memory stays on disk."""
    for low in range(0, len(table), _ROWS_AT_ONCE):
        yield np.asarray(table[low : low + _ROWS_AT_ONCE])


def _rows_of(table: Ints, block: int) -> Ints:
    """The rows of one block in a table sorted by block; binary search reads only what it touches."""
    whole = np.asarray(table)
    low = bisect_left(whole[:, 0], block)
    return whole[low : bisect_right(whole[:, 0], block, low)]


def _cut_pieces(dataset: PackedDataset, seq_len: int) -> Ints:
    block, start, length, document = np.asarray(dataset.pieces, np.int64).T
    flat = block * dataset.seq_len + start
    first, last = flat // seq_len, (flat + length - 1) // seq_len
    parts = last - first + 1
    piece = np.repeat(np.arange(len(flat)), parts)
    row = first[piece] + np.arange(len(piece)) - np.repeat(np.cumsum(parts) - parts, parts)
    low = np.maximum(flat[piece], row * seq_len)
    high = np.minimum((flat + length)[piece], (row + 1) * seq_len)
    cut: Ints = np.stack([row, low - row * seq_len, high - low, document[piece]], 1).astype(np.int32)
    return cut


def _cut_mentions(dataset: PackedDataset, seq_len: int) -> Ints:
    block, start, end, chain = np.asarray(dataset.mentions, np.int64).T
    part, last = start // seq_len, (end - 1) // seq_len
    row = block * (dataset.seq_len // seq_len) + part
    cut: Ints = np.stack([row, start - part * seq_len, end - part * seq_len, chain], 1)[part == last].astype(np.int32)
    return cut


def smallest_type(vocabulary: int) -> type[np.unsignedinteger[Any]]:
    """The narrowest unsigned type that holds every id of a vocabulary."""
    return np.uint16 if vocabulary <= 1 << 16 else np.uint32


Window = tuple[Iterable[Ints], Ints, Iterable[Ints]]
"""Consecutive blocks, with their pieces and mentions."""


def write_dataset(
    folder: Path,
    windows: Iterable[Window],
    *,
    seq_len: int,
    dtype: Any,
    manifest: Callable[[int], dict[str, Any]],
    card: Callable[[dict[str, Any]], str] | None = None,
) -> dict[str, Any]:
    """Write the arrays, the manifest with their fingerprint, its card, and last DONE; one window at a time is in memory.

    `manifest` is called with the number of blocks; it must return `pad_id`, `tokenizer` and `tokenizer_fingerprint`.
    """
    claim_folder(folder, KIND)
    arrays = [folder / name for name in (TOKENS, PIECES, MENTIONS)]
    shapes = ((seq_len, np.dtype(dtype)), (4, np.dtype(np.int32)), (4, np.dtype(np.int32)))
    with ExitStack() as files:
        writers = [files.enter_context(_growing(path, *shape)) for path, shape in zip(arrays, shapes, strict=True)]
        for blocks, pieces, mentions in windows:
            for writer, parts in zip(writers, (blocks, (pieces,), mentions), strict=True):
                for part in parts:
                    writer.append(part)
    count = writers[0].rows
    facts = {"seq_len": seq_len, "blocks": count, "fingerprint": fingerprint_files(arrays)}
    stored = {"kind": KIND, **manifest(count), **facts}
    write_json(folder / MANIFEST, stored)
    if card is not None:
        write_text(folder / CARD, card(stored))
    mark_done(folder)
    return stored


@dataclass(slots=True)
class _ArrayWriter:
    """Appends rows to an .npy file; numpy pads the header, so it is rewritten in place with the final count."""

    handle: IO[bytes]
    columns: int
    dtype: np.dtype[Any]
    rows: int = 0

    def write_header(self) -> None:
        self.handle.seek(0)
        header = {"descr": self.dtype.str, "fortran_order": False, "shape": (self.rows, self.columns)}
        np.lib.format.write_array_header_1_0(self.handle, header)

    def append(self, part: Ints) -> None:
        rows = np.ascontiguousarray(part, self.dtype).reshape(-1, self.columns)
        self.handle.write(rows.tobytes())
        self.rows += len(rows)


@contextmanager
def _growing(path: Path, columns: int, dtype: np.dtype[Any]) -> Iterator[_ArrayWriter]:
    with atomic_write(path, "wb") as handle:
        writer = _ArrayWriter(handle, columns, dtype)
        writer.write_header()
        yield writer
        writer.write_header()
