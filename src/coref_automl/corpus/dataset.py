"""Packed datasets on disk. In: blocks of token ids, document pieces, mention spans. Out: rows, memory-mapped, numpy alone.

tokens.npy    [blocks, seq_len]  token ids in the smallest unsigned type that holds the vocabulary
blocks.npy    [pieces, 4] int32  (block, start, length, document number), sorted by block and start
mentions.npy  [mentions, 4]      (block, start, end, chain) in token offsets of the block, sorted by block and start
manifest.json                    settings, counts and fingerprints; card.md says the same to a person
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coref_automl.errors import DatasetError, InputError
from coref_automl.store import MANIFEST, claim_folder, fingerprint_files, is_done, mark_done, read_json, write_json, written_whole

KIND = "dataset"
TOKENS, PIECES, MENTIONS = "tokens.npy", "blocks.npy", "mentions.npy"

Ints = NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """One block: its tokens, the piece every token belongs to (from 1; 0 is padding), and mentions (start, end, chain)."""

    tokens: Ints
    segments: Ints
    mentions: Ints


class PackedDataset:
    """A prepared dataset. Opening it reads no tokens; a row is read when it is asked for."""

    def __init__(self, folder: Path, manifest: dict[str, Any], tokens: Ints, pieces: Ints, mentions: Ints) -> None:
        self.folder = folder
        self.manifest = manifest
        self.tokens = tokens
        self.pieces = pieces
        self.mentions = mentions
        edges = np.arange(len(tokens) + 1)
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
            manifest = read_json(folder / MANIFEST)
            tokens, pieces, mentions = (np.load(folder / name, mmap_mode="r") for name in (TOKENS, PIECES, MENTIONS))
        except (OSError, ValueError, InputError) as error:
            raise DatasetError(f"The dataset {folder} is damaged ({error}); prepare it again in another folder.") from error
        shape = (manifest.get("blocks"), manifest.get("seq_len"))
        if tokens.shape != shape or pieces.shape[1:] != (4,) or mentions.shape[1:] != (4,):
            raise DatasetError(
                f"The dataset {folder} is damaged (tokens are {tokens.shape}, the manifest says {shape}); prepare it again."
            )
        return cls(folder, manifest, tokens, pieces, mentions)

    @property
    def seq_len(self) -> int:
        return int(self.tokens.shape[1])

    @property
    def fingerprint(self) -> str:
        """Names the bytes of the three arrays."""
        return str(self.manifest["fingerprint"])

    @property
    def real_tokens(self) -> int:
        """Tokens that are not padding."""
        return int(self.pieces[:, 2].sum(dtype=np.int64))

    def __len__(self) -> int:
        return int(self.tokens.shape[0])

    def pieces_of(self, index: int) -> Ints:
        """The (block, start, length, document) rows of one block."""
        return np.asarray(self.pieces[self._pieces_at[index] : self._pieces_at[index + 1]])

    def row(self, index: int) -> Row:
        if not 0 <= index < len(self):
            raise IndexError(f"row {index} of a dataset of {len(self)} rows")
        segments = np.zeros(self.seq_len, np.int32)
        for number, (_, start, length, _) in enumerate(self.pieces_of(index), 1):
            segments[start : start + length] = number
        mentions = np.asarray(self.mentions[self._mentions_at[index] : self._mentions_at[index + 1], 1:])
        return Row(np.asarray(self.tokens[index]), segments, mentions)

    def check_tokenizer(self, fingerprint: str) -> None:
        """Token ids mean something only with the tokenizer that made them."""
        made = self.manifest.get("tokenizer_fingerprint")
        if made != fingerprint:
            name = self.manifest.get("tokenizer")
            raise DatasetError(
                f"{self.folder} was prepared with the tokenizer of {name}, not this model's; prepare it with --model."
            )


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
    mentions: Ints,
    manifest: dict[str, Any],
) -> dict[str, Any]:
    """Write the arrays (blocks are streamed, so memory holds one at a time), then the manifest with their fingerprint, then DONE.

    `manifest` needs `pad_id`, `tokenizer` and `tokenizer_fingerprint` beside what the caller wants remembered.
    """
    claim_folder(folder, KIND)
    with written_whole(folder / TOKENS, "wb") as handle:
        header = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": (count, seq_len)}
        np.lib.format.write_array_header_1_0(handle, header)
        for block in blocks:
            handle.write(np.ascontiguousarray(block, dtype).tobytes())
    for name, array in ((PIECES, pieces), (MENTIONS, mentions)):
        with written_whole(folder / name, "wb") as handle:
            np.save(handle, np.ascontiguousarray(array.reshape(-1, 4), np.int32))
    print_of_bytes = fingerprint_files([folder / TOKENS, folder / PIECES, folder / MENTIONS])
    whole = {"kind": KIND, **manifest, "seq_len": seq_len, "blocks": count, "fingerprint": print_of_bytes}
    write_json(folder / MANIFEST, whole)
    mark_done(folder)
    return whole
