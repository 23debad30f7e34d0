"""The loss at asked positions, and what falls when it is trained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coref_automl.corpus.dataset import PackedDataset
from coref_automl.training.masking import IGNORED, Masking, later_mentions, mask_row, row_rng
from tests.close import assert_same


@pytest.fixture
def build(tokenizer_folder: Path) -> Callable[[str], Any]:
    from coref_automl.models.build import build_masked_lm
    from coref_automl.models.load import load_tokenizer

    tokenizer = load_tokenizer(str(tokenizer_folder))
    return lambda shape: build_masked_lm(shape, tokenizer, seq_len=32)


@pytest.mark.parametrize("shape", ["tiny", "deberta-tiny", "bert-tiny", "roberta-tiny", "electra-tiny"])
def test_the_loss_is_that_of_full_logits(shape: str, build: Callable[[str], Any]) -> None:
    import torch

    from coref_automl.training.loss import prepare_model

    model = build(shape).eval()
    ids = torch.randint(5, 85, (3, 32), generator=torch.Generator().manual_seed(0))
    labels = torch.full((3, 32), IGNORED)
    labels[0, [3, 9]], labels[2, 17] = ids[0, [3, 9]], ids[2, 17]
    ids[labels != IGNORED] = 4
    usual = model(input_ids=ids, attention_mask=torch.ones_like(ids), labels=labels).loss
    prepare_model(model)
    positions = torch.cat([(labels.flatten() != IGNORED).nonzero().flatten(), torch.zeros(5, dtype=torch.long)])
    targets = torch.cat([labels.flatten()[positions[:3]], torch.full((5,), IGNORED)])
    ours = model(input_ids=ids, segments=torch.ones(3, 32, dtype=torch.int32), positions=positions, labels=targets)["loss"]
    assert_same(ours, usual)
    half = model(
        input_ids=ids, segments=torch.ones(3, 32, dtype=torch.int32), positions=positions, labels=targets, num_items_in_batch=6
    )
    assert_same(half["loss"], usual / 2)


@pytest.mark.parametrize("shape", ["tiny", "deberta-tiny", "bert-tiny", "roberta-tiny", "electra-tiny"])
def test_dropout_reaches_every_family(shape: str, build: Callable[[str], Any]) -> None:
    import torch

    from coref_automl.models.execution import with_dropout

    ids = torch.arange(5, 35)[None]
    noisy = with_dropout(build(shape), 0.3).train()
    assert not torch.equal(noisy(input_ids=ids).logits, noisy(input_ids=ids).logits)
    still = with_dropout(noisy, 0.0).train()
    assert torch.equal(still(input_ids=ids).logits, still(input_ids=ids).logits)
    assert torch.equal(still(input_ids=ids).logits, build(shape).eval()(input_ids=ids).logits)


def test_documents_of_a_block_see_each_other_only_when_asked_to(build: Callable[[str], Any]) -> None:
    import torch

    from coref_automl.training.loss import prepare_model

    ids = torch.randint(5, 85, (1, 32), generator=torch.Generator().manual_seed(1))
    changed = ids.clone()
    changed[0, 20:] = 7
    segments = torch.ones(1, 32, dtype=torch.int32)
    segments[0, 16:] = 2
    batch = {"segments": segments, "positions": torch.tensor([3]), "labels": ids[0, 3:4]}
    for crossing in (False, True):
        model = build("tiny").eval()
        prepare_model(model, cross_document=crossing)
        same = torch.equal(model(input_ids=ids, **batch)["loss"], model(input_ids=changed, **batch)["loss"])
        assert same is not crossing


@pytest.mark.parametrize("labelled", [True, False])
def test_the_entity_loss_falls_when_trained_and_not_without_labels(
    labelled: bool, build: Callable[[str], Any], opened: PackedDataset
) -> None:
    """The old fault: hidden mentions without labels. The loss is measured at the hidden mentions alone, in both cases."""
    import torch

    from coref_automl.training.batches import Collator, MaskedRow
    from coref_automl.training.loss import prepare_model

    special = np.arange(85) < 5
    masking = Masking("entity", 4, special, ~special, entity_rate=0.5, background=0.1)
    model = build("tiny")
    prepare_model(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    def batch(epoch: int, keep: str) -> dict[str, torch.Tensor]:
        rows = []
        for number in range(len(opened)):
            row = opened.row(number)
            ids, labels = mask_row(row, masking, row_rng(0, epoch, number))
            inside = np.zeros(len(labels), bool)
            for start, end, _ in later_mentions(row.mentions):
                inside[start:end] = True
            labels = np.where(inside, labels, IGNORED) if keep == "mentions" else labels
            labels = np.where(inside, IGNORED, labels) if keep == "background" else labels
            rows.append(MaskedRow(ids, row.segments, labels))
        return Collator(0.1)(rows)

    def at_mentions() -> float:
        with torch.no_grad():
            return float(model(**batch(1000, "mentions"))["loss"])

    before = at_mentions()
    for epoch in range(40):
        model(**batch(epoch, "all" if labelled else "background"))["loss"].backward()
        optimizer.step()
        optimizer.zero_grad()
    fallen = before - at_mentions()
    assert fallen > 1.5 if labelled else fallen < 0.75


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # torch's compiler looks at it
@pytest.mark.parametrize(("shape", "graphs"), [("bert-tiny", 2), ("demo", 3)])
def test_layers_are_compiled_once_for_all_of_a_kind(
    shape: str, graphs: int, build: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A graph for the loss, and one per kind of layer: ModernBERT's first has no norm. The backend that builds kernels needs a
    C compiler, so another one counts the graphs."""
    import torch
    from torch._dynamo.testing import CompileCounter

    from coref_automl.training.loss import prepare_model

    torch._dynamo.reset()
    counter, compiler = CompileCounter(), torch.compile
    monkeypatch.setattr(torch, "compile", lambda what, **options: compiler(what, backend=counter, **options))
    ids = torch.randint(5, 85, (3, 32), generator=torch.Generator().manual_seed(0))
    segments = torch.ones(3, 32, dtype=torch.int32)
    segments[1, 9:] = 2
    batch = {"input_ids": ids, "segments": segments, "positions": torch.arange(8), "labels": ids.flatten()[:8]}
    losses = []
    for compiled in (False, True):
        model = build(shape).eval()
        prepare_model(model, compiled=compiled)
        losses.append(model(**batch)["loss"])
    assert_same(losses[1], losses[0])
    assert counter.frame_count == graphs
    torch._dynamo.reset()
