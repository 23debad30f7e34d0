"""The demo's plan: as many items as its verdict needs, each of which can be hit."""

from __future__ import annotations

from pathlib import Path

import pytest

from coref_automl.evaluation.prepare import prepare_eval
from coref_automl.evaluation.recipe import EvalRecipe
from coref_automl.extras.coreference.predict import coreference
from coref_automl.extras.study.adapt import DEMO_TEXT, demo_recipe
from coref_automl.models.load import load_tokenizer
from coref_automl.models.vocabulary import entry_words
from coref_automl.statistics.planning import items_needed


@pytest.mark.journey
def test_the_demo_asks_as_many_answerable_items_as_its_verdict_needs(tmp_path: Path) -> None:
    recipe = demo_recipe()
    stage = recipe.evaluate
    assert recipe.texts
    built = prepare_eval(
        EvalRecipe(
            models=(recipe.model,),
            tasks=("real",),
            sources=recipe.texts.sources,
            limit=recipe.texts.limit,
            per_source=stage.per_source,
            per_document=stage.per_document,
            single_entry=stage.single_entry,
        ),
        tmp_path / "set",
    )
    items = built.items["real"]
    needed = items_needed(0.081, 0.18)  # 80% power for the least gain, which Holm tests last: see demo.yaml
    assert needed <= len(items)
    assert {item.answer for item in items} <= set(entry_words(load_tokenizer(recipe.model)))
    assert recipe.train["save_every"] == 0  # one checkpoint per run: nothing to choose, all documents judge


def test_the_demo_ends_with_the_chains_of_a_text() -> None:
    found = coreference(DEMO_TEXT)
    assert found.strings == [["영수", "영수", "그"], ["어머니", "어머니", "어머니"]]
    assert "\x1b[" in found.lines(colour=True)[0]
