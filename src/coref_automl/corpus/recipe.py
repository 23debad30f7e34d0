"""The recipe of a dataset. In: options or YAML. Out: a frozen recipe, and the settings that decide the bytes of a dataset."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from typing import Annotated, Any, Literal

from coref_automl.base.config import Setting, free_fields, to_mapping, typed
from coref_automl.base.errors import RecipeError
from coref_automl.base.korean import kiwi_version
from coref_automl.base.pool import Engine
from coref_automl.corpus.clean import SHARE, Filters
from coref_automl.models.families import LONGEST

Mode = Literal["mlm", "entity", "combined"]
HeldOutShare = Annotated[
    float,
    Setting(
        "Fraction of each source held out for evaluation (at least 310 documents, at most a third); 0 holds out none.", 0, 0.5
    ),
]


@dataclass(frozen=True, slots=True)
class Texts:
    """Texts that `study`, `adapt` and `tune` prepare if no dataset is given. `limit` is documents per file."""

    sources: tuple[str, ...]
    limit: int | None = None
    near_duplicates: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareRecipe:
    """`limit` is rows per file. `chain_cap` bounds the mentions of one form in a piece. `portion` is the characters of a shard,
    and with it the size of a file's spans and the number of signatures per call.
    """

    mode: Mode
    sources: Annotated[
        tuple[str, ...],
        Setting("Named source (see: coref-automl sources), local:PATH, a URL or a quoted glob; repeatable.", flags=("--source",)),
    ]
    model: Annotated[str, Setting("Model whose tokenizer is used: hub id, folder or bundled: name.")]
    seq_len: Annotated[int, Setting("Tokens per block.", 16, LONGEST)] = 1536
    field: Annotated[str | None, Setting("Field with the text, if not the source's usual one.")] = None
    eval_sets: Annotated[tuple[str, ...], Setting("Evaluation set to leave out; repeatable.", flags=("--eval-set",))] = ()
    holdout: HeldOutShare = SHARE
    only_names: Annotated[bool, Setting("Build chains of proper nouns only.")] = False
    chain_cap: Annotated[int, Setting("Maximum number of mentions per form in a piece.", 2)] = 8
    min_characters: Annotated[int, Setting("Drop documents shorter than this.")] = 200
    min_hangul: Annotated[float, Setting("Drop documents with a smaller share of Hangul among their letters.", 0, 1)] = 0.5
    near_duplicates: Annotated[
        bool, Setting("Drop near-duplicates too, or exact duplicates only.", flags=("--near-duplicates/--exact-only",))
    ] = True
    similarity: Annotated[float, Setting("Jaccard similarity from which two texts are near-duplicates.", high=1, above=0)] = 0.8
    limit: Annotated[int | None, Setting("Read at most this many rows of each file or hub source.", 1)] = None
    workers: Annotated[int, Setting("Number of processes; 0 means one per core.", 0, free=True)] = 0
    engine: Annotated[Engine, Setting("local, or ray: shards on a cluster that sees this folder.", free=True)] = "local"
    allow_missing: Annotated[bool, Setting("Skip unreadable sources, and shards that kill every worker.", free=True)] = False
    allow_empty: Annotated[bool, Setting("Continue when a source contributes nothing.", free=True)] = False
    portion: Annotated[int, Setting("Characters per shard: fewer need less memory per worker.", 1, free=True)] = 4_000_000

    def __post_init__(self) -> None:
        typed(self)
        if not self.sources:
            raise RecipeError("sources needs at least one entry; see: coref-automl sources")

    def filters(self) -> Filters:
        return Filters(self.min_characters, self.min_hangul)

    def settings(self) -> dict[str, Any]:
        """The settings that decide the bytes of the dataset."""
        return {key: value for key, value in to_mapping(self).items() if key not in free_fields(PrepareRecipe)}

    def versions(self) -> dict[str, str]:
        """The versions of the packages that make the dataset."""
        names = ["coref-automl", "numpy", "tokenizers", "transformers", *(["rensa"] if self.near_duplicates else [])]
        return {name: version(name) for name in names} | ({"kiwi": kiwi_version()} if self.mode != "mlm" else {})
