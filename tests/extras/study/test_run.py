"""A study on a tiny model: every step once, what fails is named, what is finished is never run again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from coref_automl.base.errors import ComparisonError, FolderError, RecipeError
from coref_automl.base.folders import EVENTS
from coref_automl.base.progress import quiet, read_events
from coref_automl.base.say import speaking
from coref_automl.base.store import read_json, read_jsonl, write_json
from coref_automl.cli.app import run as command
from coref_automl.comparison.claims import Answer
from coref_automl.comparison.reader import find_runs
from coref_automl.evaluation.results import find_evaluations
from coref_automl.extras.study.plan import open_plan
from coref_automl.extras.study.preflight import study_preflight
from coref_automl.extras.study.recipe import ExperimentRecipe
from coref_automl.extras.study.run import run_experiment
from coref_automl.extras.study.state import ExperimentResult
from coref_automl.models.build import build_masked_lm
from coref_automl.models.load import load_tokenizer
from tests.extras.study.conftest import ONE, Bench
from tests.extras.tune.inline import DeadLauncher, InlineLauncher

Make = Callable[..., ExperimentRecipe]


def names(launcher: InlineLauncher) -> list[str]:
    return [f"{job.recipe['kind']} {job.key}" for job in launcher.jobs]


@pytest.mark.slow
def test_a_study_trains_judges_reports_and_archives_and_redoes_nothing(bench: Bench, recipe: Make) -> None:
    wanted = recipe(relation={**bench.relation, "shares": [1.0]}, coreference=bench.coreference)
    launcher, out = InlineLauncher(), Path(wanted.out)
    result = run_experiment(wanted, launcher=launcher)
    assert result.failures == ()
    assert result.steps == result.finished == {"train": 4, "evaluate": 5, "relation": 6, "coreference": 6}
    assert [str(arm) for arm in result.arms] == ["mlm 64: 2 of 2 seeds", "entity 64: 2 of 2 seeds"]
    assert len(find_evaluations([out / "evaluations"])) == 4 * 2 + 1
    starts = ("base-s0", "base-s1", "mlm-64-s0", "mlm-64-s1", "entity-64-s0", "entity-64-s1")
    related = {run.name for run in find_runs([str(out / "relation")]).checks["relation"]}
    assert related == {f"100pct-{start}" for start in starts}
    found = find_runs([str(out / "coreference")]).checks["coreference"]
    assert {run.name: run.seeds for run in found} == {
        "base-s0": [0], "base-s1": [1000], "mlm-64-s0": [0], "mlm-64-s1": [1000], "entity-64-s0": [0], "entity-64-s1": [1000],
    }  # fmt: skip
    page = (out / "report" / "report.md").read_text("utf-8")
    assert "entity 64" in page
    assert "Does it carry over to coreference?" in page
    text = next(read_jsonl(bench.home / "evalset" / "documents.jsonl"))["text"]
    assert not [path for path in (out / "archive").rglob("*.json") if text[:20] in path.read_text("utf-8")]
    answer = Answer.from_json(read_json(out / "answer.json"))
    told = {(claim.outcome, claim.share, claim.a, claim.b): claim.seeds for claim in answer.claims if not claim.part}
    pairs = (("entity 64", "mlm 64"), ("mlm 64", "base"), ("entity 64", "base"))
    assert {key: told["real1", None, *key] for key in pairs} == {key: (2, 1 if key[1] == "base" else 2) for key in pairs}
    outside = (("relation_f1", 1.0), ("coreference_conll", None))
    assert all(told[*outcome, *key] == (2, 2) for outcome in outside for key in pairs)
    assert read_json(out / "looks.json") == read_json(out / "archive" / "looks.json") == [4]
    again = InlineLauncher()
    assert run_experiment(wanted, launcher=again) == result
    assert names(again) == []


def test_a_look_is_counted_once_however_often_it_is_repeated(recipe: Make) -> None:
    """A study that is run again passes through the looks that it had; so does one with fewer seeds than before."""
    for seeds in (1, 2, 1, 2):
        run_experiment(recipe(seeds=seeds, methods={"mlm": {}}), launcher=InlineLauncher())
    assert read_json(Path(recipe().out) / "looks.json") == [1, 2]


def test_a_base_that_was_evaluated_here_before_is_not_taken_twice(
    bench: Bench, recipe: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    named = ["--eval-set", str(bench.home / "evalset"), "--seq-len", "64"]
    assert command(["evaluate", str(bench.home / "model"), *named]) == 0
    result = run_experiment(recipe(seeds=1, lang="ko"), launcher=InlineLauncher())
    assert result.failures == ()
    assert len(find_evaluations([result.archive])) == 2 * 2 + 1
    assert "판정" in (Path(result.archive) / "verdicts.md").read_text("utf-8")  # the recipe's language


def test_a_base_whose_folder_also_holds_checkpoints_is_scored_itself(bench: Bench, recipe: Make, tmp_path: Path) -> None:
    """An output folder of the Hugging Face Trainer: the last weights, and the checkpoints that led there."""
    base = shutil.copytree(bench.home / "model", tmp_path / "base")
    earlier = shutil.copytree(bench.home / "model", base / "checkpoint-500")
    build_masked_lm("tiny", load_tokenizer(str(base)), seq_len=128, seed=1).save_pretrained(earlier)
    result = run_experiment(recipe(**ONE, model=str(base)), launcher=InlineLauncher())
    scored = {Path(stored.evaluation.path) for stored in find_evaluations([Path(recipe().out) / "evaluations"])}
    assert {path for path in scored if "runs" not in path.parts} == {base}
    answer = Answer.from_json(read_json(Path(result.archive) / "answer.json"))
    assert {claim.a for claim in answer.claims if claim.b == "base"} == {"checkpoint-2", "checkpoint-4"}


def test_a_seed_whose_loss_becomes_nan_is_named_and_the_others_are_judged(recipe: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fault is the loss's own: it is NaN in one seed of one method."""
    from coref_automl.training import trainer

    wanted = recipe(seeds=3, train={"max_tokens": 1_500, "batch": 8, "checkpoints": 1, "log_every": 1})
    true = trainer.MaskedTrainer.compute_loss

    def broken(self: Any, *given: Any, **options: Any) -> Any:
        loss = true(self, *given, **options)
        return loss * float("nan") if "entity-64-s1" in self.args.output_dir else loss

    monkeypatch.setattr(trainer.MaskedTrainer, "compute_loss", broken)
    result = run_experiment(wanted, launcher=InlineLauncher())
    assert [failure.kind for failure in result.failures] == ["not a number"]
    assert not result.broken
    assert result.finished["evaluate"] == 6
    assert "The same command resumes." not in result.lines()
    told = str(result.arms[1])
    assert told.startswith("entity 64: 2 of 3 seeds (seed 1: train entity-64-s1: The loss of step 1 is NaN")
    assert told in result.lines()
    answer = Answer.from_json(read_json(Path(wanted.out) / "answer.json"))
    claim = answer.of_pair("entity 64", "mlm 64", "real1")
    assert claim is not None
    assert claim.seeds == (2, 3)
    again = InlineLauncher()
    assert run_experiment(wanted, launcher=again) == result
    assert names(again) == []  # it would become NaN again


