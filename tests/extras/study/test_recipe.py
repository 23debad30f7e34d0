"""What a study refuses, in one sentence, before anything is trained; what it says beforehand."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

from coref_automl.base.errors import ModelError, RecipeError
from coref_automl.base.job import Job, Running
from coref_automl.base.launch import LocalLauncher
from coref_automl.base.pool import Call, Returned
from coref_automl.base.progress import quiet
from coref_automl.base.records import Objective
from coref_automl.base.store import write_text
from coref_automl.cli.app import run as command
from coref_automl.cli.options import recipe_from
from coref_automl.extras.study.adapt import adapt
from coref_automl.extras.study.plan import open_plan
from coref_automl.extras.study.preflight import study_preflight
from coref_automl.extras.study.probe import Size
from coref_automl.extras.study.recipe import ExperimentRecipe, with_methods
from coref_automl.extras.study.run import run_experiment
from coref_automl.models.build import build_masked_lm
from coref_automl.models.load import load_tokenizer
from coref_automl.training.folder import best_of
from tests.extras.study.conftest import LENGTH, Bench

ROOT = Path(__file__).parents[3]
Make = Callable[..., ExperimentRecipe]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"methods": {}}, "needs methods"),
        ({"methods": {"mlm-2": {}}}, "one word without"),
        ({"methods": {2024: {"objective": "mlm"}}}, "methods should have text as keys, not 2024. Put it in quotation marks."),
        ({"methods": {"mlm": {"max_minutes": 1}}}, "max_minutes is set by the study; methods are compared at equal tokens"),
        ({"methods": {"mlm": {"epoch": 1}}}, "Did you mean 'epochs'"),
        ({"methods": {"entiti": {}}}, "methods: entiti: objective"),
        ({"train": {"seed": 1}}, "train: seed is set by the study; give seeds and first_seed"),
        ({"model": "new:tiny"}, "starts from a trained base"),
        ({"datasets": []}, "A study needs data"),
        ({"lengths": [96]}, "No dataset has blocks that 96 tokens divide"),
        ({"lengths": [64, 64]}, "different numbers of tokens"),
        ({"lengths": [0]}, "each at least 1"),
        ({"relation": {"train": "rows.json", "shares": [0.0]}}, "shares are different numbers above 0"),
        ({"relation": {"train": "rows.json", "settings": {"max_rows": 5}}}, "max_rows is set by the study"),
        ({"coreference": {"data": "novels.jsonl", "documents": "test"}}, "documents"),
        (
            {"relation": {"train": "rows.json", "start": "chosen"}, "keep_weights": False},
            "needs the weights of the chosen run",
        ),
        ({"seeds": 0}, "seeds should be from 1 to 1,000"),
    ],
)
def test_what_cannot_be_is_refused(bench: Bench, tmp_path: Path, changes: dict[str, Any], told: str) -> None:
    with pytest.raises(RecipeError) as error:
        _ = open_plan(bench.recipe(tmp_path / "study", **changes), tmp_path / "study", quiet()).steps
    assert told in str(error.value)
    assert not (tmp_path / "study").exists()


def test_methods_that_would_see_different_numbers_of_tokens_are_refused(
    bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unequal = {"mlm": {}, "entity": {"max_tokens": 8_000}}
    path = bench.file(tmp_path / "study.yaml", tmp_path / "study", methods=unequal)
    capsys.readouterr()
    assert command(["study", "--recipe", str(path)]) == 2
    told = capsys.readouterr().err
    assert re.search(r"mlm 64 would see 1,\d{3} tokens and entity 64 8,\d{3}", told)
    assert "same max_tokens or epochs" in told
    assert not (tmp_path / "study").exists()


def test_a_method_without_settings_is_an_objective_and_settings_win_over_shared_ones(recipe: Make) -> None:
    more = {"objective": "entity", "entity_rate": 0.6}
    made = recipe(methods={"entity": {}, "more": more}, train={"entity_rate": 0.2, "epochs": 1})
    assert made.settings("entity") == {"objective": "entity", "entity_rate": 0.2, "epochs": 1}
    assert made.settings("more")["entity_rate"] == 0.6
    assert list(with_methods(made, ["more"]).methods) == ["more"]
    with pytest.raises(RecipeError, match="mor"):
        with_methods(made, ["mor"])


def test_a_step_names_the_gpu_it_was_given_as_it_sees_it(
    bench: Bench, recipe: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    wanted = recipe(relation=bench.relation, coreference=bench.coreference, device="cuda:1")
    steps = open_plan(wanted, tmp_path, quiet()).steps
    assert {step.job(tmp_path, "base").recipe["settings"]["device"] for step in steps} == {"cuda:0"}


def test_the_gpu_asked_for_is_the_one_that_is_timed_and_trained_on(recipe: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps call it cuda:0, and once the launcher and the preflight were given that name, too."""
    given: list[Any] = []

    def timed(jobs: list[Call], *, devices: list[str], **_: object) -> list[Returned]:
        given.append((devices, jobs[0].arguments["recipe"]["device"]))
        write_text(Path(jobs[0].arguments["sizes_file"]), json.dumps(Size(1, 1.0, 100.0).to_json()) + "\n")
        return [Returned(jobs[0], "2 do not fit")]

    def started(self: LocalLauncher, job: Job, slot: int) -> Running:
        given.append((self.environment(slot)["CUDA_VISIBLE_DEVICES"], job.recipe["settings"]["device"]))
        raise KeyboardInterrupt

    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr("coref_automl.extras.study.probe.run_calls", timed)
    monkeypatch.setattr(LocalLauncher, "start", started)
    wanted = recipe(device="cuda:1")
    assert study_preflight(wanted).device == "cuda:1"
    with pytest.raises(KeyboardInterrupt):
        run_experiment(wanted)
    assert given == [(["cuda:1"], "cuda:0"), ("1", "cuda:0")]
    with pytest.raises(RecipeError, match=r"so the device cuda:1 cannot be used; set CUDA_VISIBLE_DEVICES=1 "):
        adapt(wanted)
    with pytest.raises(ModelError, match="no such CUDA device, so --device cuda:2"):
        study_preflight(recipe(device="cuda:2"))


