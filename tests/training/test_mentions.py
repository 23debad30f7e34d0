"""Losses between mentions: who is asked for, who is a candidate, what it costs, and that it is learned."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coref_automl.base.errors import CorefError, RecipeError
from coref_automl.corpus.dataset import PackedDataset
from coref_automl.training.masking import (
    FAR,
    IGNORED,
    Masking,
    later_mentions,
    mask_row,
    mention_rates,
    nearest_coreferent,
    row_rng,
)
from coref_automl.training.recipe import TrainRecipe
from tests.close import assert_same
from tests.training.test_run import Killed, killed_after, same_weights, weights  # noqa: F401 - a fixture

Recipe = Callable[..., TrainRecipe]
SPECIAL = np.arange(85) < 5


@dataclass(frozen=True)
class Row:
    tokens: np.ndarray
    segments: np.ndarray
    mentions: np.ndarray


def masking(objective: str = "copy", **changes: Any) -> Masking:
    return Masking(objective, 4, SPECIAL, ~SPECIAL, **changes)  # type: ignore[arg-type]


@st.composite
def rows(draw: st.DrawFn) -> tuple[Row, np.ndarray]:
    """Rows of up to three documents, mentions that may touch or overlap, and any labels: hidden in whole, in part, not at all."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    edges = np.sort(rng.choice(np.arange(4, 60), 3, replace=False))
    segments = np.searchsorted(edges, np.arange(60), "right") + 1
    segments[segments > draw(st.integers(1, 3))] = 0
    spans = []
    for _ in range(draw(st.integers(0, 20))):
        start = int(rng.integers(0, 58))
        end = start + int(rng.integers(1, 4))
        if segments[start] and end <= 60 and segments[start] == segments[end - 1]:
            spans.append((start, end, 4 * segments[start] + int(rng.integers(3))))
    labels = np.full(60, IGNORED)
    for start, end, _ in spans:
        if rng.random() < 0.5:
            labels[start:end] = 7
    labels[rng.random(60) < 0.05] = 7
    return Row(rng.integers(5, 85, 60), segments, np.array(sorted(spans), np.int32).reshape(-1, 3)), labels


@given(row_and_labels=rows())
def test_who_is_asked_for_has_a_visible_mate_and_a_visible_stranger_in_its_document(
    row_and_labels: tuple[Row, np.ndarray],
) -> None:
    from coref_automl.training.loss import CANDIDATE, TARGET, mention_table

    row, labels = row_and_labels
    table = mention_table(row, labels)
    assert len(table) == len(row.mentions)
    spans = [(int(first), int(end), int(chain)) for first, end, chain in row.mentions]
    seen = [(first, end, chain) for first, end, chain in spans if (labels[first:end] == IGNORED).all()]
    for (first, end, chain), (start, last, same, role) in zip(spans, table, strict=True):
        assert (start, last, same) == (first, end - 1, chain)
        near = [c for at, _, c in seen if row.segments[at] == row.segments[first]]
        hidden = (labels[first:end] != IGNORED).all()
        assert (role == CANDIDATE) == ((first, end, chain) in seen)
        assert (role == TARGET) == (hidden and chain in near and any(other != chain for other in near))


