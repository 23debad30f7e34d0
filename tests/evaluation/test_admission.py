"""The admission test's controls: what they damage, what they hide, and what its verdicts say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import admission
import admission_table
from coref_automl.base.records import ClozeItem
from coref_automl.evaluation.choice import WordChoice
from coref_automl.evaluation.metrics import COPY_BONUSES
from coref_automl.evaluation.scorer import Scorer
from coref_automl.models.heads import encode_at
from coref_automl.models.load import load_masked_lm
from coref_automl.models.vocabulary import word_ids


def test_every_occurrence_of_either_form_is_hidden_and_nothing_else() -> None:
    ids = np.array([2, 7, 8, 9, 7, 5, 7, 8, 3], np.int32)
    hidden = admission.masked(ids, {(7, 8), (5,), (1, 2, 3, 4, 5, 6, 7, 8, 9, 10)}, 99)
    assert hidden.tolist() == [2, 99, 99, 9, 7, 99, 99, 99, 3]
    assert ids[1] == 7


def test_noise_is_the_given_share_of_each_matrix_and_the_same_for_one_draw() -> None:
    sound = load_masked_lm("bundled:ko-mini").model
    first, again, other = (load_masked_lm("bundled:ko-mini").model for _ in range(3))
    for model, draw in ((first, 0), (again, 0), (other, 1)):
        admission.add_noise(model, 0.2, draw)
    for name, weight in sound.named_parameters():
        moved = dict(first.named_parameters())[name].float() - weight.float()
        if weight.dim() > 1:
            assert float(moved.detach().std() / weight.detach().float().std()) == pytest.approx(0.2, rel=0.05)
        else:
            assert not moved.any()
        assert torch.equal(dict(first.named_parameters())[name], dict(again.named_parameters())[name])
    assert any(not torch.equal(a, b) for a, b in zip(first.parameters(), other.parameters(), strict=True))


def test_cut_attention_sees_no_farther_than_its_reach_and_is_one_thing_in_both_encoders() -> None:
    ids = torch.randint(5, 16_000, (2, 400), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    mask[1, 200:] = 0
    rows, columns = torch.tensor([0, 1]), torch.tensor([200, 100])
    states = {}
    for tokens in (0, 64, 16):
        model = load_masked_lm("bundled:ko-mini", seq_len=512).model
        if tokens:
            admission.cut_attention(model, tokens)
        with torch.inference_mode():
            states[tokens] = encode_at(model, ids, mask, rows, columns)
            library = model.base_model(input_ids=ids, attention_mask=mask).last_hidden_state
            assert torch.isfinite(library).all()
            torch.testing.assert_close(states[tokens], library[rows, columns], atol=1e-4, rtol=1e-4)
    assert float((states[0] - states[64]).abs().max()) > 0.1
    assert float((states[64] - states[16]).abs().max()) > 0.1


DOCUMENTS, PER_DOCUMENT = 150, 4


def written(folder: Path, shares: dict[str, tuple[float, float]], bonus: float = 0.0) -> Path:
    """scores.npz of groups with these shares of hits on real and new; a bonus changes that many of the base's hits on real."""
    items = DOCUMENTS * PER_DOCUMENT
    tasks = np.repeat(["real", "new"], items)
    clusters = np.tile(np.repeat([f"d{number}" for number in range(DOCUMENTS)], PER_DOCUMENT), 2)
    arrays: dict[str, Any] = {"item/task": tasks, "item/cluster": clusters, "item/tag": np.full(2 * items, "NNG")}
    places = np.random.default_rng(0).random(2 * items)
    for group, (real, new) in shares.items():
        hits = places < np.repeat([real, new], items)
        for number in range(3 if group in ("mlm", "words", "nouns") else 1):
            name = f"{group}-{number}"
            with_bonus = places < np.repeat([real + bonus, new - bonus], items)
            arrays |= {f"{name}/group": group, f"{name}/number": number, f"{name}/rank": np.where(hits, 1, 9)}
            if group == "base":
                arrays[f"{name}/hidden"] = np.where(hits & (tasks == "new"), 1, 9)
            arrays[f"{name}/bonus"] = np.stack([with_bonus] * len(COPY_BONUSES), axis=1)
            arrays[f"{name}/has_bonus"] = np.ones(2 * items, np.bool_)
    np.savez_compressed(folder / "scores.npz", **arrays)
    return folder / "scores.npz"


SOUND = {
    "base": (0.60, 0.40), "mlm": (0.60, 0.40), "words": (0.60, 0.40), "nouns": (0.58, 0.40), "noise 10%": (0.55, 0.35),
    "noise 20%": (0.45, 0.25), "attention 64": (0.58, 0.39), "attention 16": (0.50, 0.35), "rate": (0.55, 0.35),
}  # fmt: skip


def says(path: Path, metric: str) -> dict[str, str]:
    rows = {row.metric: row for row in admission_table.rows_of(admission_table.Scores(path))}
    return {name: test.says for name, test in rows[metric].tests.items()} | {"": rows[metric].admitted}


def test_a_bonus_that_moves_hits_from_new_to_real_fails_real_and_not_the_mean(tmp_path: Path) -> None:
    path = written(tmp_path, SOUND, bonus=0.05)
    assert says(path, "real1")["cheat"] == "fail"
    assert says(path, "real1")[""] == "fail"
    assert says(path, "noun1")["cheat"] == "pass"
    assert set(says(path, "noun1").values()) <= {"pass", "-"}


@pytest.mark.parametrize(
    ("test", "change"),
    [
        ("format", {"words": (0.70, 0.50)}),
        ("nouns", {"nouns": (0.70, 0.50)}),
        ("grades", {"noise 20%": (0.58, 0.38)}),
        ("grades", {"attention 16": (0.62, 0.42)}),
        ("grades", {"rate": (0.62, 0.42)}),
        ("moves", {"base": (0.04, 0.03)}),
    ],
)
def test_each_control_alone_refuses_a_metric(tmp_path: Path, test: str, change: dict[str, tuple[float, float]]) -> None:
    assert says(written(tmp_path, SOUND), "noun1")[test] == "pass"
    assert says(written(tmp_path, SOUND | change), "noun1")[test] == "fail"


def test_too_few_documents_leave_a_metric_undecided(tmp_path: Path) -> None:
    near = SOUND | {"words": (0.609, 0.409)}
    assert says(written(tmp_path, near), "noun1")["format"] == "undecided"


def test_a_bonus_in_a_choice_goes_to_the_words_that_stand_in_the_window() -> None:
    text = "양자역학은 어렵다. 그는 상대성이론을 배웠다."
    start = text.index("상대성이론")
    item = ClozeItem("i", "real-choice", "a", "a", "s", start, start + 5, "상대성이론", "NNG")
    loaded = load_masked_lm("bundled:ko-mini", seq_len=256)
    scorer = admission.ReadyScorer(loaded, np.zeros(loaded.model.config.vocab_size, np.bool_), seq_len=256)
    prepared = Scorer.prepare(scorer, item, text)
    seen = tuple(word_ids(loaded.tokenizer, "양자역학", initial=True))
    choice = WordChoice(("상대성이론", "양자역학", "진공관"), (prepared.window.pieces, seen, (5, 6)))
    score = scorer.choose(prepared, choice, np.array([-5.0, -5.6, -9.0]))
    assert score.rank == 1
    assert dict(zip(COPY_BONUSES, score.bonus_hits, strict=True)) == {bonus: bonus <= 0.5 for bonus in COPY_BONUSES}
