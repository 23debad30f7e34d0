from __future__ import annotations

import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coref_automl.base.errors import ModelError, RelationDataError
from coref_automl.cli.app import run
from coref_automl.cli.options import recipe_from
from coref_automl.extras.relation import predict as predict_module
from coref_automl.extras.relation import scoring as scoring_module
from coref_automl.extras.relation.predict import TextPrediction, predict_file, predict_texts, render
from coref_automl.extras.relation.recipe import RelationRecipe
from coref_automl.extras.relation.results import RelationResult
from coref_automl.extras.relation.rows import LABELS, Entity
from coref_automl.extras.relation.train import train_relation

from .conftest import make_raw_rows

BORN = "어느 날 이순신은 서울에서 태어났다. 그때는 1950년이었다."


def predict_text(
    folder: Path, sentence: str, subject: str, object_: str, types: Any = (None, None), starts: Any = (None, None), **options: Any
) -> TextPrediction:
    row = {"sentence": sentence, "subject": subject, "subject_type": types[0], "subject_start": starts[0]}
    row |= {"object": object_, "object_type": types[1], "object_start": starts[1]}
    return predict_texts(folder, [row], **options)[0]


def test_a_submission_has_a_line_a_row_with_probabilities_in_label_order(trained: RelationResult, tmp_path: Path) -> None:
    raw = make_raw_rows(12, start=400)
    for row in raw:
        del row["label"]
    path = tmp_path / "new.json"
    path.write_text(json.dumps(raw), "utf-8")
    submission = predict_file(Path(trained.run), str(path), tmp_path / "out", device="cpu")
    with Path(submission.path).open(encoding="utf-8", newline="") as handle:
        lines = list(csv.DictReader(handle))
    assert [line["id"] for line in lines] == [row["guid"] for row in raw]
    for line in lines:
        probs = json.loads(line["probs"])
        assert len(probs) == 30
        assert LABELS[probs.index(max(probs))] == line["pred_label"]
        assert sum(probs) == pytest.approx(1.0, abs=1e-4)


def test_bad_rows_of_a_file_to_predict_are_listed_not_guessed(trained: RelationResult, tmp_path: Path) -> None:
    raw = make_raw_rows(3, start=400)
    raw[1]["object_entity"]["end_idx"] += 1
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(raw), "utf-8")
    with pytest.raises(RelationDataError, match="row 2"):
        predict_file(Path(trained.run), str(path), tmp_path / "out")
    submission = predict_file(Path(trained.run), str(path), tmp_path / "out", skip_bad=True, device="cpu")
    assert (submission.rows, submission.skipped, [problem.row for problem in submission.problems]) == (2, 1, [2])


def test_a_submission_is_made_again_but_never_over_another(
    trained: RelationResult, dev_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, other_rows = tmp_path / "out", tmp_path / "other.json"
    other_rows.write_text(json.dumps(make_raw_rows(3, start=400)), "utf-8")
    command = ["re", "predict", trained.run, "--out", str(out), "--device", "cpu", "--data"]
    assert run([*command, str(dev_file)]) == 0
    submission = (out / "submission.csv").read_bytes()
    (out / "submission.csv").write_text("cut short", "utf-8")
    moved, same = shutil.copytree(trained.run, tmp_path / "moved"), shutil.copy(dev_file, tmp_path / "renamed.json")
    assert run([*command[:2], str(moved), *command[3:], str(same)]) == 0
    assert (out / "submission.csv").read_bytes() == submission
    monkeypatch.setattr(predict_module, "_predict", None)  # finished work is not done again, and other work is refused before any
    assert run([*command, str(dev_file)]) == 0
    capsys.readouterr()
    for options, changed in ((["--ensemble", str(dev_file)], "weights"), ([str(other_rows)], "rows")):
        assert run([*command[:-1], *options[:-1], "--data", options[-1]]) == 2
        message = capsys.readouterr().err
        assert f"{out} was begun with other bytes of the {changed} than this command has" in message
        assert "or choose another --out." in message
    (out / "manifest.json").unlink()
    assert run([*command, str(dev_file)]) == 2
    assert "does not say what it was made from; choose another --out" in capsys.readouterr().err
    assert (out / "submission.csv").read_bytes() == submission
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "notes.txt").write_text("mine", "utf-8")
    assert run([*command[:4], str(tmp_path / "foreign"), *command[5:], str(dev_file)]) == 2
    assert "holds something that is not ours and is left alone" in capsys.readouterr().err


