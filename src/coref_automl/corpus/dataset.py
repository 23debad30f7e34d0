"""Packed datasets on disk. In: blocks of token ids, document pieces, mention spans. Out: rows, memory-mapped, numpy alone.

tokens.npy    [blocks, seq_len]  token ids in the smallest unsigned type that holds the vocabulary
blocks.npy    [pieces, 4] int32  (block, start, length, document number), sorted by block and start
mentions.npy  [mentions, 4]      (block, start, end, chain) in token offsets of the block, sorted by block and start
manifest.json                    settings, counts, fingerprints and checksums; card.md says the same to a person

`prepare` writes a checksum per shard of each array into the manifest and training compares them before its first step, so that an
array that was edited, or damaged on its way here, is not learned from.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coref_automl.arrays import read_array
from coref_automl.corpus.manifest import AGAIN, DatasetManifest
from coref_automl.decoder import decode_stored
from coref_automl.errors import DatasetError, InputError
from coref_automl.progress import Progress
from coref_automl.store import (
    MANIFEST,
    claim_folder,
    fingerprint_files,
    is_done,
    mark_done,
    read_json,
    with_article,
    write_json,
    write_text,
    written_whole,
)

SHARD = 64 << 20
"""Bytes of a shard."""

LEAST = 1 << 20
"""A manifest that claims smaller ones is damaged."""

_CHUNK = 1 << 20
_THREADS = 4

Checksums = dict[str, Any]
"""`shard_bytes`, and under each file's name the checksums of its shards."""


def checksums(
    paths: Iterable[Path], *, shard_bytes: int | None = None, on_bytes: Callable[[int], None] | None = None
) -> Checksums:
    """The checksums of some files of one folder."""
    shard_bytes = shard_bytes or SHARD
    found: Checksums = {"shard_bytes": shard_bytes}
    with ThreadPoolExecutor(_THREADS) as pool:
        for path in paths:
            starts = range(0, path.stat().st_size, shard_bytes)
            found[path.name] = []
            for checksum, count in pool.map(lambda start, path=path: _hashed(path, start, shard_bytes), starts):
                found[path.name].append(checksum)
                if on_bytes is not None:
                    on_bytes(count)
    return found


def verify(folder: Path, written: Any, *, on_bytes: Callable[[int], None] | None = None) -> None:
    """Compare a folder's files with the checksums that were written when they were made."""
    shard_bytes = written.get("shard_bytes") if isinstance(written, dict) else None
    if not isinstance(shard_bytes, int) or shard_bytes < LEAST:
        raise DatasetError(f"The manifest of {folder} has damaged checksums; prepare the dataset again in another folder.")
    now = checksums((folder / name for name in written if (folder / name).is_file()), shard_bytes=shard_bytes, on_bytes=on_bytes)
    for name, before in written.items():
        if before != (after := now.get(name)):
            raise DatasetError(
                f"{folder / name} has changed since it was prepared{_where(before, after)}; it was edited or damaged: restore it "
                "from a copy, or prepare the dataset again in another folder."
            )


def _where(before: Any, after: Any) -> str:
    """Which shard it is, where there are several."""
    if not isinstance(before, list) or not isinstance(after, list) or len(before) != len(after) or len(before) < 2:
        return ""
    at = next(number for number, (old, new) in enumerate(zip(before, after, strict=True)) if old != new)
    return f" (shard {at + 1} of {len(before)})"


def _hashed(path: Path, start: int, size: int) -> tuple[str, int]:
    digest, left = hashlib.blake2b(digest_size=12), size
    with path.open("rb") as handle:
        handle.seek(start)
        while left and (chunk := handle.read(min(_CHUNK, left))):
            digest.update(chunk)
            left -= len(chunk)
    return digest.hexdigest(), size - left


KIND = "dataset"
TOKENS, PIECES, MENTIONS, CARD = "tokens.npy", "blocks.npy", "mentions.npy", "card.md"

_PORTION = 1 << 20
"""Mentions that are looked at at a time."""

Ints = NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class PackedRow:
    """One block: its tokens, the piece every token belongs to (from 1; 0 is padding), and mentions (start, end, chain)."""

    tokens: Ints
    segments: Ints
    mentions: Ints


