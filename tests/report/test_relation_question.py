"""The question of relation extraction: paired by seed and by sentence; a method needs several pretraining seeds."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from coref_automl.comparison.archive import archive
from coref_automl.comparison.groups import read_groups
from coref_automl.comparison.relation_runs import find_relation, paired
from coref_automl.config import to_yaml
from coref_automl.relation.labels import LABELS, NO_RELATION
from coref_automl.relation.metrics import Scored, method_verdict
from coref_automl.relation.recipe import RelationRecipe
from coref_automl.report.checkpoint_report import report
from coref_automl.report.headline import relation_command
from coref_automl.report.language import Say
from coref_automl.report.page import Table, Text
from coref_automl.report.sections.relation import draw as relation
from coref_automl.report.subject import Subject, subject_of
from coref_automl.store import read_json, write_json, write_jsonl, write_text
from tests.comparison.conftest import Model, make_scores, write_evaluation
from tests.report.tables import silent_tables


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two objectives with three seeds of pretraining, and their base."""
    root = tmp_path_factory.mktemp("runs")
    models = [Model("base", 0, -1.0)]
    models += [Model(f"{kind}-128-s{s}", 200, 0.0, objective=kind, seed=s) for kind in ("mlm", "entity") for s in range(3)]
    for number, model in enumerate(models):
        write_evaluation(root, model, make_scores(model, documents=20, own=number))
    return root


def read_study(root: Path, relation: Path) -> Subject:
    found = find_relation([str(relation)])
    return subject_of(read_groups([str(root)])[0], say=Say("en"), margin=0.02, seed=0, target={}, relation=found)


def write_relation(root: Path, name: str, model: str, right: float, seed: int, *, marks: bool = True) -> Scored:
    """Three relation seeds that get a share of rows right; returns what the relation room makes of them."""
    rng = np.random.default_rng(seed)
    gold = np.random.default_rng(9).integers(0, 6, size=400)
    sentences = [f"s{number // 2:03d}" for number in range(400)]
    probabilities = np.zeros((3, 400, len(LABELS)), np.float32)
    for number in range(3):
        predicted = np.where(rng.random(400) < right, gold, rng.integers(0, 6, size=400))
        probabilities[number, np.arange(400), predicted] = 1
        lines = [
            {"guid": f"g{n}", **({"sentence": sentences[n]} if marks else {}), "gold": LABELS[g], "pred": LABELS[p], "probs": []}
            for n, (g, p) in enumerate(zip(gold.tolist(), predicted.tolist(), strict=True))
        ]
        write_jsonl(root / name / f"seed-{number}" / "predictions" / "dev.jsonl", lines)
    result = {
        "micro_f1": 50.0,
        "auprc": 50.0,
        "accuracy": 50.0,
        "split": "dev",
        "seeds": [{}, {}, {}],
        "model": model,
        "run": str(root),
    }
    write_json(root / name / "re_results.json", result)
    return Scored(gold, probabilities, np.array(sentences))


def test_relation_runs_are_judged_as_the_relation_room_judges_them(tmp_path: Path) -> None:
    assert LABELS[NO_RELATION] == "no_relation"
    ours = write_relation(tmp_path, "re-entity", "runs/entity-128-s0/checkpoint-200", 0.9, 1)
    theirs = write_relation(tmp_path, "re-mlm", "runs/mlm-128-s0/checkpoint-200", 0.6, 2)
    by_name = {run.name: run for run in find_relation([str(tmp_path)])}
    found, expected = paired(by_name["re-entity"], by_name["re-mlm"], seed=0), method_verdict(ours, theirs)
    assert found is not None
    assert found.seeds == 3
    assert found.answer.difference == pytest.approx(expected.difference)
    assert found.answer.over_documents.low == pytest.approx(expected.over_documents.low)
    assert found.answer.over_documents.high == pytest.approx(expected.over_documents.high)
    assert found.answer.p_seeds == pytest.approx(expected.p_seeds)
    assert found.answer.detectable == pytest.approx(expected.detectable)
    assert found.answer.shown
    assert expected.shown


