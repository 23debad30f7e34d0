"""What is known before a search. In: the shipped table, and the user's own. Out: entries for a family and a size.

The user's file grows with every study that shows a gain (`remember`); it lies in the user's data folder, or where
COREF_AUTOML_PORTFOLIO says.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from coref_automl.config import from_mapping, read_yaml
from coref_automl.errors import InputError, RecipeError
from coref_automl.locks import locked
from coref_automl.records import Record
from coref_automl.store import write_text

VERSION = 1
VARIABLE = "COREF_AUTOML_PORTFOLIO"
SHIPPED = Path(__file__).parent.parent / "assets" / "portfolio.yaml"


@dataclass(frozen=True, slots=True)
class KnownSettings(Record):
    """Settings in the words of a training recipe, where they differ from its defaults. Without `families` they are for all."""

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
    """The user's own table."""
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return Path(os.environ.get(VARIABLE) or data / "coref-automl" / "portfolio.yaml")


def read_portfolio(path: Path) -> Portfolio:
    """A table; one that is damaged or of another version is an error that says what to do, and stays as it is."""
    remedy = "move it away, or pass --no-portfolio"
    try:
        held = read_yaml(path)
        if held.get("version") != VERSION:
            raise InputError(f"{path} is a portfolio of version {held.get('version')}, and this is {VERSION}; {remedy}.")
        return from_mapping(Portfolio, held, str(path))
    except RecipeError as error:
        raise InputError(f"{str(error).rstrip('.')}; {remedy}.") from error


def known_entries(family: str, hidden: int) -> list[KnownSettings]:
    """The shipped entries that suit a model, then the user's own, latest first."""
    own = read_portfolio(own_path()).entries[::-1] if own_path().is_file() else ()
    return [entry for entry in (*read_portfolio(SHIPPED).entries, *own) if entry.suits(family, hidden)]


def remember(entry: KnownSettings) -> Path | None:
    """Add an entry to the user's own table; None where its settings are known already."""
    path = own_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path.parent):
        held = read_portfolio(path) if path.is_file() else Portfolio(VERSION, ())
        if any(other.settings == entry.settings for other in (*held.entries, *read_portfolio(SHIPPED).entries)):
            return None
        grown = replace(held, entries=(*held.entries, entry))
        write_text(path, yaml.safe_dump(grown.to_json(), allow_unicode=True, sort_keys=False))
    return path
