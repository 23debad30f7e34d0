"""Muon: matrices of layers move orthogonally, everything else is AdamW's, and a state goes round the disk."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch

from coref_automl.models.build import build_masked_lm
from coref_automl.models.load import load_tokenizer
from coref_automl.training.muon import Muon, orthogonal
from coref_automl.training.optimizer import adamw, groups_of, inside_layer


@pytest.mark.parametrize("shape", [(24, 24), (24, 40), (40, 24), (72, 24)])
def test_singular_values_come_near_one(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    rows, columns = shape
    squares = rows // columns if rows % columns == 0 else 1
    spread = torch.diag(torch.logspace(0, -1, min(shape)))
    left, right = (torch.linalg.qr(torch.randn(squares, side, min(shape))).Q for side in (rows // squares, columns))
    matrix = (left @ spread @ right.mT).reshape(shape)
    (turned,) = orthogonal([matrix])
    assert turned.shape == matrix.shape
    parts = turned.view(-1, columns, columns) if rows % columns == 0 else turned[None]
    for part in parts:
        values = torch.linalg.svdvals(part / max(part.shape) ** 0.5)
        assert values.min() > 0.3
        assert values.max() < 1.4
    assert 0.5 < float(turned.square().mean().sqrt()) < 1.3


def test_matrices_are_turned_together_as_they_are_alone() -> None:
    torch.manual_seed(1)
    matrices = [torch.randn(16, 16), torch.randn(48, 16), torch.randn(16, 40), torch.randn(16, 16)]
    for matrix, turned in zip(matrices, orthogonal(matrices), strict=True):
        torch.testing.assert_close(turned, orthogonal([matrix])[0], rtol=1e-4, atol=1e-5)


def made(tokenizer_folder: Path) -> Any:
    return build_masked_lm("tiny", load_tokenizer(str(tokenizer_folder)), seq_len=32)


def step(model: Any, optimizer: torch.optim.Optimizer) -> None:
    ids = torch.arange(5, 25)[None]
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def test_what_is_no_matrix_of_a_layer_moves_as_with_adamw(tokenizer_folder: Path) -> None:
    ours = made(tokenizer_folder)
    usual = copy.deepcopy(ours)
    before = copy.deepcopy(ours.state_dict())
    step(ours, Muon(groups_of(ours, rate=1e-2, weight_decay=0.1), fused=False))
    step(usual, adamw(groups_of(usual, rate=1e-2, weight_decay=0.1), fused=False))
    theirs = dict(usual.named_parameters())
    turned = 0
    for name, parameter in ours.named_parameters():
        assert not torch.equal(parameter, before[name]), name
        if inside_layer(name, parameter):
            turned += 1
            assert not torch.equal(parameter, theirs[name]), name
        else:
            torch.testing.assert_close(parameter, theirs[name])
    assert turned == 2 * 4


def test_a_move_is_as_large_as_adamws(tokenizer_folder: Path) -> None:
    model = made(tokenizer_folder)
    before = copy.deepcopy(model.state_dict())
    step(model, Muon(groups_of(model, rate=1e-2, weight_decay=0.0), fused=False))
    for name, parameter in model.named_parameters():
        if inside_layer(name, parameter):
            moved = float((parameter.detach() - before[name]).square().mean().sqrt())
            assert 0.4 * 0.2e-2 < moved < 1.3 * 0.2e-2, name


def test_a_loaded_state_goes_on_as_if_never_stopped(tokenizer_folder: Path, tmp_path: Path) -> None:
    model = made(tokenizer_folder)
    optimizer = Muon(groups_of(model, rate=1e-2, weight_decay=0.1), fused=False)
    for _ in range(2):
        step(model, optimizer)
    torch.save(optimizer.state_dict(), tmp_path / "state.pt")
    other = copy.deepcopy(model)
    step(model, optimizer)
    resumed = Muon(groups_of(other, rate=1e-2, weight_decay=0.1), fused=False)
    resumed.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    step(other, resumed)
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, dict(other.named_parameters())[name]), name
