"""A tiny world to tune in: a language of a few words, blocks to learn it from, and a frozen evaluation set in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coref_automl.extras.tune.recipe import TuneRecipe

NOUNS = ("서울", "부산", "한강", "기차", "시장", "학교", "바다", "나무")
OTHERS = ("새", "큰", "간다", "온다", "있다", "그리고", "아주", "오늘")
SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
LENGTH = 16


@dataclass(frozen=True)
class World:
    """Folders of a tokenizer, a dataset, an evaluation set, and one with LAMBADA items of a few titles beside."""

    tokenizer: Path
    dataset: Path
    evalset: Path
    two_tasks: Path

    def recipe(self, out: Path, **changes: Any) -> TuneRecipe:
        """A study of a tiny model from random weights; every field can be changed."""
        values: dict[str, Any] = {
            "models": ("new:tiny",),
            "out": str(out),
            "datasets": (str(self.dataset),),
            "eval_set": str(self.evalset),
            "settings": {"tokenizer": str(self.tokenizer), "log_every": 1},
            "space": {"learning_rate": {"low": 1e-4, "high": 1e-2, "log": True}, "objective": ["mlm", "entity"], "batch": [4, 8]},
            "epochs": 2,
            "trials": 3,
            "finalists": 1,
            "seeds": 2,
            "device": "cpu",
            "lang": "en",
        }
        values |= changes
        if values["space"] is not None and "batch" not in values["space"]:
            values["settings"] = {"batch": 4, **values["settings"]}  # as many steps as a trial has quarters, and more
        return TuneRecipe(**values)


def _texts(count: int, seed: int) -> list[str]:
    """A noun three times among other words; the first nouns of the list are the more frequent ones."""
    rng = np.random.default_rng(seed)
    weights = np.arange(len(NOUNS), 0, -1) ** 2.0
    out = []
    for _ in range(count):
        noun = NOUNS[rng.choice(len(NOUNS), p=weights / weights.sum())]
        words = [noun if at in (1, 5, 9) else OTHERS[rng.integers(len(OTHERS))] for at in range(12)]
        out.append(" ".join(words))
    return out


@pytest.fixture(autouse=True)
def own_portfolio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own portfolio, in the folder of the test."""
    monkeypatch.setenv("COREF_AUTOML_PORTFOLIO", str(tmp_path / "portfolio.yaml"))
    return tmp_path / "portfolio.yaml"


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    from tokenizers import Tokenizer
    from tokenizers.models import WordPiece
    from tokenizers.pre_tokenizers import BertPreTokenizer
    from transformers import PreTrainedTokenizerFast

    from coref_automl.base.records import ClozeItem, Document
    from coref_automl.corpus.dataset import write_dataset
    from coref_automl.evaluation.answers import save_table
    from coref_automl.evaluation.evalset import freeze
    from coref_automl.models.load import load_tokenizer, tokenizer_fingerprint

    home = tmp_path_factory.mktemp("world")
    entries = [*SPECIALS, *NOUNS, *OTHERS]
    tokenizer = Tokenizer(WordPiece({entry: number for number, entry in enumerate(entries)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = BertPreTokenizer()
    names = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **dict(zip(names, SPECIALS, strict=True)))
    fast.save_pretrained(str(home / "tokenizer"))
    tokenizer_print = tokenizer_fingerprint(load_tokenizer(str(home / "tokenizer")))

    texts = _texts(32, seed=1)
    blocks = np.zeros((len(texts), LENGTH), np.uint16)
    mentions = []
    for row, text in enumerate(texts):
        ids = [2, *(entries.index(word) for word in text.split()), 3]
        blocks[row, : len(ids)] = ids
        mentions += [(row, at + 1, at + 2, 0) for at in (1, 5, 9)]
    write_dataset(
        home / "blocks",
        [(blocks, np.array([(row, 0, 14, row) for row in range(len(texts))], np.int32), np.array(mentions, np.int32))],
        seq_len=LENGTH,
        dtype=np.uint16,
        manifest=lambda _: {
            "mode": "combined",
            "pad_id": 0,
            "tokenizer": "tiny",
            "tokenizer_fingerprint": tokenizer_print,
            "sources": [{"name": "world", "in": len(texts), "kept": len(texts), "dropped": {}, "characters": 0, "tokens": 0}],
            "tokens": 14 * len(texts),
            "padding_share": 0.0,
            "mentions": len(mentions),
            "chains": len(texts),
            "settings": {},
        },
    )

    documents, items = [], []
    for number, text in enumerate(_texts(40, seed=2)):
        documents.append((Document(f"d{number}", "world", text), NOUNS))
        words = text.split()
        start = len(" ".join(words[:5])) + 1
        first = len(words[0]) + 1
        items.append(
            ClozeItem(
                id=f"i{number:03d}", task="real", document=f"d{number}", cluster=f"d{number}", source="world", start=start,
                end=start + len(words[5]), answer=words[5], tag="NNG",
                antecedent=(first, first + len(words[1])), distance=3,
            )
        )  # fmt: skip
    table = np.array([entry in NOUNS for entry in entries])
    passages = [
        replace(item, id=f"l{item.id}", task="lambada", cluster=f"title {number % 9}") for number, item in enumerate(items)
    ]
    for name, of_tasks in (("evalset", {"real": items}), ("evalset-two", {"real": items, "lambada": passages})):
        freeze(home / name, documents, of_tasks, {"reference": {}})
        save_table(home / name, tokenizer_print, table)
    return World(home / "tokenizer", home / "blocks", home / "evalset", home / "evalset-two")


@pytest.fixture
def recipe(world: World, tmp_path: Path) -> Callable[..., TuneRecipe]:
    def make(**changes: Any) -> TuneRecipe:
        return world.recipe(tmp_path / "study", **changes)

    return make
