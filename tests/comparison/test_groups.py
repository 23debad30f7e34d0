"""Runs that share a name, checkpoints without a record, means of several seeds: each keeps to its own run and base."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coref_automl.base.records import Document
from coref_automl.base.say import Say
from coref_automl.base.store import read_json, write_json
from coref_automl.cli.app import run as command
from coref_automl.comparison.bases import own_base
from coref_automl.comparison.groups import read_groups
from coref_automl.comparison.reader import open_results
from coref_automl.comparison.scores import choose_metric
from coref_automl.evaluation.answers import save_table
from coref_automl.evaluation.evalset import freeze, half_set
from coref_automl.evaluation.metrics import halves
from coref_automl.evaluation.run import EvaluateRecipe, evaluate
from coref_automl.extras.pages.sections import Subject, read_subject
from coref_automl.models.load import tokenizer_fingerprint
from tests.comparison.conftest import Model, make_scores, write_evaluation
from tests.evaluation.tiny import documents, freeze_tiny, items, noun_table, save_checkpoint, tokenizer_of


def write(root: Path, *models: Model, weights: str = "", base: str = "base") -> None:
    for number, model in enumerate(models):
        path = write_evaluation(root, model, make_scores(model, documents=20, own=number)) / "result.json"
        record = read_json(path)
        record["fingerprints"]["weights"] += weights
        if model.step:
            record["provenance"]["base"] = base
        write_json(path, record)


def read_study(root: Path) -> Subject:
    return read_subject(open_results([str(root)]), Say("en"))


def test_items_that_a_model_does_not_count_are_no_part_of_a_metric(tmp_path: Path) -> None:
    for number, model in enumerate((Model("base", 0, -1.0), Model("entity", 100, 0.1))):
        scores = make_scores(model, documents=60, own=number, tasks=("real", "new"))
        rare = [replace(score, rank=0 if score.task == "new" or at % 3 else score.rank) for at, score in enumerate(scores)]
        write_evaluation(tmp_path, model, rare)
    (group,) = read_groups(open_results([str(tmp_path)]))
    assert group.metrics() == ["real1", "real5"]
    assert choose_metric(group, None) == "real1"
    assert group.columns("real1").items == sum(score.rank > 0 for score in rare)


def test_noun1_leads_where_it_was_run_and_has_the_items_of_both_tasks(tmp_path: Path) -> None:
    model = Model("base", 0, -1.0)
    write_evaluation(tmp_path, model, make_scores(model, documents=60, tasks=("real", "new")))
    (group,) = read_groups(open_results([str(tmp_path)]))
    assert choose_metric(group, None) == "noun1"
    both, *tasks = (group.columns(name) for name in ("noun1", "real1", "new1"))
    assert both.items == sum(task.items for task in tasks)
    assert both.sizes.sum() == both.items
    assert len(both.sizes) == 60  # documents of both tasks


def test_a_composite_without_items_of_a_part_has_no_items(tmp_path: Path) -> None:
    """All LAMBADA items are of one document, which lies in one half."""
    model = Model("entity", 100, 0.1)
    scores = [
        replace(score, cluster="one") if score.task == "lambada" else score for score in make_scores(model, documents=40, own=0)
    ]
    write_evaluation(tmp_path, model, scores)
    (group,) = read_groups(open_results([str(tmp_path)]))
    items = [group.columns("score", half=half).items for half in ("select", "confirm")]
    assert (min(items), max(items) > 0) == (0, True)


def test_two_runs_of_one_name_are_two_runs(tmp_path: Path) -> None:
    write(tmp_path / "x", Model("base", 0, -1.0), Model("entity", 100, 0.1), Model("entity", 200, 0.2))
    write(tmp_path / "y", Model("entity", 100, 0.8), Model("entity", 200, 0.9), weights="other")
    study = read_study(tmp_path)
    assert {run: [entry.name for entry in entries] for run, entries in study.runs().items()} == {
        "x-entity": ["x-entity/checkpoint-100", "x-entity/checkpoint-200"],
        "y-entity": ["y-entity/checkpoint-100", "y-entity/checkpoint-200"],
    }


@pytest.mark.parametrize("other", [{"seed": 1}, {"objective": "mlm"}, {"seq_len": 256}])
def test_runs_of_one_name_that_were_trained_differently_are_two_runs_even_without_a_common_step(
    tmp_path: Path, other: dict[str, Any]
) -> None:
    write(tmp_path / "x", Model("base", 0, -1.0), Model("entity", 100, 0.1))
    write(tmp_path / "y", Model("entity", 200, 0.8, **other), Model("entity", 400, 0.9, **other))
    assert {run.split(" @")[0] for run in read_study(tmp_path).runs()} == {"x-entity", "y-entity"}


@pytest.mark.parametrize("archived", [False, True])
def test_a_run_that_moved_between_two_evaluations_stays_one_and_its_folders_are_named(tmp_path: Path, archived: bool) -> None:
    """Nothing but its folders tells it from two runs that were trained alike and share no step."""
    runs, kept = tmp_path / "runs", tmp_path / "kept"
    write(runs / "before", Model("base", 0, -1.0), Model("entity", 100, 0.1))
    write(runs / "after", Model("entity", 200, 0.2))
    for folder in ("before", "after") if archived else ():
        assert command(["archive", str(runs / folder), "--out", str(kept / folder)]) == 0
    root = kept if archived else runs
    study = read_study(root)
    assert list(study.runs()) == ["entity"]
    (note,) = study.notes
    assert note == f"entity: {root}/after/entity, {root}/before/entity count as one run: their records agree."
    assert read_study(root / "before").notes == ()


def test_a_checkpoint_without_a_record_is_taken_to_have_begun_from_the_studys_base(tmp_path: Path) -> None:
    write(tmp_path, Model("base", 0, -1.0), Model("entity", 100, 0.1), Model("entity", 200, 0.2))
    study = read_study(tmp_path)
    (first, *_) = study.runs()["entity"]
    without = replace(first, evaluation=replace(first.evaluation, provenance=None))
    assert study.choice.base is not None
    assert own_base(study.entries, without, study.choice.base) is study.choice.base
    longer = replace(without, evaluation=replace(without.evaluation, seq_len=256))
    assert own_base(study.entries, longer, study.choice.base) is None  # a longer window is itself an advantage
    base = replace(study.choice.base, evaluation=replace(study.choice.base.evaluation, seq_len=256))
    assert own_base([*study.entries, base], longer, study.choice.base) is base


@pytest.mark.parametrize("archived", [False, True])
@pytest.mark.parametrize("half", ["select", "confirm"])
def test_common_leaves_each_set_its_halves_beside_a_set_that_is_a_half(tmp_path: Path, half: str, archived: bool) -> None:
    """Both are small: each is split as it is alone, and documents of the half set stay in their half."""
    root, model = tmp_path / "runs", Model("entity", 100, 0.1)
    write_evaluation(root, model, make_scores(model, documents=60, tasks=["real"]), set_name="a")
    others = make_scores(model, documents=60, tasks=["real"], set_name="b")
    others = [replace(score, cluster=f"b {score.cluster}") for score in others]
    result = write_evaluation(root, model, others, set_name="b") / "result.json"
    if archived:
        assert command(["archive", str(root), "--out", str(tmp_path / "kept")]) == 0
        root, result = tmp_path / "kept", tmp_path / "kept" / result.relative_to(root)

    def halves_at(*, common: bool = True, evalset: str | None = None) -> dict[str, str]:
        (group,) = read_groups(open_results([str(root)]), common=common, evalset=evalset)
        assert group.columns("real1").documents == (120 if common else 60)  # both sets number theirs from 0 in an archive
        return dict(zip(group.items.index, group.items.halves.tolist(), strict=True))

    alone = halves_at(common=False, evalset="a")
    assert set(alone.values()) == {"select", "confirm"}
    assert halves_at() == alone | halves_at(common=False, evalset="b")
    write_json(result, read_json(result) | {"half": half})
    assert halves_at() == alone | {score.item: half for score in others}


def test_a_document_that_a_whole_set_chooses_with_does_not_judge_by_another_sets_half(tmp_path: Path) -> None:
    """Document 2 judges by the half of all four documents, and chooses among the first three."""
    whole, first = freeze_tiny(tmp_path / "whole", tasks=("real",)), [items()[at] for at in range(8)]
    assert {item.document for item in first} == {"0", "1", "2"}
    texts = [Document(id=name, source="tiny", text=text) for name, text in documents().items() if name != "3"]
    freeze(tmp_path / "chose", [(document, ()) for document in texts], {"real": first}, {"name": "chose"})
    half_set(whole, tmp_path / "judged", "confirm")
    save_table(tmp_path / "chose", tokenizer_fingerprint(tokenizer_of("wordpiece")), noun_table())
    model = save_checkpoint(tmp_path / "models" / "one")

    def halves_on(*sets: str) -> set[tuple[str, str]]:
        recipe = EvaluateRecipe(eval_sets=tuple(tmp_path / name for name in sets), device="cpu", dtype="float32")
        evaluate([str(model)], replace(recipe, out=str(tmp_path / "out" / "-".join(sets))))
        group = read_groups(open_results([str(tmp_path / "out" / "-".join(sets))]), common=True)[0].items
        return {(item.split("-")[1], half) for item, half in zip(group.index, group.halves.tolist(), strict=True)}

    assert halves_on("judged") == {("1", "confirm"), ("2", "confirm")}
    assert halves_on("chose", "judged") == {("0", "select"), ("1", "confirm"), ("2", "select")}


def test_a_document_of_a_select_half_never_judges(tmp_path: Path) -> None:
    """A set and both halves of it, as `tune` splits them; a document in halves of two sets has chosen."""
    model = Model("entity", 100, 0.1)
    scores = make_scores(model, documents=60, tasks=["real"])
    whole = halves(scores)
    for name, of_each in (("select", whole), ("confirm", whole), ("again", ["confirm"] * len(scores))):
        half = "select" if name == "select" else "confirm"
        part = [score for score, of in zip(scores, of_each, strict=True) if of == half]
        result = write_evaluation(tmp_path, model, part, set_name=name) / "result.json"
        write_json(result, read_json(result) | {"half": half})
    write_evaluation(tmp_path, model, scores)
    items = read_groups(open_results([str(tmp_path)]), common=True)[0].items
    halves_found = dict(zip(items.index, items.halves.tolist(), strict=True))
    assert halves_found == {score.item: of for score, of in zip(scores, whole, strict=True)}
