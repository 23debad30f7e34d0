"""The JSON files of preparation, typed. In: manifests, facts of shards and inputs. Out: validated objects."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypedDict

from coref_automl.base.decoder import read_stored
from coref_automl.base.errors import DatasetError
from coref_automl.base.folders import MANIFEST

AGAIN = "prepare it again in another folder"
ANEW = "remove the folder, and prepare it again"


class InputFacts(TypedDict, total=False):
    """A file or hub source: its label, the fingerprint of its bytes, and its rows."""

    label: str
    bytes: str
    rows: int


class EvalSetFacts(TypedDict, total=False):
    name: str
    fingerprint: str
    bytes: str


class MadeFrom(TypedDict, total=False):
    """Everything that decides a dataset's bytes beside its settings; earlier versions recorded less."""

    inputs: list[InputFacts]
    tokenizer_fingerprint: str
    eval_sets: list[EvalSetFacts]


class _Arrays(TypedDict):
    seq_len: int
    blocks: int
    fingerprint: str


SourceCounts = TypedDict(
    "SourceCounts", {"name": str, "in": int, "kept": int, "dropped": dict[str, int], "characters": int, "tokens": int}
)


class DatasetManifest(_Arrays, MadeFrom, total=False):
    """The part of a dataset's manifest that training reads."""

    kind: str
    tokenizer: str
    pad_id: int
    sources: list[SourceCounts]


class PreparedManifest(_Arrays, MadeFrom):
    """The part of a dataset's manifest that `prepare` prints."""

    sources: list[SourceCounts]
    tokens: int
    padding_share: float
    mentions: int
    chains: int
    settings: dict[str, Any]


class Preparation(MadeFrom, total=False):
    """The settings and inputs of a dataset; one that is begun also has `portion`, where files are cut."""

    settings: dict[str, Any]
    allow_missing: bool
    portion: int
    versions: dict[str, str]


class ShardFacts(TypedDict):
    """The counts of one shard after reading."""

    rows_so_far: int
    rows: int
    documents: int
    characters: int
    sources: list[str]
    dropped: dict[str, dict[str, int]]
    examples: dict[str, list[tuple[int, str]]]


class ReadFacts(TypedDict):
    """The counts of one part of a source; written after its last shard."""

    rows: int
    shards: int


class EncodedFacts(TypedDict):
    """The counts of one encoded shard; `overlap` lists (row, n-gram, source, id, words)."""

    documents: int
    overlap: list[tuple[int, Any, str, str, str]]


def read_prepared(folder: Path) -> PreparedManifest:
    return read_stored(folder / MANIFEST, PreparedManifest, error=DatasetError, remedy=AGAIN)


def read_shard(path: Path) -> ShardFacts:
    return read_stored(path, ShardFacts, error=DatasetError, remedy=ANEW)
