"""Invented annotated tales, a tiny encoder, and one run of the product's own training on them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from coref_automl.extras.coreference.documents import CorefDocument, Mention, in_order, write_documents
from coref_automl.extras.coreference.recipe import CoreferenceRecipe
from coref_automl.extras.coreference.train import train_coreference
from coref_automl.models.build import build_masked_lm, train_tokenizer

NAMES = ("민수", "영희", "철수", "순이", "길동", "정아")
PEOPLE = ("노인", "아이", "선생", "농부")


def tale(number: int) -> CorefDocument:
    """`민수는 노인을 만났다. 그는 ...`: a name, a noun and pronouns; particles are not part of a mention."""
    name, person = NAMES[number % 6], PEOPLE[number % 4]
    pieces: list[tuple[str, str | None]] = []
    for turn in range(3):
        pieces += [(name, "A"), ("는 ", None), (person, "B"), ("을 만났다.\n", None), ("그", "A"), ("는 ", None)]
        pieces += [("그 " + person, "B"), ("에게 물었다.\n", None)]
        if turn == 1:
            pieces += [("개", "C"), ("가 짖었다.\n", None)]
    text, mentions = "", list[Mention]()
    for piece, entity in pieces:
        if entity:
            mentions.append(Mention(len(text), len(text) + len(piece), entity))
        text += piece
    return CorefDocument(f"tale-{number}", text.rstrip("\n"), in_order(mentions))


@pytest.fixture(scope="session")
def tales() -> tuple[CorefDocument, ...]:
    return tuple(tale(number) for number in range(12))


@pytest.fixture(scope="session")
def tales_file(tmp_path_factory: pytest.TempPathFactory, tales: tuple[CorefDocument, ...]) -> Path:
    path = tmp_path_factory.mktemp("tales") / "tales.jsonl"
    write_documents(path, tales)
    return path


@pytest.fixture(scope="session")
def encoder_folder(tmp_path_factory: pytest.TempPathFactory, tales: tuple[CorefDocument, ...]) -> Path:
    """A tiny untrained encoder whose tokenizer glues particles to words, as Korean tokenizers do."""
    folder = tmp_path_factory.mktemp("encoder")
    tokenizer = train_tokenizer([tale.text for tale in tales] * 2, vocab_size=160)
    build_masked_lm("tiny", tokenizer, seq_len=128).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def recipe(data: Path, model: Path | str, out: Path, **changes: Any) -> CoreferenceRecipe:
    settings: dict[str, Any] = {
        "epochs": 3, "size": 16, "window": 48, "segment": 96, "batch_tokens": 96, "head_rate": 3e-3, "learning_rate": 3e-3,
        "device": "cpu", "holdout": 0.2, "dropout": 0.0,
    }  # fmt: skip
    return CoreferenceRecipe(model=str(model), data=str(data), out=str(out), **{**settings, **changes})


@pytest.fixture(scope="session")
def split_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("split") / "split.json"
    sides = {"train": range(8), "dev": range(8, 10), "test": range(10, 12)}
    path.write_text(json.dumps({side: [f"tale-{n}" for n in numbers] for side, numbers in sides.items()}), "utf-8")
    return path


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory, tales_file: Path, encoder_folder: Path, split_file: Path) -> Path:
    """A finished run of one seed: the whole encoder, twelve epochs."""
    out = tmp_path_factory.mktemp("runs") / "whole"
    train_coreference(recipe(tales_file, encoder_folder, out, split=str(split_file), epochs=12))
    return out
