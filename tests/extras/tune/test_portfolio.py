"""What is known before a search: the shipped table, and the user's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from coref_automl.base.errors import InputError
from coref_automl.extras.tune.portfolio import SHIPPED, KnownSettings, known_entries, read_portfolio, remember
from coref_automl.extras.tune.recipe import TuneRecipe
from coref_automl.extras.tune.run import run_study
from coref_automl.extras.tune.space import check_settings

MINE = KnownSettings("mine", {"objective": "entity", "learning_rate": 0.0002}, "a study", ("modernbert",), 320, {"real1": 1.0})


def test_every_shipped_entry_is_a_recipe_that_training_accepts_and_has_a_source() -> None:
    entries = read_portfolio(SHIPPED).entries
    assert {"entity", "combined", "copy+link"} <= {entry.settings["objective"] for entry in entries}
    for entry in entries:
        check_settings(entry.settings)
        assert entry.source


def test_entries_are_for_the_families_and_sizes_they_were_measured_with() -> None:
    small = {entry.name for entry in known_entries("modernbert", 320)}
    large = {entry.name for entry in known_entries("deberta-v2", 768)}
    assert large < small
    assert all(not entry.families for entry in known_entries("deberta-v2", 768))


def test_a_winner_is_remembered_once_and_comes_up_for_its_like(own_portfolio: Path) -> None:
    assert remember(MINE) == own_portfolio
    assert remember(MINE) is None
    assert MINE in known_entries("modernbert", 320)
    assert MINE not in known_entries("modernbert", 768)
    assert MINE not in known_entries("bert", 320)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("version: 7\nentries: []\n", "is a portfolio of version 7, and this is 1; move it away, or pass --no-portfolio"),
        ("version: 1\nentries: [{name: x}]\n", "move it away, or pass --no-portfolio"),
        ("{{{", "is not YAML"),
    ],
)
def test_a_portfolio_that_cannot_be_read_is_one_sentence_and_stays_as_it_is(
    own_portfolio: Path, recipe: Callable[..., TuneRecipe], text: str, message: str
) -> None:
    own_portfolio.write_text(text, "utf-8")
    wanted = recipe()
    with pytest.raises(InputError, match=message):
        run_study(wanted)
    with pytest.raises(InputError, match=message):
        remember(MINE)
    assert own_portfolio.read_text("utf-8") == text
    assert not Path(wanted.out).exists()
