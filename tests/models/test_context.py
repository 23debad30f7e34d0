"""Lengthening: the new length runs, a plain reload gives the same logits, and what was learned within the old length stays."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForMaskedLM

from coref_automl.base.errors import ModelError
from coref_automl.models.context import lengthen
from coref_automl.models.families import length_of
from coref_automl.models.load import load_masked_lm
from coref_automl.models.model_files import detect_seq_len
from tests.close import assert_same
from tests.models.conftest import FAMILIES, LENGTH, batch, build, write

LONG = 80
LENGTHENED = [*FAMILIES, "deberta-conv"]


def logits(model: Any, length: int) -> torch.Tensor:
    ids = batch(2, length)
    with torch.no_grad():
        out: torch.Tensor = model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits
    return out


@pytest.mark.parametrize("name", LENGTHENED)
def test_a_plain_reload_gives_the_same_logits(name: str, tmp_path: Path) -> None:
    model = build(name)
    lengthen(model, LONG)
    expected = logits(model, LONG)
    assert torch.isfinite(expected).all()
    again = AutoModelForMaskedLM.from_pretrained(write(model, tmp_path)).eval()
    assert length_of(again.config) == LONG
    assert_same(logits(again, LONG), expected)
    assert detect_seq_len(str(tmp_path)) == LONG


@pytest.mark.parametrize("name", LENGTHENED)
def test_texts_within_the_old_length_keep_their_logits(name: str) -> None:
    model = build(name)
    expected = logits(model, LENGTH)
    lengthen(model, LONG)
    torch.testing.assert_close(logits(model, LENGTH), expected, rtol=0, atol=0)


@pytest.mark.parametrize("name", ["bert", "electra", "distilbert", "roberta"])
def test_position_rows_are_repeated_in_order(name: str) -> None:
    model = build(name)
    before = model.config.pad_token_id + 1 if name == "roberta" else 0
    trained = model.base_model.embeddings.position_embeddings.weight[before:].clone()
    lengthen(model, LONG)
    table = model.base_model.embeddings.position_embeddings.weight
    assert len(table) == LONG + before == model.config.max_position_embeddings
    for position in (0, LENGTH - 1, LENGTH, LONG - 1):
        assert torch.equal(table[before + position], trained[position % LENGTH])


def test_roberta_s_config_counts_the_two_rows_before_the_first() -> None:
    model = build("roberta")
    lengthen(model, LONG)
    assert model.config.max_position_embeddings == LONG + 2


@pytest.mark.parametrize("name", ["deberta", "deberta-no-buckets"])
def test_clamped_deberta_shares_the_last_trained_row_and_resizes_nothing(name: str) -> None:
    model = build(name)
    table = model.deberta.encoder.rel_embeddings.weight
    rows = table.detach().clone()
    (note,) = lengthen(model, LONG)
    assert table.shape == rows.shape
    assert torch.equal(table[0], rows[1])  # no pair within the old length ever used row 0
    assert torch.equal(table[1:], rows[1:])
    assert model.config.max_relative_positions == LENGTH
    assert "share the last trained row" in note


def test_rows_beyond_the_old_length_are_not_left_untrained() -> None:
    model = build("deberta", position_buckets=16, max_relative_positions=256)
    rows = model.deberta.encoder.rel_embeddings.weight.detach().clone()
    expected = logits(model, LENGTH)
    lengthen(model, LONG)
    table = model.deberta.encoder.rel_embeddings.weight
    used = table.eq(rows).all(dim=1).nonzero().flatten()
    first, last = int(used[0]), int(used[-1])
    assert first > 1
    assert torch.equal(table[0], table[first])
    assert torch.equal(table[-1], table[last])
    torch.testing.assert_close(logits(model, LENGTH), expected, rtol=0, atol=0)


def test_a_second_lengthening_leaves_used_rows_alone() -> None:
    model = build("deberta")
    lengthen(model, LONG)
    with torch.no_grad():
        model.deberta.encoder.rel_embeddings.weight[0] += 1  # trained at the longer length
    expected = logits(model, LONG)
    lengthen(model, 2 * LONG)
    assert model.config.max_relative_positions == LENGTH
    torch.testing.assert_close(logits(model, LONG), expected, rtol=0, atol=0)


def test_rescaling_is_another_map_written_into_the_config(tmp_path: Path) -> None:
    model = build("deberta")
    within = logits(model, LENGTH)
    (note,) = lengthen(model, LONG, policy="rescale")
    assert "needs training" in note
    assert model.config.max_relative_positions == LONG
    assert (logits(model, LENGTH) - within).abs().max() > 1e-3
    expected = logits(model, LONG)
    again = AutoModelForMaskedLM.from_pretrained(write(model, tmp_path)).eval()
    assert_same(logits(again, LONG), expected)


def test_impossible_policies_are_explained() -> None:
    with pytest.raises(ModelError, match="with clamp"):
        lengthen(build("deberta-no-buckets"), LONG, policy="rescale")
    with pytest.raises(ModelError, match="clamp or rescale"):
        lengthen(build("deberta"), LONG, policy="stretch")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["modernbert", "roberta", "deberta"])
def test_loading_lengthens_when_more_is_asked_for(name: str, checkpoint: Callable[[str], str]) -> None:
    loaded = load_masked_lm(checkpoint(name), seq_len=LONG)
    assert loaded.seq_len == length_of(loaded.model.config) == LONG
    assert any("Lengthened from 32 to 80" in note for note in loaded.notes)
    shorter = load_masked_lm(checkpoint(name), seq_len=16)
    assert shorter.seq_len == 16
    assert length_of(shorter.model.config) == LENGTH


def test_roberta_off_by_two_is_refused_with_both_sizes(checkpoint: Callable[[str], str], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(checkpoint("roberta"), tmp_path / "off"))
    config = folder / "config.json"
    written = json.loads(config.read_text("utf-8"))
    config.write_text(json.dumps({**written, "max_position_embeddings": LENGTH}), "utf-8")
    with pytest.raises(ModelError, match=rf"embeddings.weight is {LENGTH + 2} x .* and {LENGTH} x .*correct config.json"):
        load_masked_lm(str(folder))


def test_a_sound_lengthening_is_not_called_a_fault(tmp_path: Path) -> None:
    for name in ("bert", "roberta", "deberta"):
        model = build(name)
        lengthen(model, LONG)
        notes = load_masked_lm(write(model, tmp_path / name)).notes
        assert [note for note in notes if not note.startswith("Attention")] == []


def test_buckets_that_a_reload_would_remap_are_named(tmp_path: Path) -> None:
    notes = load_masked_lm(write(build("deberta", max_position_embeddings=1024), tmp_path)).notes
    assert any("max_relative_positions at -1" in note for note in notes)
