"""A tokenizer from sources: clean texts, no held-out document, nothing overwritten."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coref_automl.base.errors import FolderError, RecipeError, SourceError
from coref_automl.extras.tokenizer.recipe import TokenizerRecipe, build_tokenizer
from coref_automl.models.load import load_tokenizer
from tests.corpus.held import held_out


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Forty documents; each has a letter string of its own, so that what a tokenizer has seen can be told."""
    path = tmp_path / "corpus.jsonl"
    rows = []
    for number in range(40):
        own = chr(0x3400 + number)
        text = f"도서관은 강변에 있다. 시민이 도서관을 찾는다. {own} " * 12
        rows.append({"id": f"d-{number}", "source": "corpus", "text": text})
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
    return path


def test_held_out_documents_are_never_seen(corpus: Path, tmp_path: Path) -> None:
    recipe = TokenizerRecipe((f"local:{corpus}",), vocab_size=1_000, nouns=False, holdout=0.5)
    card = build_tokenizer(recipe, tmp_path / "tokenizer")
    hidden = held_out([f"d-{number}" for number in range(40)], share=0.5)
    entries = load_tokenizer(str(tmp_path / "tokenizer")).get_vocab()
    seen = {f"d-{number}" for number in range(40) if chr(0x3400 + number) in entries}
    assert seen.isdisjoint(hidden)
    assert len(seen) == card.documents == 40 - len(hidden)


def test_a_sample_is_drawn_from_every_file_and_is_the_same_in_any_order(corpus: Path, tmp_path: Path) -> None:
    rows = corpus.read_text("utf-8").splitlines(keepends=True)
    (tmp_path / "turned.jsonl").write_text("".join(reversed(rows)), "utf-8")
    least = 3 * max(len(json.loads(row)["text"]) for row in rows)
    names = {"one": (corpus,), "turned": (tmp_path / "turned.jsonl",), "both": (corpus, tmp_path / "turned.jsonl")}
    cards = {}
    for name, files in names.items():
        sources = tuple(f"local:{file}" for file in files)
        recipe = TokenizerRecipe(sources, vocab_size=1_000, nouns=False, characters=least)
        cards[name] = build_tokenizer(recipe, tmp_path / name)
    assert cards["one"].characters <= least
    assert cards["one"].fingerprint == cards["turned"].fingerprint
    assert cards["both"].documents == 2 * cards["one"].documents > 0
    with pytest.raises(RecipeError, match="characters should be"):
        build_tokenizer(TokenizerRecipe((f"local:{corpus}",), characters=0), tmp_path / "none")
    with pytest.raises(SourceError, match="raise --characters"):
        build_tokenizer(TokenizerRecipe((f"local:{corpus}",), characters=10), tmp_path / "none")


def test_a_finished_tokenizer_is_not_overwritten(corpus: Path, tmp_path: Path) -> None:
    recipe = TokenizerRecipe((f"local:{corpus}",), vocab_size=1_000, nouns=False)
    build_tokenizer(recipe, tmp_path / "tokenizer")
    with pytest.raises(FolderError, match="finished"):
        build_tokenizer(recipe, tmp_path / "tokenizer")


def test_a_vocabulary_too_small_for_an_alphabet_is_refused(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="1,000"):
        build_tokenizer(TokenizerRecipe((f"local:{corpus}",), vocab_size=10), tmp_path / "tokenizer")