def test_a_failed_step_leaves_out_what_needs_it_and_is_tried_by_the_next_call(
    recipe: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    from coref_automl.training import run

    wanted = recipe(seeds=1)
    true = run.train

    def failing(given: Any, **options: Any) -> Any:
        if given.objective == "entity":
            raise RuntimeError("the cable came loose")
        return true(given, **options)

    monkeypatch.setattr(run, "train", failing)
    result = run_experiment(wanted, launcher=InlineLauncher())
    assert [str(failure) for failure in result.failures] == ["train entity-64-s0: the cable came loose"]
    assert result.broken
    assert result.finished == {"train": 1, "evaluate": 2}
    monkeypatch.undo()
    again = InlineLauncher()
    assert run_experiment(wanted, launcher=again).failures == ()
    assert names(again) == ["train entity-64-s0", "evaluate entity-64-s0"]


def test_a_note_of_a_retry_is_one_sentence_also_where_the_reason_has_a_full_stop(
    recipe: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    from coref_automl.training import run

    def failing(given: Any, **options: Any) -> Any:
        raise RuntimeError("The cable came loose.")

    monkeypatch.setattr(run, "train", failing)
    expected = {
        "en": "train mlm-64-s0: The cable came loose; it is tried again",
        "ko": "mlm-64-s0 학습: The cable came loose. 다시 시도합니다.",
    }
    for lang, note in expected.items():
        wanted = recipe(**ONE, lang=lang)
        result = run_experiment(wanted, only=["train"], launcher=InlineLauncher())
        assert note in [event.get("text") for event in read_events(Path(wanted.out) / EVENTS)]
        assert [failure.reason for failure in result.failures] == ["The cable came loose."]


def test_pieces_of_a_study_can_be_run_alone_and_weights_given_back(recipe: Make) -> None:
    wanted = recipe(seeds=1, keep_weights=False)
    out = Path(wanted.out)

    def ran(only: list[str]) -> list[str]:
        launcher = InlineLauncher()
        run_experiment(wanted, only=only, launcher=launcher)
        return names(launcher)

    assert ran(["evaluate"]) == ["evaluate base-64"]  # nothing else is there to evaluate
    assert ran(["train"]) == ["train mlm-64-s0", "train entity-64-s0"]
    assert list(out.glob("runs/*/checkpoint-*"))
    assert ran(["evaluate"]) == ["evaluate mlm-64-s0", "evaluate entity-64-s0"]
    assert not list(out.glob("runs/*/checkpoint-*"))
    assert not (out / "report").exists()
    assert ran(["report"]) == []
    assert (out / "report" / "report.html").is_file()
    assert ran([]) == []


def test_a_finished_study_gives_its_weights_back_and_keeps_its_report(bench: Bench, recipe: Make, moved: Path) -> None:
    result = ExperimentResult.from_json(read_json(moved / "result.json"))
    assert list(moved.glob("runs/*/checkpoint-*"))
    less = recipe(**ONE, relation=bench.relation, keep_weights=False)
    after = run_experiment(less, only=["train"], launcher=InlineLauncher())
    assert after.finished == result.finished
    assert not after.resumes
    assert not list(moved.glob("runs/*/checkpoint-*"))
    assert ExperimentResult.from_json(read_json(moved / "result.json")) == result


def test_nothing_to_run_is_not_told_to_resume(recipe: Make) -> None:
    wanted, launcher = recipe(seeds=1), InlineLauncher()
    with pytest.raises(ComparisonError, match="no finished evaluation to report on"):
        run_experiment(wanted, only=["report"], launcher=launcher)
    with pytest.raises(RecipeError, match="no relation stage to run"):
        run_experiment(wanted, only=["relation"], launcher=launcher)
    result = run_experiment(wanted, only=["evaluate"], launcher=launcher)
    assert names(launcher) == ["evaluate base-64"]
    assert "The same command resumes." not in result.lines()  # the rest is not trained


def test_another_first_seed_is_refused_where_it_would_repeat_the_seeds_of_tuning(bench: Bench, recipe: Make) -> None:
    only = {"methods": {"mlm": {}}, "relation": {**bench.relation, "shares": [1.0]}}
    launcher = InlineLauncher()
    run_experiment(recipe(seeds=1, first_seed=3, **only), only=["relation"], launcher=launcher)
    with pytest.raises(FolderError, match="was begun with first_seed 3, and this command has first_seed 4"):
        run_experiment(recipe(seeds=1, first_seed=4, **only), only=["relation"], launcher=launcher)
    run_experiment(recipe(seeds=2, first_seed=3, **only), only=["relation"], launcher=launcher)
    assert [(job.key, job.recipe["settings"]["first_seed"]) for job in launcher.jobs] == [
        ("100pct-base-s3", 0), ("100pct-base-s4", 1000),
    ]  # fmt: skip


def test_a_folder_begun_from_the_chosen_model_goes_on_from_every_one(bench: Bench, recipe: Make) -> None:
    """Steps of the choice are named by their checkpoint, and have no seed to count from."""
    small = {"seeds": 1, "methods": {"mlm": {}}, "train": {"max_tokens": 512, "batch": 8, "checkpoints": 1}}
    stage = {**bench.relation, "shares": [1.0]}
    assert run_experiment(recipe(**small, relation={**stage, "start": "chosen"}), launcher=InlineLauncher()).failures == ()
    launcher = InlineLauncher()
    result = run_experiment(recipe(**small, relation={**stage, "start": "every"}), launcher=launcher)
    assert result.failures == ()
    assert names(launcher) == ["relation 100pct-base-s0", "relation 100pct-mlm-64-s0"]


@pytest.mark.journey
def test_weights_that_are_gone_are_trained_again_only_for_what_still_needs_them(bench: Bench, recipe: Make) -> None:
    run_experiment(recipe(seeds=1, keep_weights=False), launcher=InlineLauncher())
    launcher = InlineLauncher()
    more = recipe(seeds=1, keep_weights=False, methods={"mlm": {}}, coreference=bench.coreference)
    run_experiment(more, only=["coreference"], launcher=launcher)
    assert names(launcher) == ["coreference base-s0"]
    launcher = InlineLauncher()
    assert run_experiment(more, launcher=launcher).failures == ()
    assert names(launcher) == ["train mlm-64-s0", "coreference mlm-64-s0"]


@pytest.mark.usefixtures("moved")
def test_further_seeds_and_methods_join_a_study_and_other_settings_are_refused(recipe: Make) -> None:
    launcher = InlineLauncher()
    run_experiment(recipe(seeds=2, methods={"mlm": {}}), launcher=launcher)
    assert names(launcher) == ["train mlm-64-s1", "evaluate mlm-64-s1"]
    with pytest.raises(FolderError, match=r"was begun with whole_word False, and this command has whole_word True"):
        run_experiment(recipe(seeds=2, methods={"mlm": {"whole_word": True}}), launcher=launcher)


@pytest.mark.usefixtures("moved")
def test_what_is_left_is_estimated_by_the_speed_of_finished_steps_of_its_kind(bench: Bench, recipe: Make) -> None:
    more = recipe(seeds=2, methods={"mlm": {}}, relation=bench.relation)
    seconds = {label: facts["seconds"] for label, facts in read_json(Path(more.out) / "costs.json").items()}
    told = {share.kind: (share.left, share.seconds) for share in study_preflight(more).shares}
    of_model, of_two = seconds["evaluate base-64"], seconds["evaluate mlm-64-s0"]  # one model, and two checkpoints
    assert told["evaluate"] == (1, pytest.approx(2 / median((1 / of_model, 2 / of_two))))
    speeds = [share / seconds[f"relation {share}pct-{start}"] for share in (50, 100) for start in ("base-s0", "mlm-64-s0")]
    assert told["relation"] == (4, pytest.approx(2 * (50 + 100) / median(speeds), rel=0.1))  # half of few rows is rounded


def test_every_pass_tells_the_steps_that_it_ran(recipe: Make) -> None:
    wanted = recipe(**ONE)
    for only in ("train", "evaluate"):
        run_experiment(wanted, only=[only], launcher=InlineLauncher())
    rows = [row for row in read_events(Path(wanted.out) / EVENTS) if row.get("stage") == "study" and row["event"] == "end"]
    assert [row["done"] for row in rows] == [1, 2]  # of two evaluations, one is the base's


@pytest.mark.usefixtures("moved")
def test_a_step_whose_further_seeds_were_not_run_is_not_taken_for_done(bench: Bench, recipe: Make) -> None:
    """Killed when more seeds had been written down and the outcome of the fewer still lay there."""
    more = recipe(**ONE, relation={**bench.relation, "seeds": 2})
    plan = open_plan(more, Path(more.out), quiet())
    step = next(step for step in plan.steps if step.name == "50pct-base-s0")
    job = step.job(plan.out, plan.recipe.model)
    write_json(Path(job.folder) / "job.json", job.to_json())
    assert step.outcome(plan.out) is None


@pytest.mark.usefixtures("moved")
def test_a_step_that_dies_at_its_start_is_not_taken_for_done(bench: Bench, recipe: Make) -> None:
    """The outcome of its fewer seeds lies in its folder."""
    more = recipe(**ONE, relation={**bench.relation, "seeds": 2})
    result = run_experiment(more, only=["relation"], launcher=DeadLauncher())
    assert result.finished["relation"] == 0
    assert [failure.kind for failure in result.failures] == ["no outcome"] * 4


def test_reasons_are_kept_in_english_and_told_in_the_language(bench: Bench, recipe: Make) -> None:
    wanted = recipe(**ONE, lang="ko")
    result = run_experiment(wanted, only=["train"], launcher=DeadLauncher())
    reason = "its process ended with status 1 twice: its log is empty"
    stored = read_json(Path(wanted.out) / "result.json")
    assert [failure["reason"] for failure in stored["failures"]] == [reason]
    assert stored["arms"][0]["missing"] == {"0": f"train mlm-64-s0: {reason}"}
    with speaking("ko"):
        told = "train mlm-64-s0: 프로세스가 상태 1(으)로 끝남 (두 번): its log is empty"
        assert f"실패: {told}" in result.lines()
        assert f"mlm 64: 시드 0/1 (시드 0: {told})" in result.lines()
    later = run_experiment(recipe(**ONE, lang="ko"), max_minutes=1e-9, launcher=InlineLauncher())
    assert later.arms[0].missing == {"0": "2 of 2 steps left"}
    with speaking("ko"):
        assert str(later.arms[0]) == "mlm 64: 시드 0/1 (시드 0: 단계 2개 중 2개 남음)"


def test_a_study_stops_when_its_minutes_are_over(recipe: Make) -> None:
    wanted, launcher = recipe(), InlineLauncher()
    result = run_experiment(wanted, max_minutes=1e-9, launcher=launcher)
    assert names(launcher) == []
    assert "The same command resumes." in result.lines()
    assert not (Path(wanted.out) / "report").exists()


@pytest.mark.journey
def test_screening_sees_one_half_and_the_dev_documents_alone(bench: Bench, recipe: Make, tmp_path: Path) -> None:
    sides = {"train": ["tale-0", "tale-1", "tale-2"], "dev": ["tale-3"], "test": ["tale-4", "tale-5"]}
    (tmp_path / "split.json").write_text(json.dumps(sides), "utf-8")
    judge = {**bench.coreference, "documents": "dev", "split": str(tmp_path / "split.json")}
    stage = {"sets": [str(bench.home / "evalset")], "half": "select"}
    wanted = recipe(seeds=2, methods={"mlm": {}}, coreference=judge, evaluate=stage)
    assert run_experiment(wanted, launcher=InlineLauncher()).failures == ()
    out = Path(wanted.out)
    halves = {stored.evaluation.half for stored in find_evaluations([out / "evaluations"])}
    assert halves == {"select"}
    found = find_runs([str(out / "coreference")]).checks["coreference"]
    assert [run.result.documents for run in found] == [1] * 4
    assert "tale-4" not in "".join(path.read_text("utf-8") for path in (out / "data").iterdir())


def test_the_steps_of_a_base_are_those_of_its_weights(bench: Bench, recipe: Make, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(bench.home / "model", other)
    build_masked_lm("tiny", load_tokenizer(str(other)), seq_len=128, seed=1).save_pretrained(other)
    run_experiment(recipe(seeds=1, relation=bench.relation), only=["evaluate", "relation"], launcher=InlineLauncher())
    for named in ({}, {"relation": bench.relation}):
        with pytest.raises(FolderError, match=r"base-64 was begun with other bytes of the weights"):
            run_experiment(recipe(seeds=1, model=str(other), **named), launcher=InlineLauncher())
    held = Path(recipe().out) / "steps" / "evaluate" / "base-64" / "job.json"
    job = read_json(held)
    del job["recipe"]["binding"]["bytes of the weights"]  # as earlier versions wrote it
    write_json(held, job)
    launcher = InlineLauncher()
    run_experiment(recipe(seeds=1), only=["evaluate"], launcher=launcher)
    assert names(launcher) == []


def test_a_base_of_a_run_with_the_name_of_a_run_of_the_study_is_refused(bench: Bench, recipe: Make, tmp_path: Path) -> None:
    shared = {"seeds": 1, "methods": {"mlm": {}}, "train": {"max_tokens": 1_500, "batch": 8, "checkpoints": 1}}
    first = run_experiment(recipe(**shared), only=["train"], launcher=InlineLauncher())
    base = str(Path(first.out) / "runs" / "mlm-64-s0")
    with pytest.raises(RecipeError, match=r"is step \d+ of a run named mlm-64-s0, .* pass another --first-seed"):
        run_experiment(bench.recipe(tmp_path / "next", model=base, **shared), launcher=InlineLauncher())
    assert not (tmp_path / "next").exists()
    result = run_experiment(bench.recipe(tmp_path / "next", model=base, first_seed=1, **shared), launcher=InlineLauncher())
    lead = Answer.from_json(read_json(Path(result.out) / "answer.json")).questions[0].lead
    assert (lead.b, lead.test) == ("base", "sign flips")  # one seed: it is about the checkpoint


def texts(bench: Bench, out: Path, *sets: str) -> ExperimentRecipe:
    """A study that prepares its texts, and its evaluation set where none is named."""
    named = {"sources": ["bundled:synthetic"], "limit": 16, "holdout": 0.4, "near_duplicates": False}
    return bench.recipe(out, datasets=[], texts=named, evaluate={"sets": list(sets), "tasks": ["real"]})


def test_texts_hold_no_document_of_any_evaluation_set(bench: Bench, tmp_path: Path) -> None:
    plan = open_plan(texts(bench, tmp_path, "bundled", str(bench.home / "evalset")), tmp_path, quiet())
    left_out = read_json(plan.datasets[64] / "manifest.json")["eval_sets"]
    assert [entry["fingerprint"] for entry in left_out] == [evalset.fingerprint for evalset in plan.sets]


def test_a_study_with_a_set_of_its_own_resumes_where_it_was_moved_to(bench: Bench, tmp_path: Path) -> None:
    open_plan(texts(bench, tmp_path / "here"), tmp_path / "here", quiet())
    (tmp_path / "here").rename(tmp_path / "there")
    plan = open_plan(texts(bench, tmp_path / "there"), tmp_path / "there", quiet())
    assert plan.datasets == {64: tmp_path / "there" / "datasets" / "64"}
