"""The recipe of a dataset. In: options or YAML. Out: a frozen recipe; what decides the bytes of a dataset, and what does not."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from typing import Any

from coref_automl.config import typed
from coref_automl.corpus.clean import Filters
from coref_automl.corpus.encode import Mode
from coref_automl.corpus.holdout import SHARE
from coref_automl.errors import RecipeError
from coref_automl.models.families import LONGEST

_NO_BYTES = ("workers", "allow_missing", "allow_empty", "portion")
"""Fields that change how a dataset is made, not what it holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareRecipe:
    """`shard` is "3/16": this machine takes the third of sixteen shares, and `merge` combines them. `limit` is rows per file.

    `chain_cap` bounds the mentions of one form in a piece. `portion` is the characters that are worked on before a resting place.
    """

    mode: Mode
    sources: tuple[str, ...]
    model: str
    seq_len: int = 1536
    field: str | None = None
    eval_sets: tuple[str, ...] = ()
    holdout: float = SHARE
    only_names: bool = False
    chain_cap: int = 8
    min_characters: int = 200
    min_hangul: float = 0.5
    near_duplicates: bool = True
    similarity: float = 0.8
    limit: int | None = None
    shard: str | None = None
    workers: int = 0
    allow_missing: bool = False
    allow_empty: bool = False
    portion: int = 4_000_000

    def __post_init__(self) -> None:
        typed(self)
        wrong = {
            "sources": (bool(self.sources), "needs at least one entry; see: coref-automl sources"),
            "seq_len": (16 <= self.seq_len <= LONGEST, f"should lie between 16 and {LONGEST:,}"),
            "holdout": (0 <= self.holdout <= 0.5, "should lie between 0 and 0.5"),
            "chain_cap": (self.chain_cap >= 2, "should be 2 or more"),
            "similarity": (0 < self.similarity <= 1, "should lie between 0 and 1"),
            "min_hangul": (0 <= self.min_hangul <= 1, "should lie between 0 and 1"),
            "limit": (self.limit is None or self.limit > 0, "should be 1 or more"),
            "workers": (self.workers >= 0, "should be 0 (one per core) or more"),
            "portion": (self.portion > 0, "should be 1 or more"),
        }
        for name, (fine, advice) in wrong.items():
            if not fine:
                raise RecipeError(f"{name} {advice}, not {getattr(self, name)!r}.")
        self.share()

    def share(self) -> tuple[int, int]:
        """(3, 16) of "3/16"."""
        if self.shard is None:
            return 1, 1
        match = re.fullmatch(r"(\d+)/(\d+)", self.shard)
        if not match or not 1 <= int(match[1]) <= int(match[2]):
            raise RecipeError(f"shard should look like 3/16, not {self.shard!r}.")
        return int(match[1]), int(match[2])

    def filters(self) -> Filters:
        return Filters(self.min_characters, self.min_hangul)

    def settings(self) -> dict[str, Any]:
        """What decides the bytes."""
        values = {key: list(value) if isinstance(value, tuple) else value for key, value in dataclasses.asdict(self).items()}
        return {key: value for key, value in values.items() if key not in _NO_BYTES}


HELP = {
    "sources": "Named source (see: coref-automl sources), local:PATH or a quoted glob; repeatable.",
    "model": "Model whose tokenizer is used: hub id, folder or bundled: name.",
    "seq_len": "Tokens per block.",
    "field": "Field that holds the text, if not the source's usual one.",
    "eval_sets": "Evaluation set whose documents are left out; repeatable.",
    "holdout": "Fraction of each source held out for evaluation (at least 300 documents, at most half); 0 holds out none.",
    "only_names": "Build chains of proper nouns only.",
    "chain_cap": "Maximum number of mentions per form in a piece.",
    "min_characters": "Drop documents shorter than this.",
    "min_hangul": "Drop documents with a smaller share of Hangul among their letters.",
    "near_duplicates": "Drop near-duplicates too, or exact duplicates only.",
    "similarity": "Jaccard similarity from which two texts are near-duplicates.",
    "limit": "Read at most this many rows of each file or hub source.",
    "shard": "Prepare one share of the work, e.g. 3/16; combine shares with --merge.",
    "workers": "Number of processes; 0 means one per core.",
    "allow_missing": "Skip unreadable sources.",
    "allow_empty": "Continue when a source contributes nothing.",
    "portion": "Characters per shard, after which an interrupted run can resume.",
}
"""What each field means: the help of `coref-automl prepare mlm`, `entity` and `combined`; the command is the mode."""