def test_a_sentence_is_answered_and_an_ensemble_averages_the_seeds(trained: RelationResult) -> None:
    options: dict[str, Any] = {"types": ("PER", "LOC"), "device": "cpu"}
    best = predict_text(Path(trained.run), BORN, "이순신", "서울", **options)
    ensemble = predict_text(Path(trained.run), BORN, "이순신", "서울", ensemble=True, **options)
    assert best.ranked[0][0] == "per:place_of_birth"
    assert len(best.ranked) == 30
    assert ensemble.seeds == (0, 1)
    assert sum(p for _, p in ensemble.ranked) == pytest.approx(1.0, abs=1e-4)


def test_an_ambiguous_or_absent_word_is_not_guessed(trained: RelationResult) -> None:
    folder, twice = Path(trained.run), "서울 사람 이순신은 서울에서 태어났다."
    with pytest.raises(RelationDataError, match="occurs at 0, 11; say which one with --object-start"):
        predict_text(folder, twice, "이순신", "서울", types=("PER", "LOC"))
    prediction = predict_text(folder, twice, "이순신", "서울", types=("PER", "LOC"), starts=(None, 11), device="cpu")
    assert prediction.object.start == 11
    with pytest.raises(RelationDataError, match="does not occur"):
        predict_text(folder, twice, "이순신", "부산", types=("PER", "LOC"))
    with pytest.raises(RelationDataError, match="Invalid input"):
        predict_text(folder, twice, "이순신", "서울", types=("PER", "LOC"), starts=(None, 3))
    with pytest.raises(RelationDataError, match="the object's type 'PLACE' is not one of PER, ORG"):
        predict_text(folder, twice, "이순신", "사람", types=("PER", "PLACE"))


def test_the_rendered_sentence_shows_both_entities() -> None:
    prediction = TextPrediction(
        "가나다라", Entity("나", 1, 2, "PER"), Entity("라", 3, 4, "LOC"), (("per:title", 0.75), ("no_relation", 0.25)), (0,)
    )
    plain = render(prediction)
    assert plain.splitlines()[0] == "가[나](subject PER)다[라](object LOC)"
    assert "per:title     75.0%" in plain


def _first_line(sentence: str, subject: tuple[int, int, str], object_: tuple[int, int, str]) -> str:
    a, b = (Entity(sentence[low:high], low, high, kind) for low, high, kind in (subject, object_))
    return render(TextPrediction(sentence, a, b, (("no_relation", 1.0),), (0,))).splitlines()[0]


@pytest.mark.parametrize(
    ("subject", "object_", "expected"),
    [
        ((2, 4), (0, 4), "[서울[시청](subject ORG)](object LOC)에"),
        ((0, 4), (2, 4), "[서울[시청](object LOC)](subject ORG)에"),
        ((0, 2), (0, 4), "[[서울](subject ORG)시청](object LOC)에"),
        ((0, 4), (0, 2), "[[서울](object LOC)시청](subject ORG)에"),
        ((1, 3), (0, 4), "[서[울시](subject ORG)청](object LOC)에"),
        ((2, 4), (0, 2), "[서울](object LOC)[시청](subject ORG)에"),
    ],
)
def test_brackets_close_the_inner_entity_first(subject: tuple[int, int], object_: tuple[int, int], expected: str) -> None:
    assert _first_line("서울시청에", (*subject, "ORG"), (*object_, "LOC")) == expected


def test_a_type_that_was_not_given_is_not_shown() -> None:
    assert _first_line("서울시청에", (0, 2, ""), (2, 4, "")) == "[서울](subject)[시청](object)에"


def test_a_run_that_reads_types_answers_no_sentence_without_them(
    trained: RelationResult, capsys: pytest.CaptureFixture[str]
) -> None:
    for types in ([], ["--subject-type", "PER"], ["--object-type", "LOC"], ["--subject-type", "", "--object-type", "LOC"]):
        assert run(["re", "predict", trained.run, "--text", BORN, "--subject", "이순신", "--object", "서울", *types]) == 2
        message = capsys.readouterr().err.strip()
        assert "scheme typed" in message
        assert "--subject-type and --object-type, each one of PER, ORG, LOC, DAT, POH, NOH." in message
        assert "\n" not in message