def test_steps_are_planned_seed_by_seed_with_the_base_first(bench: Bench, recipe: Make, tmp_path: Path) -> None:
    train = {"max_tokens": 40_000, "batch": 8, "checkpoints": 2}  # at 4,000, half a step is more than lengths may differ by
    wanted = recipe(lengths=[LENGTH, 32], relation=bench.relation, coreference=bench.coreference, train=train)
    steps = open_plan(wanted, tmp_path, quiet()).steps
    assert [step.label for step in steps[:5]] == [
        "evaluate base-64", "evaluate base-32", "relation 50pct-base-s0", "relation 100pct-base-s0", "coreference base-s0",
    ]  # fmt: skip
    assert [step.name for step in steps if step.kind == "train"][:5] == [
        "mlm-64-s0", "entity-64-s0", "mlm-32-s0", "entity-32-s0", "mlm-64-s1",
    ]  # fmt: skip
    assert [step.label for step in steps[5:10]] == [
        "train mlm-64-s0", "evaluate mlm-64-s0", "relation 50pct-mlm-64-s0", "relation 100pct-mlm-64-s0", "coreference mlm-64-s0",
    ]  # fmt: skip
    of_base: list[Any] = [step.recipe for step in steps if step.kind == "relation" and step.run is None]
    assert [(recipe.max_rows, recipe.first_seed) for recipe in of_base] == [(40, 0), (None, 0), (40, 1000), (None, 1000)]
    seeds = {(step.name.rpartition("-")[2], step.recipe.first_seed) for step in steps if step.kind in ("relation", "coreference")}  # type: ignore[union-attr]
    assert seeds == {("s0", 0), ("s1", 1000)}  # of base and methods alike, so that the k-th are paired and no luck is in all


def test_what_starts_from_a_choice_lies_in_folders_that_every_system_can_name(bench: Bench, recipe: Make, tmp_path: Path) -> None:
    stages = {"relation": {**bench.relation, "start": "chosen"}, "coreference": {**bench.coreference, "start": "chosen"}}
    odd = tmp_path / "runs" / "a: 1?"
    shutil.copytree(bench.home / "model", odd)
    build_masked_lm("tiny", load_tokenizer(str(odd)), seq_len=128, seed=1).save_pretrained(odd)
    plan = open_plan(recipe(**stages), tmp_path / "out", quiet())
    names = {step.kind: {step.name} for step in plan.steps_from_recommended(str(odd))}
    assert names["coreference"] == {"runs-a--1-"}
    assert names["relation"] == {"100pct-runs-a--1-"}


def test_a_base_that_is_chosen_under_another_path_is_not_fine_tuned_twice(bench: Bench, recipe: Make, tmp_path: Path) -> None:
    plan = open_plan(recipe(coreference={**bench.coreference, "start": "chosen"}), tmp_path / "out", quiet())
    assert [step.name for step in plan.steps if step.kind == "coreference"] == ["base"]
    assert plan.steps_from_recommended(os.path.relpath(plan.recipe.model)) == []


