"""What is known before a search. In: lengths, families, data. Out: ranges to search, and settings to begin with.

Portfolio: a shipped table, and the user's own, to which every study that shows a gain adds its winner (`remember`); it lies in
the user's data folder, or where COREF_AUTOML_PORTFOLIO says. Spaces: for recipes without one. Their ranges go back to the search
behind the published runs; length and family narrow or shift them, and dimensions without effect are left out.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from coref_automl.base.config import choose, from_mapping, read_yaml
from coref_automl.base.errors import InputError, RecipeError
from coref_automl.base.locks import locked
from coref_automl.base.records import Record
from coref_automl.base.store import write_text
from coref_automl.corpus.dataset import PackedDataset
from coref_automl.extras.tune.problem import shape_of, whole_space
from coref_automl.extras.tune.recipe import TuneRecipe
from coref_automl.extras.tune.space import COUNTS_UNDER, Space
from coref_automl.models.build import NEW, SHAPES
from coref_automl.models.families import PRE_NORM
from coref_automl.training.recipe import FROM_SCRATCH, recommended

VERSION = 1
VARIABLE = "COREF_AUTOML_PORTFOLIO"
SHIPPED = Path(__file__).parents[2] / "assets" / "portfolio.yaml"


@dataclass(frozen=True, slots=True)
class KnownSettings(Record):
    """Settings of a training recipe that differ from its defaults; for all families if `families` is empty."""

    name: str
    settings: dict[str, Any]
    source: str
    families: tuple[str, ...] = ()
    up_to_hidden: int | None = None
    gain: dict[str, float] = field(default_factory=dict)

    def suits(self, family: str, hidden: int) -> bool:
        return (not self.families or family in self.families) and (self.up_to_hidden is None or hidden <= self.up_to_hidden)


@dataclass(frozen=True, slots=True)
class Portfolio(Record):
    version: int
    entries: tuple[KnownSettings, ...]


def own_path() -> Path:
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return Path(os.environ.get(VARIABLE) or data / "coref-automl" / "portfolio.yaml")


def read_portfolio(path: Path) -> Portfolio:
    """Read a table; a damaged one, or one of another version, is left as it is and refused."""
    remedy = "move it away, or pass --no-portfolio"
    try:
        stored = read_yaml(path)
        if stored.get("version") != VERSION:
            raise InputError(f"{path} is a portfolio of version {stored.get('version')}, and this is {VERSION}; {remedy}.")
        return from_mapping(Portfolio, stored, str(path))
    except RecipeError as error:
        raise InputError(f"{str(error).rstrip('.')}; {remedy}.") from error


def known_entries(family: str, hidden: int) -> list[KnownSettings]:
    """Return the shipped entries that suit a model, then the user's own, latest first."""
    own = read_portfolio(own_path()).entries[::-1] if own_path().is_file() else ()
    return [entry for entry in (*read_portfolio(SHIPPED).entries, *own) if entry.suits(family, hidden)]


def remember(entry: KnownSettings) -> Path | None:
    """Add an entry to the user's own table, and return its path; None if its settings are known already."""
    path = own_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path.parent):
        own = read_portfolio(path) if path.is_file() else Portfolio(VERSION, ())
        if any(known.settings == entry.settings for known in (*own.entries, *read_portfolio(SHIPPED).entries)):
            return None
        grown = replace(own, entries=(*own.entries, entry))
        write_text(path, yaml.safe_dump(grown.to_json(), allow_unicode=True, sort_keys=False))
    return path


def settle_space(recipe: TuneRecipe, datasets: Mapping[str, PackedDataset], *, scratch: bool) -> Space:
    """Return the recipe's own space, or the default for its lengths and families, with models or datasets if several."""
    shapes = {model: choose(model.removeprefix(NEW), SHAPES, "shape") for model in recipe.models if scratch}
    families = [shapes[model].family if scratch else shape_of(model)[0] for model in recipe.models]
    if "policy" in (recipe.space or {}) and "deberta-v2" not in families:
        raise RecipeError(f"space: policy changes nothing in {families[0]}, only how DeBERTa-v2 is lengthened; leave it out.")

    def default() -> dict[str, Any]:
        opened, minutes = list(datasets.values()), recipe.max_minutes is not None
        lengths, rows = [dataset.seq_len for dataset in opened], min(map(len, opened))
        chains = all(len(dataset.mentions) for dataset in opened)
        space = masked_space(lengths=lengths, rows=rows, families=families, scratch=scratch, chains=chains, minutes=minutes)
        return space | order_space(opened, minutes=minutes)

    return whole_space(recipe, default, {"model": recipe.models, "dataset": tuple(datasets)})