def test_relation_runs_are_paired_by_the_number_of_their_seeds_and_by_sentence(tmp_path: Path) -> None:
    write_relation(tmp_path, "re-entity", "runs/entity-128-s0/checkpoint-200", 0.9, 1)
    write_relation(tmp_path, "re-mlm", "runs/mlm-128-s0/checkpoint-200", 0.6, 2)
    one, other = find_relation([str(tmp_path)])
    told = [{"seed": 0}, {"seed": 1}, {"seed": 2}], [{"seed": 2}, {"seed": 5}, {"seed": 7}]
    one, other = (replace(run, result={**run.result, "seeds": seeds}) for run, seeds in zip((one, other), told, strict=True))
    assert one.rows is not None
    assert other.rows is not None
    found = paired(one, other, seed=0)
    assert found is not None
    assert found.seeds == 1
    assert found.values == pytest.approx((one.rows.f1()[2], other.rows.f1()[0]))
    assert paired(one, replace(other, result={**other.result, "seeds": [{"seed": n} for n in (5, 6, 7)]}), seed=0) is None
    alone = replace(other, rows=replace(other.rows, sentences=np.arange(400)))  # without the sentences of its rows
    again = paired(one, alone, seed=0)
    assert again is not None
    assert again.answer.over_documents == found.answer.over_documents