@given(row_and_labels=rows(), seed=st.integers(0, 1000), objective=st.sampled_from(["copy", "link"]))
def test_the_losses_are_those_of_a_plain_loop_over_mentions(
    row_and_labels: tuple[Row, np.ndarray], seed: int, objective: str
) -> None:
    import torch

    from coref_automl.training.loss import CANDIDATE, TARGET, MentionLosses, mention_table

    row, labels = row_and_labels
    table = mention_table(row, labels)
    torch.manual_seed(seed)
    hidden = torch.randn(2, 60, 8)
    losses = MentionLosses(8, {objective: 1.0}, temperature=0.3)  # type: ignore[dict-item]
    for parameter in losses.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    room = torch.zeros(2, len(table) + 3, 4, dtype=torch.int32)
    room[1, : len(table)] = torch.from_numpy(table)  # the other row of the batch has no mentions
    segments = torch.from_numpy(np.stack([np.ones(60, np.int32), row.segments.astype(np.int32)]))

    def score(a: Any, b: Any) -> Any:
        (first, last), (other_first, other_last) = ((hidden[1, m[0]], hidden[1, m[1]]) for m in (a, b))
        if objective == "copy":
            start, end = losses.projections["copy_start"](first), losses.projections["copy_end"](last)
            return (start @ other_first + end @ other_last) / math.sqrt(8)
        one, other = (losses.projections["link"](x) for x in (first + last, other_first + other_last))
        return torch.cosine_similarity(one, other, dim=0) / 0.3

    total, met = torch.zeros(()), 0
    for asked in table[table[:, 3] == TARGET]:
        near = [m for m in table[table[:, 3] == CANDIDATE] if row.segments[m[0]] == row.segments[asked[0]]]
        scores = torch.stack([score(asked, m) for m in near])
        right = torch.tensor([m[2] == asked[2] for m in near])
        total = total + scores.logsumexp(0) - scores[right].logsumexp(0)
        met += bool(right[scores.argmax()])
    ours = losses(hidden, segments, room)
    assert_same(ours[0, 0], total)
    assert int(ours[0, 1]) == met
    ours[0, 0].backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in losses.parameters())


def test_a_document_whose_every_mention_is_hidden_asks_for_none() -> None:
    from coref_automl.training.loss import CANDIDATE, mention_table

    mentions = np.array([(1, 3, 0), (5, 6, 1), (7, 9, 0), (21, 22, 2), (24, 25, 3)], np.int32)
    labels = np.full(30, IGNORED)
    labels[:12] = 9
    table = mention_table(Row(np.full(30, 9), np.repeat([1, 2], [20, 10]), mentions), labels)
    assert table[:, 3].tolist() == [0, 0, 0, CANDIDATE, CANDIDATE]


def test_far_mentions_are_hidden_more_often() -> None:
    mentions = np.array([(1, 2, 0), (10, 11, 1), (12, 13, 0), (10 + FAR, 11 + FAR, 1), (500, 501, 0), (20 + 2 * FAR, 540, 1)])
    assert nearest_coreferent(mentions).tolist() == [11, FAR, 11, FAR, 488, FAR + 10]
    later = later_mentions(mentions)
    assert later[:, 0].tolist() == [12, 10 + FAR, 500, 20 + 2 * FAR]
    assert mention_rates(mentions, masking(entity_rate=0.2, far_weight=2.0)).tolist() == [0.2, 0.2, 0.4, 0.4]
    assert mention_rates(mentions, masking(entity_rate=0.2, far_weight=8.0)).tolist() == [0.2, 0.2, 1.0, 1.0]
    row = Row(np.full(600, 9), np.ones(600, np.int64), mentions)
    settings = masking(entity_rate=0.2, far_weight=3.0)
    near, far = np.mean([mask_row(row, settings, row_rng(0, n, 0))[1][[12, 500]] != IGNORED for n in range(400)], 0)
    assert near == pytest.approx(0.2, abs=0.07)
    assert far == pytest.approx(0.6, abs=0.07)


def test_room_is_kept_for_far_mentions(chained_dataset: Path) -> None:
    from coref_automl.training.batches import expected_share

    dataset = PackedDataset.open(chained_dataset)
    plain = expected_share(dataset, masking(entity_rate=0.3))
    assert expected_share(dataset, masking(entity_rate=0.3, far_weight=5.0)) == plain  # no chain of these rows is that long