class PackedDataset:
    """A prepared dataset. Opening it reads no tokens; a row is read when it is asked for.

    Where `places` is given, row i is `tokens[places[i]]`; pieces and mentions name rows, not places.
    """

    def __init__(
        self,
        folder: Path,
        manifest: DatasetManifest,
        tokens: Ints,
        pieces: Ints,
        mentions: Ints,
        places: Ints | None = None,
    ) -> None:
        self.folder = folder
        self.manifest = manifest
        self.tokens = tokens
        self.pieces = pieces
        self.mentions = mentions
        self._places = places
        edges = np.arange(len(self) + 1)
        self._pieces_at = np.searchsorted(pieces[:, 0], edges)
        self._mentions_at = np.searchsorted(mentions[:, 0], edges)

    @classmethod
    def open(cls, folder: Path) -> PackedDataset:
        folder = Path(folder)
        if not folder.is_dir():
            raise DatasetError(f"The dataset {folder} does not exist. Make it with: coref-automl prepare mlm --out {folder} ...")
        if not (folder / MANIFEST).is_file():
            raise DatasetError(f"{folder} is not a prepared dataset (no {MANIFEST}). Make one with: coref-automl prepare")
        if not is_done(folder):
            raise DatasetError(f"The dataset {folder} is unfinished; run the same `coref-automl prepare` command again.")
        try:
            held = read_json(folder / MANIFEST)
        except InputError as error:
            raise DatasetError(f"The dataset {folder} is damaged ({error}); prepare it again in another folder.") from error
        _check_kind(folder, held)
        manifest = decode_stored(DatasetManifest, held, str(folder / MANIFEST), error=DatasetError, remedy=AGAIN)
        try:
            tokens, pieces, mentions = (read_array(folder / name, mapped=True) for name in (TOKENS, PIECES, MENTIONS))
        except InputError as error:
            raise DatasetError(f"The dataset {folder} is damaged ({error}); prepare it again in another folder.") from error
        if fault := _wrong_shape(manifest, tokens, pieces, mentions) or _outside(PIECES, _ends(pieces), tokens.shape):
            raise DatasetError(f"The dataset {folder} is damaged ({fault}); prepare it again in another folder.")
        return cls(folder, manifest, tokens, pieces, mentions)

    def verify(self, progress: Progress) -> None:
        """Are the arrays what was prepared? Earlier versions wrote no checksums: of theirs, spans alone are looked at."""
        if (written := self.manifest.get("checksums")) is not None:
            total = sum((self.folder / name).stat().st_size for name in (TOKENS, PIECES, MENTIONS))
            with progress.stage("verify dataset", total, "bytes") as stage:
                verify(self.folder, written, on_bytes=stage.advance)
        for low in range(0, len(self.mentions), _PORTION):
            if fault := _outside(MENTIONS, self.mentions[low : low + _PORTION], (len(self), self.seq_len)):
                raise DatasetError(f"The dataset {self.folder} is damaged ({fault}); prepare it again in another folder.")

    def cut_to(self, seq_len: int) -> PackedDataset:
        """The same blocks as shorter rows, for a first phase at a shorter length. Nothing is copied but the tables of spans.

        A piece that crosses an edge continues in the next row as a piece of its own; a mention that crosses one is left out, and
        so is a row of padding alone.
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
        places = None
        if not filled.all():
            places, row_at = np.flatnonzero(filled), np.cumsum(filled) - 1
            mentions = mentions[filled[mentions[:, 0]]]
            pieces[:, 0], mentions[:, 0] = row_at[pieces[:, 0]], row_at[mentions[:, 0]]
        manifest: DatasetManifest = {**self.manifest, "seq_len": seq_len, "blocks": int(filled.sum())}
        return PackedDataset(self.folder, manifest, tokens, pieces, mentions, places)

    @property
    def seq_len(self) -> int:
        return int(self.tokens.shape[1])

    @property
    def fingerprint(self) -> str:
        """Names the bytes of the three arrays."""
        return self.manifest["fingerprint"]

    @property
    def real_tokens(self) -> int:
        """Tokens that are not padding."""
        return int(self.pieces[:, 2].sum(dtype=np.int64))

    def __len__(self) -> int:
        return len(self.tokens if self._places is None else self._places)

    def pieces_of(self, index: int) -> Ints:
        """The (block, start, length, document) rows of one block."""
        return np.asarray(self.pieces[self._pieces_at[index] : self._pieces_at[index + 1]])

    def row(self, index: int) -> PackedRow:
        if not 0 <= index < len(self):
            raise IndexError(f"row {index} of a dataset of {len(self)} rows")
        segments = np.zeros(self.seq_len, np.int32)
        for number, (_, start, length, _) in enumerate(self.pieces_of(index), 1):
            segments[start : start + length] = number
        mentions = np.asarray(self.mentions[self._mentions_at[index] : self._mentions_at[index + 1], 1:])
        place = index if self._places is None else self._places[index]
        return PackedRow(np.asarray(self.tokens[place]), segments, mentions)

    def check_tokenizer(self, fingerprint: str) -> None:
        """Token ids mean something only with the tokenizer that made them."""
        made = self.manifest.get("tokenizer_fingerprint")
        if made != fingerprint:
            name = self.manifest.get("tokenizer")
            raise DatasetError(
                f"{self.folder} was prepared with the tokenizer of {name}, not this model's; "
                "prepare the texts again with --model and this model's name."
            )


def _check_kind(folder: Path, manifest: Any) -> None:
    """A folder of another kind is distinguished from a damaged one."""
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


def _ends(pieces: Ints) -> Ints:
    """Pieces with their end in place of their length, as mentions have it."""
    return np.column_stack([pieces[:, :2], pieces[:, 1].astype(np.int64) + pieces[:, 2], pieces[:, 3]])


def _outside(name: str, spans: Ints, shape: tuple[int, ...]) -> str | None:
    """Spans (block, start, end, ...) are in the order of their blocks, and each within its own."""
    block, start, end, _ = spans.T
    lost = (block < 0) | (block >= shape[0]) | (start < 0) | (end <= start) | (end > shape[1])
    return f"{name} has a span outside its block" if lost.any() or (np.diff(block) < 0).any() else None


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
    row, last = start // seq_len, (end - 1) // seq_len
    whole = row == last
    at = block * (dataset.seq_len // seq_len) + row
    cut: Ints = np.stack([at, start - row * seq_len, end - row * seq_len, chain], 1)[whole].astype(np.int32)
    return cut


def smallest_type(vocabulary: int) -> type[np.unsignedinteger[Any]]:
    """The narrowest unsigned type that holds every id of a vocabulary."""
    return np.uint16 if vocabulary <= 1 << 16 else np.uint32


def write_dataset(
    folder: Path,
    *,
    blocks: Iterable[Ints],
    count: int,
    seq_len: int,
    dtype: Any,
    pieces: Ints,
    mentions: Iterable[Ints],
    manifest: dict[str, Any],
    mention_count: int | None = None,
    card: Callable[[dict[str, Any]], str] | None = None,
) -> dict[str, Any]:
    """Write the arrays, the manifest with their fingerprint, its card, and last DONE. Blocks and mentions are streamed.

    `manifest` needs `pad_id`, `tokenizer` and `tokenizer_fingerprint` beside what the caller wants remembered.
    """
    claim_folder(folder, KIND)
    rows = len(mentions) if mention_count is None else mention_count  # type: ignore[arg-type]
    _stream(folder / TOKENS, blocks, (count, seq_len), np.dtype(dtype))
    _stream(folder / PIECES, [pieces], (len(pieces), 4), np.dtype(np.int32))
    _stream(folder / MENTIONS, mentions, (rows, 4), np.dtype(np.int32))
    arrays = [folder / name for name in (TOKENS, PIECES, MENTIONS)]
    whole = {
        "kind": KIND,
        **manifest,
        "seq_len": seq_len,
        "blocks": count,
        "fingerprint": fingerprint_files(arrays),
        "checksums": checksums(arrays),
    }
    write_json(folder / MANIFEST, whole)
    if card is not None:
        write_text(folder / CARD, card(whole))
    mark_done(folder)
    return whole


def _stream(path: Path, parts: Iterable[Ints], shape: tuple[int, int], dtype: np.dtype[Any]) -> None:
    """An .npy file from its parts; memory holds one part at a time."""
    with written_whole(path, "wb") as handle:
        np.lib.format.write_array_header_1_0(handle, {"descr": dtype.str, "fortran_order": False, "shape": shape})
        written = 0
        for part in parts:
            written += handle.write(np.ascontiguousarray(part, dtype).tobytes())
        if written != shape[0] * shape[1] * dtype.itemsize:
            raise ValueError(f"{path.name} should hold {shape} entries and holds {written // dtype.itemsize}")