def test_a_run_as_the_base_means_one_checkpoint_of_it_for_every_step(bench: Bench, recipe: Make, tmp_path: Path) -> None:
    run = tmp_path / "base-run"
    line = f"train --model {bench.home / 'model'} --dataset {bench.home / 'dataset'} --max-tokens 4000 --batch 8 --checkpoints 2"
    watched = ["--eval-set", str(bench.home / "evalset"), "--device", "cpu", "--out", str(run)]
    assert command([*line.split(), *watched]) == 0
    plan = open_plan(recipe(model=str(run), relation=bench.relation, coreference=bench.coreference), tmp_path / "out", quiet())
    starts = {step.job(plan.out, plan.recipe.model).recipe["start"] for step in plan.steps if step.run is None}
    trained = {work.recipe.model for work in plan.prepared.values()}
    assert starts == trained == {str(best_of(run))}


def test_halves_of_sets_of_one_name_are_kept_apart(bench: Bench, recipe: Make, tmp_path: Path) -> None:
    sets = [tmp_path / name / "eval" for name in ("news", "novels")]
    for number, folder in enumerate(sets):
        line = f"prepare eval --source bundled:synthetic --limit {16 + 14 * number} --holdout 0.4 --per-source 40 --task real"
        assert command([*line.split(), "--model", str(bench.home / "model"), "--out", str(folder)]) == 0
    wanted = recipe(evaluate={"sets": [str(folder) for folder in sets], "half": "select"})
    opened = open_plan(wanted, tmp_path / "out", quiet()).sets
    assert len({evalset.folder for evalset in opened}) == 2
    assert len({evalset.fingerprint for evalset in opened}) == 2


@pytest.mark.parametrize("name", ["ko-mini-study", "kf-deberta-study"])
def test_a_published_recipe_reads_and_names_objectives_that_exist(name: str) -> None:
    made = recipe_from(ExperimentRecipe, {"out": "studies/a"}, "test", ROOT / "recipes" / f"{name}.yaml")
    assert {made.settings(method)["objective"] for method in made.methods} <= set(get_args(Objective))
    assert made.seeds == 8


def test_the_two_published_recipes_differ_in_base_rates_and_jobs_alone() -> None:
    small, large = (
        recipe_from(ExperimentRecipe, {"out": "a", "model": "a", "jobs": 1}, "test", ROOT / "recipes" / f"{name}-study.yaml")
        for name in ("ko-mini", "kf-deberta")
    )
    rates = {"batch", "micro_batch", "learning_rate", "weight_decay", "warmup"}
    assert {key for key in {*small.train, *large.train} if small.train.get(key) != large.train.get(key)} == rates
    alike = {name: getattr(small, name) for name in ExperimentRecipe.__dataclass_fields__ if name != "train"}
    assert alike == {name: getattr(large, name) for name in alike}


@pytest.mark.journey
@pytest.mark.slow
def test_a_dry_run_measures_every_kind_of_step_and_leaves_nothing(
    bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "study"
    path = bench.file(tmp_path / "study.yaml", out, relation=bench.relation, coreference=bench.coreference, jobs=2)
    capsys.readouterr()
    assert command(["study", "--recipe", str(path), "--dry-run", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [(share["kind"], share["steps"], share["left"]) for share in told["shares"]] == [
        ("train", 4, 4), ("evaluate", 5, 5), ("relation", 12, 12), ("coreference", 6, 6),
    ]  # fmt: skip
    assert all(share["seconds"] > 0 for share in told["shares"])
    assert told["runs"] == 4
    assert told["memory"] > 0.1
    assert not out.exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"methods": {"entity": {"ratoi": 1}}}, "methods: entity: unknown key 'ratoi'. Did you mean 'ratio'?"),
        ({"methods": {"mlm": {"min_prob": 0.4, "max_prob": 0.3}}}, "min_prob 0.4 is above max_prob 0.3"),
        ({"relation": {"train": "nowhere.json"}}, "nowhere.json"),
        (
            {"datasets": ["prepared"], "evaluate": {}},
            "A set made of texts may hold what the given datasets train on; name the sets",
        ),
    ],
)
def test_what_can_be_refused_at_once_is_refused_before_texts_are_prepared(
    bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], message: str
) -> None:
    """The texts are not there: who begins with them says so."""
    texts = {"sources": [f"local:{tmp_path / 'gone.jsonl'}"]}
    written = bench.file(tmp_path / "study.yaml", tmp_path / "out", **{"datasets": [], "texts": texts, **changes})
    assert command(["study", "--recipe", str(written), "--dry-run"]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