def test_batches_keep_their_shapes(chained_dataset: Path) -> None:
    from coref_automl.training.batches import PAD_ROW, Collator, MaskedRows

    dataset = PackedDataset.open(chained_dataset)
    source, collate = MaskedRows(dataset, masking(), 1), Collator.of(dataset, masking())
    shapes = {tuple(collate([source[n], source[PAD_ROW]])["mentions"].shape) for n in range(40)}
    assert shapes == {(2, 32, 4)}
    assert "mentions" not in Collator.of(dataset, masking("entity"))([MaskedRows(dataset, masking("entity"), 1)[0]])


def train(recipe: TrainRecipe) -> Any:
    from coref_automl.training.run import train as run_it

    return run_it(recipe)


def steps(run: Path) -> list[dict[str, Any]]:
    events = [json.loads(line) for line in (run / "events.ndjson").read_text("utf-8").splitlines()]
    return [event for event in events if event["event"] == "step"]


@pytest.fixture
def chained(recipe: Recipe, chained_dataset: Path) -> Recipe:
    return lambda **changes: recipe(**{"dataset": str(chained_dataset), "objective": "copy+link", "batch": 8} | changes)


def test_hidden_mentions_are_found_after_training(chained: Recipe) -> None:
    objective = "copy+link"
    settings = {"learning_rate": 3e-3, "epochs": 30, "save_every": 0, "log_every": 5, "micro_batch": 8}
    events = steps(train(chained(objective=objective, **settings)).run)
    for loss in objective.split("+"):
        first, last = events[0], events[-1]
        assert last[f"{loss}_loss"] < first[f"{loss}_loss"] - 0.3
        assert last[f"{loss}_accuracy"] > max(0.6, first[f"{loss}_accuracy"])
    assert all(row["asked_mentions"] > 0 for row in events)
    parts = [row["mlm_loss"] + sum(row[f"{loss}_loss"] for loss in objective.split("+")) for row in events]
    assert parts[0] == pytest.approx(events[0]["loss"], rel=1e-4)  # one step since the start; later reports are of steps' means


def test_the_micro_batch_changes_nothing_that_is_learned(chained: Recipe, tmp_path: Path) -> None:
    runs = [steps(train(chained(out=str(tmp_path / str(n)), micro_batch=n, epochs=1)).run) for n in (8, 2)]
    for name in ("loss", "mlm_loss", "copy_loss", "link_loss"):
        assert [row[name] for row in runs[0]] == pytest.approx([row[name] for row in runs[1]], rel=1e-4)


def test_weights_and_temperature_reach_the_loss(chained: Recipe, tmp_path: Path) -> None:
    plain, heavy = (
        steps(train(chained(out=str(tmp_path / str(weight)), copy_weight=weight, link_weight=0.5, epochs=0.5)).run)[0]
        for weight in (1.0, 3.0)
    )
    assert heavy["loss"] - plain["loss"] == pytest.approx(2 * plain["copy_loss"], rel=1e-3)
    cold = steps(train(chained(out=str(tmp_path / "cold"), temperature=1.0, epochs=0.5)).run)[0]
    assert cold["copy_loss"] == plain["copy_loss"]
    assert cold["link_loss"] != plain["link_loss"]


def test_a_resumed_run_ends_with_the_weights_of_an_unbroken_one(
    chained: Recipe,
    tmp_path: Path,
    killed_after: Callable[[int], None],  # noqa: F811
) -> None:
    import torch

    settings = {"epochs": 3, "dropout": 0.2, "save_every": 1}
    unbroken = train(chained(out=str(tmp_path / "unbroken"), **settings))
    killed_after(5)
    with pytest.raises(Killed):
        train(chained(**settings))
    resumed = train(chained(**settings))
    assert same_weights(unbroken.checkpoints[-1], resumed.checkpoints[-1])
    heads = [torch.load(run.checkpoints[-1] / "mention_losses.pt", weights_only=True) for run in (unbroken, resumed)]
    assert heads[0].keys() == heads[1].keys()
    assert all(torch.equal(heads[0][name], heads[1][name]) for name in heads[0])
    assert not torch.equal(heads[0]["projections.link.weight"], torch.eye(64))
    (resumed.checkpoints[-1] / "mention_losses.pt").unlink()
    (resumed.run / "DONE").unlink()
    with pytest.raises(CorefError, match=r"mention_losses\.pt is missing"):
        train(chained(**settings))


