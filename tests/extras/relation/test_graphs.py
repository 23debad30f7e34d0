"""A recorded step leaves the gradients that the step itself leaves. The comparison needs CUDA; elsewhere nothing is recorded."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from coref_automl.extras.relation.recipe import RelationRecipe
from coref_automl.extras.relation.techniques import CAPTURABLE, can_capture
from coref_automl.extras.relation.train import train_relation
from coref_automl.models.build import SHAPES, build_masked_lm, train_tokenizer

from .conftest import TEXTS

TINY = {SHAPES[name].family: name for name in ("tiny", "bert-tiny", "roberta-tiny", "electra-tiny")}


@pytest.mark.parametrize(("family", "device", "expected"), [
    ("modernbert", "cuda:0", True), ("modernbert", "cpu", False), ("deberta-v2", "cuda:0", False),
])  # fmt: skip
def test_only_what_never_waits_for_the_gpu_is_recorded(family: str, device: str, expected: bool) -> None:
    plain = SimpleNamespace(base_model=SimpleNamespace(encoder=None))  # fused attention is not installed
    model = SimpleNamespace(config=SimpleNamespace(model_type=family), encoder=plain)
    assert can_capture(model, device) is expected


def test_every_family_with_a_small_shape_is_compared() -> None:
    assert CAPTURABLE - TINY.keys() == {"xlm-roberta"}  # roberta's code under another name


@pytest.mark.skipif(not torch.cuda.is_available(), reason="recording needs CUDA")
@pytest.mark.parametrize("family", TINY)
@pytest.mark.parametrize("technique", [{}, {"label_mask": "soft"}, {"hard_negatives": 0.5}], ids=str)
def test_recorded_and_launched_steps_learn_the_same(
    family: str, technique: dict[str, Any], relation_file: Path, dev_file: Path, tmp_path: Path
) -> None:
    tokenizer = train_tokenizer(TEXTS, vocab_size=400)
    build_masked_lm(TINY[family], tokenizer, seq_len=128).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    losses = []
    for graphs in (True, False):
        recipe = RelationRecipe(
            model=str(tmp_path / "model"), train=str(relation_file), dev=str(dev_file), out=str(tmp_path / f"run-{graphs}"),
            seeds=1, epochs=2, batch_size=16, learning_rate=1e-3, holdout=0.2, dropout=0.0, encoder_dropout=0.0,
            precision="float32", device="cuda", graphs=graphs, **technique,
        )  # fmt: skip
        losses.append(train_relation(recipe).seeds[0].validation_loss)
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="recording needs CUDA")
def test_a_batch_with_fewer_rows_may_come_before_a_new_width(relation_file: Path, tmp_path: Path) -> None:
    """Under some seed of eight the short batch, which is launched, is followed by a width that is recorded for the first time."""
    tokenizer = train_tokenizer(TEXTS, vocab_size=400)
    build_masked_lm("tiny", tokenizer, seq_len=128).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    recipe = RelationRecipe(
        model=str(tmp_path / "model"), train=str(relation_file), out=str(tmp_path / "run"),
        seeds=8, epochs=1, batch_size=8, learning_rate=1e-3, holdout=0.2, precision="float32", device="cuda",
    )  # fmt: skip
    assert len(train_relation(recipe).seeds) == 8
