"""Spaces for those who give none. In: lengths, families, data. Out: ranges around the recommended settings.

The first ranges were those of the search behind the published runs; length and family narrow or move them, and what would do
nothing is left out (noun chains that are not there, memory that nobody is short of).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from coref_automl.config import choose
from coref_automl.corpus.dataset import PackedDataset
from coref_automl.errors import RecipeError
from coref_automl.models.families import PRE_NORM
from coref_automl.training.recipe import FROM_SCRATCH, recommended
from coref_automl.tuning.problem import whole_space
from coref_automl.tuning.recipe import TuneRecipe
from coref_automl.tuning.space import COUNTS_UNDER, Space


def settle_space(recipe: TuneRecipe, datasets: Mapping[str, PackedDataset], *, scratch: bool) -> Space:
    """The recipe's own space, or the one for its lengths and families; several models or datasets are dimensions of it."""
    from coref_automl.models.build import NEW, SHAPES
    from coref_automl.models.model_files import config_of, folder_of

    families = [
        choose(model.removeprefix(NEW), SHAPES, "shape").family if scratch else config_of(folder_of(model))["model_type"]
        for model in recipe.models
    ]
    if "policy" in (recipe.space or {}) and "deberta-v2" not in families:
        raise RecipeError(f"space: policy changes nothing in {families[0]}, only how DeBERTa-v2 is lengthened; leave it out.")

    def default() -> dict[str, Any]:
        return masked_space(
            lengths=[dataset.seq_len for dataset in datasets.values()],
            rows=min(len(dataset) for dataset in datasets.values()),
            families=families,
            scratch=scratch,
            chains=all(len(dataset.mentions) for dataset in datasets.values()),
            minutes=recipe.max_minutes is not None,
        )

    return whole_space(recipe, default, {"model": recipe.models, "dataset": tuple(datasets)})


_LONG = 1024


def masked_space(
    *, lengths: Sequence[int], rows: int, families: Sequence[str], scratch: bool, chains: bool, minutes: bool
) -> dict[str, Any]:
    """What to vary in continued pretraining (or, with `scratch`, in training from random weights).

    `rows` are those of the smallest dataset: a batch of all of them leaves one step per epoch, and a larger one changes nothing.
    """
    longest = max(lengths)
    batch = min((FROM_SCRATCH if scratch else recommended(longest)).batch, 1 << max(1, max(4, rows // 4).bit_length() - 1))
    space: dict[str, Any] = {"objective": ["mlm", "entity", "combined", "copy+link"]} if chains else {}
    space |= {
        "learning_rate": {**_rates(longest, families, scratch), "log": True},
        "weight_decay": {"low": 0.0, "high": 0.1},
        "warmup": {"low": 0.0, "high": 0.2},
        "min_prob": {"low": 0.05, "high": 0.2 if scratch else 0.15},
        "max_prob": {"low": 0.2, "high": 0.35 if longest <= 512 else 0.5},
        "rates": ["length", "drawn", *([] if minutes else ["falling"])],
        "batch": sorted({max(1, batch // 4), batch // 2, batch, batch * 2}),
    }
    if not scratch:
        space["layer_decay"] = {"low": 0.85, "high": 1.0}
    if chains:
        space |= {
            "entity_rate": {"low": 0.15, "high": 0.6},
            "background": {"low": 0.02, "high": 0.15},
            "ratio": {"low": 0.2, "high": 0.8},
            "far_weight": {"low": 0.3, "high": 4.0, "log": True},
            "copy_weight": {"low": 0.1, "high": 1.5, "log": True},
            "link_weight": {"low": 0.1, "high": 1.5, "log": True},
        }
        space = {name: _where_it_counts(name, entry, space["objective"]) for name, entry in space.items()}
    if minutes and longest >= _LONG:
        space["gradient_checkpointing"] = [False, True]  # changes how far a budget in minutes goes, and nothing else
    return space


def _where_it_counts(name: str, entry: Any, objectives: Sequence[str]) -> Any:
    """An entry with its condition written out: it holds where the objective is fixed, too."""
    _, wanted = COUNTS_UNDER.get(name, ("", tuple(objectives)))
    counts = [objective for objective in objectives if objective in wanted]
    if len(counts) == len(objectives):
        return entry
    return {**({"choices": entry} if isinstance(entry, list) else entry), "when": {"objective": counts}}


def _rates(longest: int, families: Sequence[str], scratch: bool) -> dict[str, float]:
    gentle = any(name not in PRE_NORM for name in families)
    if scratch:
        return {"low": 2e-5, "high": 4e-4} if gentle else {"low": 1e-4, "high": 4e-3}
    high = 2e-4 if gentle else 1e-3
    return {"low": 5e-6, "high": high / 2 if longest > 1536 else high}


def relation_space(hidden: int) -> dict[str, Any]:
    """What to vary in relation extraction; small encoders want a larger rate."""
    small = hidden < 512
    return {
        "learning_rate": {"low": 5e-5 if small else 1e-5, "high": 1e-3 if small else 1e-4, "log": True},
        "weight_decay": {"low": 0.0, "high": 0.1},
        "warmup": {"low": 0.0, "high": 0.2},
        "layer_decay": {"low": 0.75, "high": 1.0},
        "dropout": {"low": 0.0, "high": 0.3},
        "batch_size": [16, 32, 64],
        "scheme": ["typed", "typed-punct", "punct"],
        "label_smoothing": {"low": 0.0, "high": 0.1},
    }