def test_a_checkpoint_is_the_model_alone(chained: Recipe, tmp_path: Path) -> None:
    from transformers import AutoModelForMaskedLM

    copied = train(chained(epochs=1, save_every=0.5))
    plain = train(chained(out=str(tmp_path / "plain"), objective="entity", epochs=1))
    assert weights(copied.checkpoints[-1]).keys() == weights(plain.checkpoints[-1]).keys()
    _, info = AutoModelForMaskedLM.from_pretrained(copied.checkpoints[-1], output_loading_info=True)
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    held = [(path / "mention_losses.pt").is_file() for path in copied.checkpoints]
    assert held == [False] * (len(held) - 1) + [True]  # with the states, in the newest alone


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            {"objective": "entity", "copy_weight": 1.0},
            "--copy-weight changes nothing under --objective entity; it is for",
        ),
        ({"objective": "copy", "temperature": 0.1}, "--temperature changes nothing under --objective copy; it is for link or"),
        ({"objective": "copy", "copy_weight": 0.0}, "--copy-weight 0 leaves the copy loss out; choose"),
        ({"objective": "copy+link", "link_weight": 0.0}, "--link-weight 0 leaves the link loss out"),
        ({"objective": "link", "temperature": 0.0}, "temperature should be from 0.001"),
        ({"objective": "mlm", "far_weight": 2.0}, "--far-weight changes nothing under --objective mlm"),
        ({"objective": "copy", "entity_rate": 0.0}, "--entity-rate 0 hides no mention"),
        ({"objective": "copy", "copy_weight": -1.0}, "copy_weight should be from 0"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(chained: Recipe, change: dict[str, Any], reason: str) -> None:
    with pytest.raises(CorefError, match=reason):
        train(chained(**change))
    assert not Path(chained().out).exists()


def test_data_without_anything_to_find_are_refused(recipe: Recipe, make_dataset: Callable[..., Path]) -> None:
    for dataset, reason in (
        (make_dataset(chains=False), "no mentions.*prepare entity"),
        (make_dataset(), "document with two chains"),
    ):
        settings = recipe(objective="copy", dataset=str(dataset))
        with pytest.raises(CorefError, match=reason):
            train(settings)
        assert not Path(settings.out).exists()


def test_a_loss_that_is_not_a_number_is_named(chained: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    from coref_automl.training.loss import MentionLosses

    kept = MentionLosses.forward
    monkeypatch.setattr(MentionLosses, "forward", lambda self, *arguments: kept(self, *arguments) * float("nan"))
    with pytest.raises(CorefError, match=r"The loss of step 1 is NaN or infinite \(copy, link\)"):
        train(chained(epochs=1))


def test_a_loss_between_mentions_without_a_scorer_is_refused() -> None:
    from coref_automl.training.loss import MentionLosses

    with pytest.raises(RecipeError, match=r"Unknown mention loss 'lnk'.*link"):
        MentionLosses(8, {"lnk": 1.0})  # type: ignore[dict-item]


def test_the_step_compiles_whole(chained_dataset: Path) -> None:
    import torch

    from coref_automl.training.batches import Collator, MaskedRows
    from coref_automl.training.loss import MentionLosses

    dataset = PackedDataset.open(chained_dataset)
    batch = Collator.of(dataset, masking())([MaskedRows(dataset, masking(), 1)[n] for n in range(3)])
    losses = MentionLosses(16, {"copy": 1.0, "link": 1.0}, 0.07)
    hidden = torch.randn(3, 64, 16)
    compiled = torch.compile(losses, fullgraph=True, dynamic=False, backend="eager")
    assert_same(compiled(hidden, batch["segments"], batch["mentions"]), losses(hidden, batch["segments"], batch["mentions"]))
