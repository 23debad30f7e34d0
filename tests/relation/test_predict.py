from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from coref_automl.errors import ModelError, RelationDataError
from coref_automl.relation.labels import LABELS
from coref_automl.relation.predict import TextPrediction, predict_file, predict_text, render
from coref_automl.relation.recipe import RelationRecipe
from coref_automl.relation.results import RelationResult
from coref_automl.relation.rows import Entity
from coref_automl.relation.train import train_relation

from .conftest import make_raw_rows

BORN = "어느 날 이순신은 서울에서 태어났다. 그때는 1950년이었다."


@pytest.fixture(scope="module")
def learned(
    encoder_folder: Path, relation_file: Path, dev_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> RelationResult:
    return train_relation(
        RelationRecipe(
            model=str(encoder_folder),
            train=str(relation_file),
            dev=str(dev_file),
            out=str(tmp_path_factory.mktemp("learned") / "run"),
            scheme="typed",
            seeds=2,
            epochs=6,
            batch_size=8,
            learning_rate=3e-3,
            holdout=0.2,
            max_length=64,
            device="cpu",
        )
    )


def test_a_submission_has_a_line_a_row_with_probabilities_in_label_order(learned: RelationResult, tmp_path: Path) -> None:
    raw = make_raw_rows(12, start=400)
    for row in raw:
        del row["label"]
    path = tmp_path / "new.json"
    path.write_text(json.dumps(raw), "utf-8")
    made = predict_file(Path(learned.run), str(path), tmp_path / "out", device="cpu")
    with Path(made.path).open(encoding="utf-8", newline="") as handle:
        lines = list(csv.DictReader(handle))
    assert [line["id"] for line in lines] == [row["guid"] for row in raw]
    for line in lines:
        probs = json.loads(line["probs"])
        assert len(probs) == 30
        assert LABELS[probs.index(max(probs))] == line["pred_label"]
        assert sum(probs) == pytest.approx(1.0, abs=1e-4)
    assert made.seeds in ((0,), (1,))


def test_bad_rows_of_a_file_to_predict_are_listed_not_guessed(learned: RelationResult, tmp_path: Path) -> None:
    raw = make_raw_rows(3, start=400)
    raw[1]["object_entity"]["end_idx"] += 1
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(raw), "utf-8")
    with pytest.raises(RelationDataError, match="row 2"):
        predict_file(Path(learned.run), str(path), tmp_path / "out")
    made = predict_file(Path(learned.run), str(path), tmp_path / "out", skip_bad=True, device="cpu")
    assert (made.rows, [problem.row for problem in made.problems]) == (2, [2])


def test_a_sentence_is_answered_and_an_ensemble_averages_the_seeds(learned: RelationResult) -> None:
    options: dict[str, Any] = {"types": ("PER", "LOC"), "device": "cpu"}
    one = predict_text(Path(learned.run), BORN, "이순신", "서울", **options)
    both = predict_text(Path(learned.run), BORN, "이순신", "서울", ensemble=True, **options)
    assert one.ranked[0][0] == "per:place_of_birth"
    assert len(one.ranked) == 30
    assert both.seeds == (0, 1)
    assert sum(p for _, p in both.ranked) == pytest.approx(1.0, abs=1e-4)


def test_an_ambiguous_or_absent_word_is_not_guessed(learned: RelationResult) -> None:
    run, twice = Path(learned.run), "서울 사람 이순신은 서울에서 태어났다."
    with pytest.raises(RelationDataError, match="occurs at 0, 11; say which one with --object-start"):
        predict_text(run, twice, "이순신", "서울", types=("PER", "LOC"))
    found = predict_text(run, twice, "이순신", "서울", types=("PER", "LOC"), starts=(None, 11), device="cpu")
    assert found.object.start == 11
    with pytest.raises(RelationDataError, match="does not occur"):
        predict_text(run, twice, "이순신", "부산", types=("PER", "LOC"))
    with pytest.raises(RelationDataError, match="cannot be read"):
        predict_text(run, twice, "이순신", "서울", types=("PER", "LOC"), starts=(None, 3))
    with pytest.raises(RelationDataError, match="--object-type"):
        predict_text(run, twice, "이순신", "사람", types=("PER", "PLACE"))


def test_the_rendered_sentence_shows_both_entities() -> None:
    found = TextPrediction(
        "가나다라", Entity("나", 1, 2, "PER"), Entity("라", 3, 4, "LOC"), (("per:title", 0.75), ("no_relation", 0.25)), (0,)
    )
    plain = render(found, colour=False)
    assert plain.splitlines()[0] == "가[나](subject PER)다[라](object LOC)"
    assert "per:title     75.0%" in plain
    assert "\x1b[30;46m나\x1b[0m" in render(found, colour=True)


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no relation run"):
        predict_text(tmp_path, BORN, "이순신", "서울", types=("PER", "LOC"))