def test_the_next_command_takes_the_rows_of_the_run_that_was_read_and_a_free_folder(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "--train klue-re-v1.1_train.json --out runs/re " in relation_command(read_study(runs, tmp_path))
    write_relation(tmp_path / "runs", "re", "base", 0.6, 1)
    write_text(tmp_path / "runs/re/recipe.yaml", to_yaml(RelationRecipe("base", "my rows.json", "runs/re", dev="dev.json")))
    study = read_study(runs, Path("runs"))
    chosen = study.recommendation.chosen
    told = f"--model {chosen} --train 'my rows.json' --dev dev.json --out runs/re-{Path(chosen).name} --seeds 3"
    assert relation_command(study) == f"coref-automl re train {told}"
    (tmp_path / f"runs/re-{Path(chosen).name}").mkdir()
    assert f"runs/re-{Path(chosen).name}-2 " in relation_command(study)


def test_runs_of_one_name_are_told_apart_and_other_settings_are_not_compared(tmp_path: Path) -> None:
    for name, settings in (("entity", "a"), ("mlm", "a"), ("base", "b")):
        write_relation(tmp_path / name, "typed", f"runs/{name}-128-s0/checkpoint-200", 0.8, len(name))
        path = tmp_path / name / "typed" / "re_results.json"
        write_json(path, {**read_json(path), "fingerprints": {"settings": settings, "data": "rows"}})
    by_name = {run.name: run for run in find_relation([str(tmp_path)])}
    assert set(by_name) == {"entity-typed", "mlm-typed", "base-typed"}
    assert paired(by_name["entity-typed"], by_name["mlm-typed"], seed=0) is not None
    assert paired(by_name["entity-typed"], by_name["base-typed"], seed=0) is None


def test_relation_extraction_is_answered_and_archived_without_its_rows(runs: Path, tmp_path: Path) -> None:
    write_relation(tmp_path / "re", "re-entity", "/else/runs/entity-128-s0/checkpoint-200", 0.9, 1)
    write_relation(tmp_path / "re", "re-mlm", "/else/runs/mlm-128-s0/checkpoint-200", 0.6, 2)
    write_relation(tmp_path / "re", "re-base", "/else/base", 0.6, 3, marks=False)
    made = archive(runs, tmp_path / "re", out=tmp_path / "kept")
    assert made.relation_runs == 3
    texts = [Path(report(*paths, out=tmp_path / name, lang="en").markdown).read_text("utf-8")
             for name, paths in (("a", (runs, tmp_path / "re")), ("b", (tmp_path / "kept",)))]  # fmt: skip
    part = [re.search(r"## Does it carry over to relation extraction\?.*?(?=\n## )", text, re.DOTALL) for text in texts]
    assert part[0] is not None
    assert part[1] is not None
    assert part[0].group() == part[1].group()
    assert "**Yes. That is said of these checkpoints, not of methods. micro-F1 (points), re-entity - re-mlm +" in part[0].group()
    assert "| re-base | base |" in part[0].group()
    kept = b"".join(path.read_bytes() for path in (tmp_path / "kept" / "relation").rglob("*") if path.is_file())
    assert b"/else" not in kept
    assert b"g399" not in kept
    assert not any(label.encode() in kept for label in LABELS)


def write_starts(root: Path, shares: dict[str, tuple[float, ...]]) -> None:
    """A relation run from each seed of pretraining, getting such a share of rows right; one share is the base."""
    for kind, found in shares.items():
        for seed, share in enumerate(found):
            model = "base" if kind == "base" else f"runs/{kind}-128-s{seed}/checkpoint-200"
            write_relation(root, f"{kind}-{seed}", model, share, 10 * len(kind) + seed)


def verdicts(study: Subject) -> list[list[list[str]]]:
    """The cells of the tables of differences."""
    question = relation(study)
    assert question is not None
    tables = [block for block in question.blocks if isinstance(block, Table)][1:]
    return [[[cell.text for cell in line] for line in table.rows] for table in tables]


def test_a_method_is_judged_over_the_seeds_of_pretraining(runs: Path, tmp_path: Path) -> None:
    write_starts(tmp_path, {"entity": (0.9, 0.88, 0.9), "mlm": (0.6, 0.62, 0.6), "base": (0.6,)})
    study = read_study(runs, tmp_path)
    question = relation(study)
    assert question is not None
    assert question.answer.startswith("Yes. micro-F1 (points), entity 128 - mlm 128 +")
    (methods,) = verdicts(study)
    assert [line[:3] for line in methods] == [
        ["entity 128", "mlm 128", "3"], ["entity 128", "base-0", "3"], ["mlm 128", "base-0", "3"],
    ]  # fmt: skip
    assert [line[-1].split(" (")[0] for line in methods] == ["better", "better", "not shown"]
    told = " ".join(block.text for block in question.blocks if isinstance(block, Text))
    assert "Benjamini-Hochberg over the 3 verdicts of this question" in told
    assert silent_tables([question]) == []
    by_name = {run.name: run.rows for run in study.relation}
    for line, others in zip(methods[:2], (["mlm-0", "mlm-1", "mlm-2"], ["base-0"] * 3), strict=True):
        sides = [(by_name[f"entity-{seed}"], by_name[others[seed]]) for seed in range(3)]
        table = 100 * np.stack([ours.f1() - theirs.f1() for ours, theirs in sides if ours is not None and theirs is not None])
        found = re.fullmatch(r"\+(\S+) \[\+(\S+), \+(\S+)\]", line[5])
        assert found is not None
        mean, low, high = map(float, found.groups())
        assert mean == pytest.approx(table.mean(), abs=0.05)
        for axis in (0, 1):  # neither other starts nor other relation seeds explain it
            reach = 4.302653 * table.mean(axis=axis).std(ddof=1) / np.sqrt(3)
            assert low <= table.mean() - reach + 0.05
            assert high >= table.mean() + reach - 0.05


def test_luck_in_pretraining_is_not_shown_as_a_better_method(runs: Path, tmp_path: Path) -> None:
    """One start of three is far better, the relation seeds agree with each other: a checkpoint's verdict, no method's."""
    write_starts(tmp_path, {"entity": (0.9, 0.6, 0.62), "mlm": (0.6, 0.62, 0.6)})
    by_name = {run.name: run for run in find_relation([str(tmp_path)])}
    alone = paired(by_name["entity-0"], by_name["mlm-0"], seed=0)
    assert alone is not None
    assert alone.answer.shown
    ((line,),) = verdicts(read_study(runs, tmp_path))
    assert line[-1].startswith("not shown")


def test_pairs_without_a_second_start_stay_verdicts_about_checkpoints(runs: Path, tmp_path: Path) -> None:
    write_starts(tmp_path, {"entity": (0.9, 0.88), "mlm": (0.6,), "base": (0.89,)})
    methods, checkpoints = verdicts(study := read_study(runs, tmp_path))
    assert [line[:3] for line in methods] == [["entity 128", "base-0", "2"]]
    assert methods[0][-1].startswith("not shown")
    assert checkpoints[0][-1] == "better"
    question = relation(study)
    assert question is not None
    assert question.answer.startswith("No difference shown. micro-F1 (points), entity 128 - base-0")  # methods lead
    assert [line[:3] for line in checkpoints] == [["entity-0", "mlm-0", "3"], ["mlm-0", "base-0", "3"]]


def test_runs_of_other_settings_are_no_seeds_of_a_method(runs: Path, tmp_path: Path) -> None:
    write_starts(tmp_path, {"entity": (0.9, 0.88), "mlm": (0.6, 0.62)})
    path = tmp_path / "entity-1" / "re_results.json"
    for held in tmp_path.glob("*/re_results.json"):
        write_json(held, {**read_json(held), "fingerprints": {"settings": "other" if held == path else "same"}})
    (checkpoints,) = verdicts(read_study(runs, tmp_path))
    assert [line[:3] for line in checkpoints] == [["entity-0", "mlm-0", "3"]]


def test_where_nothing_is_judged_the_reason_is_told(runs: Path, tmp_path: Path) -> None:
    write_starts(tmp_path / "one", {"entity": (0.9,)})
    write_starts(tmp_path / "unlike", {"entity": (0.9,), "mlm": (0.6,)})
    path = tmp_path / "unlike" / "mlm-0" / "re_results.json"
    write_json(path, {**read_json(path), "split": "another"})
    found = [relation(read_study(runs, tmp_path / name)) for name in ("one", "unlike")]
    assert [question.answer.split(".")[0] for question in found if question] == [
        "One run only: nothing to compare",
        "No two runs can be paired (starts of one length and seed, the same rows and settings), so no verdict",
    ]