_LONG = 1024


def order_space(datasets: Sequence[PackedDataset], *, minutes: bool) -> dict[str, Any]:
    """Vary how often and when rows are read: a large source twice as often; in long rows, short documents first."""
    sources = [name for name in datasets[0].sources if all(name in dataset.sources for dataset in datasets)]
    mix = {"mix": ["", *(f"{name}=2" for name in sources[:3])]} if len(sources) > 1 else {}
    is_long = max(dataset.seq_len for dataset in datasets) >= _LONG
    return mix | ({"curriculum": [0.0, 0.5]} if is_long and not minutes else {})


def masked_space(
    *, lengths: Sequence[int], rows: int, families: Sequence[str], scratch: bool, chains: bool, minutes: bool
) -> dict[str, Any]:
    """Return the default space of continued pretraining or, with `scratch`, of training from random weights.

    `rows` are those of the smallest dataset: a batch of all of them leaves one step per epoch, and a larger one changes nothing.
    """
    longest = max(lengths)
    batch = min((FROM_SCRATCH if scratch else recommended(longest)).batch, 1 << max(1, max(4, rows // 4).bit_length() - 1))
    space: dict[str, Any] = {"objective": ["mlm", "entity", "combined", "copy+link"]} if chains else {}
    space |= {
        "learning_rate": {**_rates(longest, families, scratch), "log": True}, "weight_decay": {"low": 0.0, "high": 0.1},
        "warmup": {"low": 0.0, "high": 0.2}, "min_prob": {"low": 0.05, "high": 0.2 if scratch else 0.15},
        "max_prob": {"low": 0.2, "high": 0.35 if longest <= 512 else 0.5},
        "rates": ["length", "drawn", *([] if minutes else ["falling"])],
        "batch": sorted({max(1, batch // 4), batch // 2, batch, batch * 2}),
    }  # fmt: skip
    if not scratch:
        space["layer_decay"] = {"low": 0.85, "high": 1.0}
    if chains:
        space |= {
            "entity_rate": {"low": 0.15, "high": 0.6}, "background": {"low": 0.02, "high": 0.15},
            "ratio": {"low": 0.2, "high": 0.8}, "far_weight": {"low": 0.3, "high": 4.0, "log": True},
            "copy_weight": {"low": 0.1, "high": 1.5, "log": True}, "link_weight": {"low": 0.1, "high": 1.5, "log": True},
        }  # fmt: skip
        space = {name: _where_it_counts(name, entry, space["objective"]) for name, entry in space.items()}
    if minutes and longest >= _LONG:
        space["gradient_checkpointing"] = [False, True]  # changes how far a budget in minutes goes, and nothing else
    return space


def _where_it_counts(name: str, entry: Any, objectives: Sequence[str]) -> Any:
    """Write out the condition of an entry, so that it also holds where the objective is fixed."""
    _, effective = COUNTS_UNDER.get(name, ("", tuple(objectives)))
    affected = [objective for objective in objectives if objective in effective]
    if len(affected) == len(objectives):
        return entry
    return {**({"choices": entry} if isinstance(entry, list) else entry), "when": {"objective": affected}}


def _rates(longest: int, families: Sequence[str], scratch: bool) -> dict[str, float]:
    gentle = any(name not in PRE_NORM for name in families)
    if scratch:
        return {"low": 2e-5, "high": 4e-4} if gentle else {"low": 1e-4, "high": 4e-3}
    high = 2e-4 if gentle else 1e-3
    return {"low": 5e-6, "high": high / 2 if longest > 1536 else high}


def relation_space(hidden: int) -> dict[str, Any]:
    """Return the default space of relation extraction; small encoders need a larger learning rate."""
    small = hidden < 512
    return {
        "learning_rate": {"low": 5e-5 if small else 1e-5, "high": 1e-3 if small else 1e-4, "log": True},
        "weight_decay": {"low": 0.0, "high": 0.1}, "warmup": {"low": 0.0, "high": 0.2}, "layer_decay": {"low": 0.75, "high": 1.0},
        "dropout": {"low": 0.0, "high": 0.3}, "batch_size": [16, 32, 64], "scheme": ["typed", "typed-punct", "punct"],
        "label_smoothing": {"low": 0.0, "high": 0.1},
    }  # fmt: skip