@pytest.mark.parametrize("label_mask", ["off", "soft"])
def test_types_may_be_left_out_only_where_neither_scheme_nor_mask_reads_them(
    trained: RelationResult, relation_file: Path, tmp_path: Path, label_mask: Any
) -> None:
    recipe = recipe_from(RelationRecipe, {}, "test", Path(trained.run) / "recipe.yaml")
    recipe = replace(recipe, out=str(tmp_path / "run"), dev=None, scheme="plain", label_mask=label_mask, seeds=1, epochs=1)
    folder = Path(train_relation(recipe).run)
    if label_mask == "soft":
        with pytest.raises(RelationDataError, match="label mask soft"):
            predict_text(folder, BORN, "이순신", "서울")
        return
    without_types = predict_text(folder, BORN, "이순신", "서울", device="cpu")
    assert (without_types.subject.type, without_types.object.type) == ("", "")
    assert "[이순신](subject)은 [서울](object)에서" in render(without_types)
    for types in (("DAT", "NOH"), ("LOC", None)):  # whichever they are, the answer is the same, and only what was given is shown
        with_types = predict_text(folder, BORN, "이순신", "서울", types=types, device="cpu")
        assert with_types.ranked == without_types.ranked
        assert (with_types.subject.type, with_types.object.type) == (types[0], types[1] or "")


@pytest.mark.parametrize("mixed", [["--data", "FILE", "--out", "sub"], ["--data", "FILE"], ["--out", "sub"]])
def test_a_file_and_a_sentence_together_are_refused(
    trained: RelationResult, dev_file: Path, tmp_path: Path, mixed: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    paths = {"FILE": str(dev_file), "sub": str(tmp_path / "sub")}
    options = [paths.get(word, word) for word in mixed]
    sentence = ["--text", BORN, "--subject", "이순신", "--object", "서울", "--subject-type", "PER", "--object-type", "LOC"]
    assert run(["re", "predict", trained.run, *options, *sentence]) == 2
    printed = capsys.readouterr()
    assert f"{mixed[0]} is for a file of rows and --text for one text" in printed.err
    assert not printed.out
    assert not (tmp_path / "sub").exists()
    assert run(["re", "predict", trained.run, *options, "--object-start", "3"]) == 2
    assert "--object-start for one text" in capsys.readouterr().err


@pytest.mark.parametrize("ensemble", [False, True])
def test_a_seeds_model_alone_answers_as_its_run_does(
    trained: RelationResult, dev_file: Path, tmp_path: Path, *, ensemble: bool
) -> None:
    options: dict[str, Any] = {"types": ("PER", "LOC"), "device": "cpu"}
    of_run = predict_text(Path(trained.run), BORN, "이순신", "서울", **options)
    model = tmp_path / "best-model"
    shutil.copytree(Path(trained.run) / f"seed-{of_run.seeds[0]}" / "model", model)
    assert predict_text(model, BORN, "이순신", "서울", ensemble=ensemble, **options) == of_run
    submission = predict_file(model, str(dev_file), tmp_path / "out", ensemble=ensemble, device="cpu")
    assert submission.rows == 40


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="not a relation run"):
        predict_text(tmp_path, BORN, "이순신", "서울", types=("PER", "LOC"))


def test_a_run_or_a_folder_of_predictions_in_use_is_refused(
    trained: RelationResult, dev_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from coref_automl.base.locks import claimed, locked
    from coref_automl.cli.app import run

    with locked(Path(trained.run)):
        assert run(["re", "evaluate", trained.run, "--data", str(dev_file), "--device", "cpu"]) == 2
        assert f"{trained.run} is in use by" in capsys.readouterr().err
    out = tmp_path / "out"
    with claimed(out, "relation predictions"):
        assert run(["re", "predict", trained.run, "--data", str(dev_file), "--device", "cpu", "--out", str(out)]) == 2
        assert f"{out} is in use by" in capsys.readouterr().err


def test_a_model_stays_loaded_until_its_files_change(trained: RelationResult, tmp_path: Path) -> None:
    seeds = sorted(Path(trained.run).glob("seed-*/model"))
    folder = shutil.copytree(seeds[0], tmp_path / "model")
    arguments = (folder, BORN, "이순신", "서울")
    first = predict_text(*arguments, types=("PER", "LOC"), device="cpu")
    hits = scoring_module._loaded.cache_info().hits
    assert predict_text(*arguments, types=("PER", "LOC"), device="cpu") == first
    assert scoring_module._loaded.cache_info().hits == hits + 1
    shutil.copytree(seeds[1], folder, dirs_exist_ok=True)
    assert predict_text(*arguments, types=("PER", "LOC"), device="cpu").ranked != first.ranked
