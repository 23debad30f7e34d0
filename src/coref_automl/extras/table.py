"""The extras as text: what one may not need, and what stands on what.

In: nothing; this module imports no other. Out: EXTRAS, one entry per folder beside this file. Only `cli`, `api`, `tune` and
the package itself read it, and hand down what a room below needs (`base/handed.py`). Remove an extra's folder and its entry
here, and all that does not build on it works as before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Extra:
    """One extra. A module is named within its folder."""

    commands: Mapping[str, str] = field(default_factory=dict)  # of its cli.py, each with its line in the list
    names: Mapping[str, str] = field(default_factory=dict)  # modules, and their names in `import coref_automl`
    offers: Mapping[str, str] = field(default_factory=dict)  # what rooms below may ask for, as module:name
    check: bool = False  # its check.py has a CHECK, which is called like the extra
    builds_on: tuple[str, ...] = ()  # other extras


EXTRAS: dict[str, Extra] = {
    "pages": Extra(
        commands={"report": "Write a report of evaluations: one HTML page, Markdown, tables."},
        offers={"report": "checkpoint_report:report", "forest": "charts:draw_forest"},
    ),
    "relation": Extra(
        commands={"re": "Relation extraction on KLUE-RE: explore, train, predict, a grid."},
        names={
            "api": "predict_relations", "recipe": "RelationRecipe", "train": "relation train_relation",
        },
        check=True,
        builds_on=("pages",),
    ),
    "coreference": Extra(
        commands={"coref": "Coreference: explore, train, evaluate, predict."},
        names={
            "predict": "Resolved coreference", "recipe": "CoreferenceRecipe", "train": "train_coreference",
        },
        check=True,
    ),
    "study": Extra(
        commands={
            "demo": "Run the full pipeline on bundled data.",
            "adapt": "Run the full pipeline on your model and text.",
            "study": "Compare training methods over seeds, from one base.",
        },
        names={"api": "adapt"},
        builds_on=("pages", "coreference"),
    ),
    "tune": Extra(
        commands={"tune": "Search for the best settings and confirm them with new seeds."},
        offers={"with_tuned": "adapted:with_tuned"},
        builds_on=("study", "relation", "pages"),
    ),
    "tokenizer": Extra(
        commands={"tokenizer": "Learn a tokenizer, or inspect tokenizers side by side."},
        builds_on=("pages", "coreference", "relation"),
    ),
    "publish": Extra(
        commands={"publish": "Put a checkpoint on the hub, with a card that fills itself."},
    ),
    "studio": Extra(
        commands={"studio": "Look at runs, verdicts and single items in a browser."},
        builds_on=("pages", "coreference", "relation"),
    ),
}  # fmt: skip
"""In the order of their questions and of their lines in a list of extras."""


def commands() -> dict[str, tuple[str, str]]:
    """Every command of an extra: its module, and its line in the list."""
    entries = ((extra, verb, line) for extra, entry in EXTRAS.items() for verb, line in entry.commands.items())
    return {verb: (f"{__package__}.{extra}.cli", line) for extra, verb, line in entries}


def names() -> dict[str, Callable[[], Any]]:
    """The public names of extras, each with the function that imports it."""
    places = ((extra, place, words) for extra, entry in EXTRAS.items() for place, words in entry.names.items())
    return {name: partial(_load, extra, place, name) for extra, place, words in places for name in words.split()}


def offers() -> dict[str, Callable[[], Any]]:
    places = ((extra, name, place) for extra, entry in EXTRAS.items() for name, place in entry.offers.items())
    return {name: partial(_load, extra, *place.split(":")) for extra, name, place in places}


def checks() -> dict[str, Callable[[], Any]]:
    return {extra: partial(_load, extra, "check", "CHECK") for extra, entry in EXTRAS.items() if entry.check}


def _load(extra: str, module: str, name: str) -> Any:
    return getattr(import_module(f"{__package__}.{extra}.{module}"), name)
