"""A new model with another's words answers with that model's head, and keeps its own random layers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from coref_automl.base.errors import ModelError
from coref_automl.models.build import SHAPES, build_masked_lm, inherit_words
from coref_automl.models.heads import predict
from coref_automl.models.load import load_masked_lm
from tests.close import assert_same
from tests.models.conftest import TINY, build, tokenizer

SMALL = sorted(name for name, shape in SHAPES.items() if shape.hidden == 64)


def trained(shape: str, seed: int = 1, **changes: Any) -> Any:
    """A model whose every weight differs from what a new one has, biases and norms included."""
    model = build_masked_lm(shape, tokenizer(**changes), seq_len=32, seed=seed)
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn(weight.shape, generator=draw), alpha=0.3)
    return model.eval()


@pytest.mark.parametrize(
    ("shape", "source"), [(shape, source) for shape in SMALL for source in SMALL if shape != "tiny" or source == "tiny"]
)
def test_the_new_head_answers_as_the_old_one(shape: str, source: str) -> None:
    """ModernBERT's head has no biases: it can give its answers to all, and take over its own kind's alone."""
    old, new = trained(source), build_masked_lm(shape, tokenizer(), seq_len=32).eval()
    inherit_words(new, old)
    hidden = torch.randn(7, 64, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert_same(predict(new, hidden), predict(old, hidden))
    assert torch.equal(new.get_input_embeddings().weight, old.get_input_embeddings().weight)


@pytest.mark.parametrize("source", [name for name in TINY if name != "electra"])
def test_every_family_can_be_a_source(source: str) -> None:
    old, new = build(source, seed=3), build("bert", seed=4)
    inherit_words(new, old)
    hidden = torch.randn(7, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert_same(predict(new, hidden), predict(old, hidden))


def test_a_narrow_embedding_is_refused() -> None:
    with pytest.raises(ModelError, match="100 x 16 and the model needs 100 x 32"):
        inherit_words(build("bert"), build("electra"))


def test_the_layers_stay_random_and_the_words_stay_tied() -> None:
    plain = build_masked_lm("deberta-tiny", tokenizer(), seq_len=32)
    new = build_masked_lm("deberta-tiny", tokenizer(), seq_len=32)
    inherit_words(new, trained("tiny"))
    ours, theirs = new.deberta.encoder.state_dict(), plain.deberta.encoder.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert new.get_output_embeddings().weight is new.get_input_embeddings().weight


def test_a_source_with_spare_rows_gives_the_first_ones() -> None:
    old = trained("bert-tiny")
    old.resize_token_embeddings(128, mean_resizing=False)
    new = build_masked_lm("bert-tiny", tokenizer(), seq_len=32)
    inherit_words(new, old)
    assert torch.equal(new.get_input_embeddings().weight, old.get_input_embeddings().weight[:100])


@pytest.mark.parametrize(("shape", "words"), [("demo", 95), ("tiny", 90)])
def test_words_of_another_size_are_refused(shape: str, words: int) -> None:
    with pytest.raises(ModelError, match="the model needs"):
        inherit_words(build_masked_lm("deberta-tiny", tokenizer(), seq_len=32), trained(shape, words=words))


def test_what_was_inherited_is_still_there_after_a_checkpoint(tmp_path: Path) -> None:
    new = build_masked_lm("deberta-tiny", tokenizer(), seq_len=32).eval()
    inherit_words(new, trained("tiny"))
    new.save_pretrained(tmp_path)
    tokenizer().save_pretrained(tmp_path)
    hidden = torch.randn(7, 64)
    with torch.no_grad():
        assert_same(predict(load_masked_lm(str(tmp_path)).model, hidden), predict(new, hidden))
