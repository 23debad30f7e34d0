"""Which runs are one method, which base is theirs, which documents judge them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coref_automl.base.records import Half, Task
from coref_automl.base.store import read_json, write_json
from coref_automl.cli.app import run as command
from coref_automl.comparison.groups import read_groups
from coref_automl.comparison.reader import open_results
from coref_automl.comparison.study import Study, study_at
from coref_automl.evaluation.metrics import halves, hits
from coref_automl.evaluation.results import find_evaluations
from coref_automl.statistics.crossed import crossed_verdict
from tests.comparison.conftest import Model, make_scores, write_evaluation

TASKS: tuple[Task, ...] = ("real", "lambada")


def write(root: Path, models: Sequence[Model], *, documents: int = 60) -> Path:
    for number, model in enumerate(models):
        write_evaluation(root, model, make_scores(model, documents=documents, tasks=TASKS, own=number))
    return root


def read(root: Path) -> Study:
    return study_at(open_results([str(root)]), read_groups(open_results([str(root)]))[0], margin=0.02, seed=0)


def change(root: Path, pattern: str, **changes: Any) -> None:
    """Change the training record of some evaluations."""
    for path in root.glob(f"{pattern}/evaluations/*/*/result.json"):
        record = read_json(path)
        write_json(path, record | {"provenance": record["provenance"] | changes})


def methods(*names: str, seeds: int = 3) -> list[Model]:
    skills = {"mlm": -0.9, "entity": 0.3}
    return [
        Model("base", 0, -1.0),
        *(Model(f"{name}-128-s{s}", 100, skills[name], objective=name, seed=s) for name in names for s in range(seeds)),
    ]


def names(study: Study) -> dict[str, int]:
    return {arm.name: arm.seeds for arm in study.arms}


def hits_of(root: Path, objective: str, half: Half | None) -> tuple[list[np.ndarray], np.ndarray]:
    """Hits of the last checkpoints of a method, read back from its stored items."""
    values = []
    for seed in range(3):
        (stored,) = find_evaluations([root / f"{objective}-128-s{seed}" / "checkpoint-100"])
        scores = stored.scores()
        spoken = [score for score, of in zip(scores, halves(scores), strict=True) if half in (None, of)]
        _, hit, clusters = hits(spoken, "real1")
        values.append(hit)
    return values, clusters


@pytest.mark.parametrize(("changes", "half"), [({}, None), ({"planned_end": True}, None), ({"planned_end": False}, "confirm")])
def test_last_checkpoints_are_judged_on_all_documents_unless_the_set_had_a_say(
    tmp_path: Path, changes: dict[str, bool], half: Half | None
) -> None:
    root = write(tmp_path, methods("mlm", "entity"))
    change(root, "entity-*", **changes)
    claim = read(root).answer.of_pair("entity 128", "mlm 128", "real1")
    (ours, clusters), (theirs, _) = (hits_of(root, objective, half) for objective in ("entity", "mlm"))
    assert claim is not None
    assert claim.documents == ("confirm" if half else "all")
    assert claim.difference.value == pytest.approx(crossed_verdict(ours, theirs, clusters).difference)
    assert claim.values == pytest.approx((np.mean(ours), np.mean(theirs)))


def test_runs_that_end_at_epochs_of_their_own_may_have_been_stopped(tmp_path: Path) -> None:
    root = write(tmp_path, methods("entity"))
    for seed in range(3):
        change(root, f"entity-128-s{seed}", epoch=2 + seed / 4)
    assert read(root).answer.questions[0].lead.documents == "confirm"


def test_methods_are_told_by_their_owners_names_their_data_and_their_base(tmp_path: Path) -> None:
    models = [*methods("mlm"), *(Model(f"light-128-s{s}", 100, 0.3, objective="entity", seed=s) for s in range(2))]
    models += [Model(f"entity-big-s{s + 2}", 100, 0.3, seed=s + 2) for s in range(2)]
    models += [Model(f"entity-s{s}", 100, 0.3, seed=s) for s in range(2)]
    root = write(tmp_path, models)
    change(root, "entity-big-*", dataset="big")
    assert names(read(root)) == {"mlm 128": 3, "entity 128": 2, "entity-big 128": 2, "light 128": 2}
    for seed in range(2):
        change(root, f"entity-s{seed}", dataset=f"/moved/{seed}", dataset_bytes="abc")
    assert names(read(root))["entity 128"] == 2  # data is told by its bytes


def test_a_method_keeps_its_name_where_a_run_is_renamed(tmp_path: Path) -> None:
    root = write(tmp_path, methods("mlm", seeds=2), documents=10)
    for seed in range(2):
        change(root, f"mlm-128-s{seed}", run=f"renamed{seed}", method="light")
    assert names(read(root)) == {"light 128": 2}


def test_methods_need_not_have_the_same_seeds_and_lengths_are_not_mixed(tmp_path: Path) -> None:
    models = [Model("base", 0, -1.0), *(Model(f"mlm-s{seed}", 100, -0.9, objective="mlm", seed=seed) for seed in (0, 1))]
    root = write(tmp_path, [*models, *(Model(f"entity-s{seed}", 100, 0.4, seed=seed) for seed in (1, 2, 3))])
    claim = read(root).answer.of_pair("entity 128", "mlm 128", "real1")
    assert claim is not None
    assert (claim.seeds, claim.verdict) == ((3, 2), "better")
    change(root, "entity-*", seq_len=64)
    other = read(root)
    assert list(names(other)) == ["mlm 128", "entity 64 @128"]
    assert other.answer.question("method") is None


def test_checkpoints_of_seeds_meet_by_epoch_and_runs_at_their_ends(tmp_path: Path) -> None:
    """Rows hold unlike tokens; --max-minutes and --stop-when-flat leave ends of their own."""
    models = [Model("base", 0, -1.0)]
    for seed in range(2):
        for step, tokens in ((50, 51_000 + 300 * seed), (100, 100_000), (150 + 10 * seed, 149_000)):
            models.append(Model(f"entity-s{seed}", step, 0.1, tokens=tokens, seed=seed))
    models.append(Model("entity-s2", 170, 0.1, seed=2))
    (arm,) = read(write(tmp_path, models)).arms
    assert [{seed: entry.step for seed, entry in step.items()} for step in arm.with_curve().matched_checkpoints()] == [
        {0: 50, 1: 50}, {0: 100, 1: 100}, {0: 150, 1: 160},
    ]  # fmt: skip


def test_a_checkpoint_that_all_began_from_is_their_base(tmp_path: Path) -> None:
    root = write(tmp_path, [Model("start", 50, 3.0), *(Model(f"entity-s{seed}", 100, 0.1, seed=seed) for seed in range(2))])
    change(root, "entity-*", base="/elsewhere/runs/start/checkpoint-50")
    study = read(root)
    assert study.choice.base is not None
    assert study.choice.base.evaluation.checkpoint == "start/checkpoint-50"
    assert [arm.base for arm in study.arms] == ["start/checkpoint-50"]
    assert study.answer.action == "keep base"


def test_methods_from_other_bases_never_share_a_name(tmp_path: Path) -> None:
    """Two checkpoints of one run, two models of one label, and the same base in two places without bytes."""
    models = [Model(f"{run}-128-s{seed}", 100, 0.1, seed=seed) for run in ("own", *"abcd") for seed in range(2)]
    root = write(tmp_path, [Model("base", 0, -1.0), *(replace(m, run=f"entity-{m.run}") for m in models)], documents=10)
    change(root, "entity-*", method="entity")
    bases = {"a": ("start/checkpoint-5", ""), "b": ("start/checkpoint-9", ""), "c": ("x/n", "12"), "d": ("y/n", "34")}
    for run, (base, weights) in bases.items():
        change(root, f"entity-{run}-*", base=f"/elsewhere/{base}", base_bytes=weights)
    labels = ["entity 128 (n 12)", "entity 128 (n 34)", "entity 128 (start/checkpoint-5)", "entity 128 (start/checkpoint-9)"]
    assert names(read(root)) == {"entity 128": 2} | dict.fromkeys(labels, 2)
    for seed in range(2):  # two more seeds of b, whose base has moved
        change(root, f"entity-d-128-s{seed}", base="/moved/start/checkpoint-9", base_bytes="", seed=seed + 2)
    assert names(read(root))["entity 128 (start/checkpoint-9)"] == 4


def test_records_with_and_without_the_bytes_of_their_base_never_share_a_name(tmp_path: Path) -> None:
    models = [Model(f"{run}-s{seed}", 100, 0.1, seed=seed) for run in ("new", "old") for seed in range(2)]
    root = write(tmp_path, [Model("base", 0, -1.0), *models], documents=10)
    change(root, "*", method="entity")
    change(root, "new-*", base_bytes="wbase0")
    assert names(read(root)) == {"entity 128": 2, "entity 128 (base)": 2}


def test_a_method_without_recorded_data_is_not_named_by_it(tmp_path: Path) -> None:
    root = write(tmp_path, [Model("base", 0, -1.0), Model("a", 100, 0.1), Model("b", 100, 0.1)], documents=10)
    change(root, "*", method="light")
    assert list(names(read(root))) == ["b 128", "light 128"]


def test_each_run_is_judged_against_the_model_it_began_from(tmp_path: Path) -> None:
    """A run from `weak`, a better one from `strong`, and one from a model that was not evaluated."""
    models = [
        Model("strong", 0, 1.0),
        Model("weak", 0, -1.5),
        *(Model(run, 100, skill) for run, skill in (("a", 2.0), ("b", 0.0), ("c", 0.0))),
    ]
    root = write(tmp_path, models, documents=90)
    for run, base in (("a", "strong"), ("b", "weak"), ("c", "lost")):
        change(root, run, base=f"/elsewhere/{base}")
    it = read(root).answer
    verdicts = {claim.a: claim.verdict for claim in it.questions[0].claims}
    assert verdicts == {"a/checkpoint-100": "better", "b/checkpoint-100": "better"}  # beside `strong`, b would be worse


def test_archives_answer_as_the_runs_they_came_from(tmp_path: Path) -> None:
    from coref_automl.comparison.archive import archive

    root = write(tmp_path / "runs", methods("mlm", "entity"))
    archive(root, out=tmp_path / "kept")
    before, after = read(root).answer, read(tmp_path / "kept").answer
    assert after.questions == before.questions
    shutil.rmtree(root)
    gone = read(tmp_path / "kept").answer
    assert (gone.action, gone.method) == (before.action, before.method)


@pytest.mark.parametrize("method", ["", "mlm"])
def test_runs_of_one_name_in_two_archives_are_two_methods(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """As they are in two folders of runs, and whatever the current folder; a run keeps both of its checkpoints."""
    monkeypatch.chdir(tmp_path)
    for folder, skill in (("x", -0.9), ("y", 0.5)):
        runs = [Model(f"mlm-128-s{s}", step, skill, objective="mlm", seed=s) for s in range(2) for step in (100, 200)]
        write(tmp_path / folder, [Model("base", 0, -1.0), *runs], documents=20)
        change(tmp_path / folder, "mlm-*", method=method, dataset="texts", dataset_bytes=folder)
        for path in Path(folder).glob("mlm-*/evaluations/*/*/result.json"):
            record = read_json(path)
            write_json(path, record | {"fingerprints": record["fingerprints"] | {"weights": f"{folder}{path.parent}"}})
        assert command(["archive", str(tmp_path / folder), "--out", f"kept/{folder}"]) == 0

    def runs_of(*paths: str) -> list[list[list[str]]]:
        results = open_results(paths)
        arms = study_at(results, read_groups(results)[0], margin=0.02, seed=0).arms
        return [[[entry.name for entry in run] for run in arm.runs.values()] for arm in arms]

    expected = [[[f"{folder}-mlm-128-s{s}/checkpoint-{step}" for step in (100, 200)] for s in range(2)] for folder in "xy"]
    assert runs_of("x", "y") == expected
    shutil.rmtree("x")
    assert runs_of("kept/x", "y") == expected
    shutil.rmtree("y")
    assert runs_of("kept/x", "kept/y") == expected
    monkeypatch.chdir("kept/x")
    assert runs_of(".", "../y") == expected
    capsys.readouterr()
    assert command(["compare", ".", "../y", "--json"]) == 0
    rows = {row["name"]: row["value"] for row in json.loads(capsys.readouterr().out)["rows"]}
    assert set(rows) == {"base", *(name for method in expected for run in method for name in run)}
