"""Checkpoints are found in natural order, scored once, resumed from the middle, and one that fails does not stop the others."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coref_automl.base import pool
from coref_automl.base.errors import EvaluationError, FolderError, InputError, ModelError
from coref_automl.base.records import Document, Evaluation, ItemScore, Provenance
from coref_automl.cli.app import run as command
from coref_automl.comparison.archive import archive
from coref_automl.comparison.groups import read_groups
from coref_automl.comparison.reader import open_results
from coref_automl.comparison.scores import model_label
from coref_automl.evaluation.answers import save_table
from coref_automl.evaluation.evalset import freeze
from coref_automl.evaluation.results import find_evaluations
from coref_automl.evaluation.run import EvaluateRecipe, evaluate
from coref_automl.evaluation.targets import BASES, find_targets
from coref_automl.models.load import tokenizer_fingerprint
from tests.evaluation.tiny import TEXTS, freeze_tiny, item, noun_table, save_checkpoint, tokenizer_of


class Counted:
    """How many items each call scored."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from coref_automl.evaluation.scorer import Scorer

        self.items: list[int] = []
        plain = Scorer.score

        def score(engine: Any, todo: Any, *rest: Any, **more: Any) -> Any:
            self.items.append(len(todo))
            return plain(engine, todo, *rest, **more)

        monkeypatch.setattr(Scorer, "score", score)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(monkeypatch)


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a set and a run of two checkpoints."""
    monkeypatch.chdir(tmp_path)
    freeze_tiny(Path("evalsets/tiny"))
    save_checkpoint(Path("runs/a/checkpoint-131"), seed=2)
    save_checkpoint(Path("runs/a/checkpoint-65"), seed=1)
    return tmp_path


RECIPE = EvaluateRecipe(eval_sets=(Path("evalsets/tiny"),), device="cpu", dtype="float32")


def test_a_run_is_evaluated_in_natural_order_with_the_files_of_the_layout(workspace: Path) -> None:
    evaluations = evaluate(["runs/a"], RECIPE)
    assert [evaluation.checkpoint for evaluation in evaluations] == ["a/checkpoint-65", "a/checkpoint-131"]
    folder = workspace / "runs/a/evaluations/tiny-128/checkpoint-65"
    assert {path.name for path in folder.iterdir()} == {"items.jsonl", "result.json", "DONE"}
    assert Evaluation.from_json(json.loads((folder / "result.json").read_text("utf-8"))) == evaluations[0]
    summary = json.loads((workspace / "runs/a/checkpoint-65_eval_results.json").read_text("utf-8"))
    assert summary["real1"] == evaluations[0].estimates["real1"].value
    assert summary["coref_samples"] == summary["lambada_samples"] == 9  # of eleven two are no entry
    assert summary["score"] == pytest.approx(0.4 * summary["real1"] + 0.3 * summary["real5"] + 0.3 * summary["lambada_top1"])
    assert set(evaluations[0].baselines) == {"copy-most-frequent", "copy-nearest"}


def test_finished_work_is_not_done_again(workspace: Path, counted: Counted) -> None:
    first = evaluate(["runs/a"], RECIPE)
    again = evaluate(["runs/a"], RECIPE)
    assert counted.items == [22, 22]
    assert again == first


def test_a_renamed_checkpoint_is_recognised_and_changed_weights_are_not(workspace: Path, counted: Counted) -> None:
    before = evaluate(["runs/a"], RECIPE)
    (workspace / "runs/a/checkpoint-65").rename(workspace / "runs/a/checkpoint-66")
    (workspace / "runs/a").rename(workspace / "runs/b")
    after = evaluate(["runs/b"], RECIPE)
    assert counted.items == [22, 22]
    assert [evaluation.checkpoint for evaluation in after] == ["b/checkpoint-66", "b/checkpoint-131"]
    assert after[0].estimates == before[0].estimates
    save_checkpoint(workspace / "runs/b/checkpoint-66", seed=7)
    evaluate(["runs/b"], RECIPE)
    assert counted.items == [22, 22, 22]


def test_another_length_dtype_or_set_is_another_evaluation(workspace: Path, counted: Counted) -> None:
    path = ["runs/a/checkpoint-65"]
    evaluate(path, RECIPE)
    evaluate(path, EvaluateRecipe(eval_sets=RECIPE.eval_sets, device="cpu", dtype="float32", seq_len=64))
    evaluate(path, EvaluateRecipe(eval_sets=RECIPE.eval_sets, device="cpu", dtype="bfloat16"))
    freeze_tiny(workspace / "evalsets/other", tasks=("real",))
    evaluate(path, EvaluateRecipe(eval_sets=(Path("evalsets/other"),), device="cpu", dtype="float32"))
    assert counted.items == [22, 22, 22, 11]
    names = {stored.folder.parent.name for stored in find_evaluations(path)}
    assert len(names) == 4
    assert names > {"tiny-128", "tiny-64", "other-128"}


def evaluate_command(dtype: str = "float32", evalset: str = "evalsets/tiny", path: str = "runs/a") -> None:
    assert command(["evaluate", path, "--device", "cpu", "--dtype", dtype, "--eval-set", evalset]) == 0


def compared(capsys: pytest.CaptureFixture[str], *paths: str) -> dict[str, Any]:
    capsys.readouterr()
    assert command(["compare", *paths, "--json"]) == 0
    return dict(json.loads(capsys.readouterr().out))


def test_no_finished_evaluation_is_overwritten_by_one_of_another_identity(workspace: Path, counted: Counted) -> None:
    """Another dtype, another set of the same name, other weights: each has a folder, and the first keeps its own bytes."""
    evaluate_command()
    first = {path: path.read_bytes() for path in Path("runs/a/evaluations/tiny-128").rglob("*") if path.is_file()}
    assert len(first) == 6
    summary = Path("runs/a/checkpoint-131_eval_results.json").read_bytes()
    evaluate_command("bfloat16", path="runs/a/checkpoint-131")
    freeze_tiny(workspace / "elsewhere/tiny", tasks=("real",))
    evaluate_command(evalset="elsewhere/tiny")
    save_checkpoint(workspace / "runs/a/checkpoint-65", seed=9)
    evaluate_command()
    evaluations = find_evaluations(["runs/a"])
    assert len({stored.evaluation.identity for stored in evaluations}) == len(evaluations) == 6
    assert len({stored.folder.parent.name for stored in evaluations}) == 4  # the checkpoints of a run share a name where they can
    assert {path: path.read_bytes() for path in first} == first
    assert Path("runs/a/checkpoint-131_eval_results.json").read_bytes() == summary
    changed = json.loads(Path("runs/a/checkpoint-65_eval_results.json").read_text("utf-8"))["fingerprints"]["weights"]
    assert changed not in {
        stored.evaluation.fingerprints["weights"] for stored in evaluations if stored.folder.parent.name == "tiny-128"
    }
    scored = len(counted.items)
    evaluate_command("bfloat16", path="runs/a/checkpoint-131")
    evaluate_command(evalset="elsewhere/tiny", path="runs/a/checkpoint-131")
    evaluate_command()
    assert len(counted.items) == scored


def test_every_noun_table_of_a_set_has_its_own_evaluation(workspace: Path) -> None:
    for turn in range(8):
        evaluate(["runs/a/checkpoint-65"], RECIPE)
        (path,) = (workspace / "evalsets/tiny").glob("nouns-*.npy")
        table = np.load(path)
        table[turn] = ~table[turn]
        np.save(path, table)
    evaluations = find_evaluations(["runs/a/checkpoint-65"])
    assert len({stored.evaluation.fingerprints["nouns"] for stored in evaluations}) == len(evaluations) == 8


def test_a_checkpoint_stands_once_in_a_table_and_the_rest_is_told(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evaluate_command()
    evaluate_command("bfloat16", path="runs/a/checkpoint-65")
    table = compared(capsys, "runs/a")
    assert [row["name"] for row in table["rows"]] == ["checkpoint-65", "checkpoint-131"]
    assert any("bfloat16" in note for note in table["notes"]), table["notes"]
    both = [str(stored.folder) for stored in find_evaluations(["runs/a/checkpoint-65"])]
    assert len(compared(capsys, *both)["rows"]) == 2
    save_checkpoint(workspace / "runs/a/checkpoint-65", seed=9)
    evaluate_command()
    table = compared(capsys, "runs/a")
    assert [row["name"] for row in table["rows"]] == ["checkpoint-65", "checkpoint-131"]
    assert any("other weights than a/checkpoint-65 has now" in note for note in table["notes"])
    assert command(["archive", "runs/a", "--out", "kept"]) == 0
    assert len(find_evaluations(["kept"])) == 2


def test_an_archive_keeps_both_of_two_sets_of_one_name(workspace: Path) -> None:
    freeze_tiny(workspace / "elsewhere/tiny", tasks=("real",))
    for evalset in ("evalsets/tiny", "elsewhere/tiny"):
        evaluate_command(evalset=evalset)
    evaluate_command("bfloat16", path="runs/a/checkpoint-65")
    assert command(["archive", "runs/a", "--out", "kept"]) == 0
    identities = {stored.evaluation.identity for stored in find_evaluations(["kept"])}
    assert identities == {stored.evaluation.identity for stored in find_evaluations(["runs/a"])}
    assert len(identities) == 5


def test_the_base_beside_a_checkpoint_is_the_one_on_the_same_items(workspace: Path) -> None:
    save_checkpoint(workspace / "models/base", seed=5)
    began_from(workspace / "runs/a/checkpoint-65", "models/base")
    evaluate_command()
    freeze_tiny(workspace / "elsewhere/tiny", tasks=("real",))
    evaluate_command(evalset="elsewhere/tiny")
    for stored in find_evaluations(["runs/a/checkpoint-65"]):
        assert set(stored.evaluation.baselines["un-adapted"]) == set(stored.evaluation.estimates)
    groups = read_groups(open_results(["runs/a/checkpoint-65"]))
    assert [len(group.entries) for group in groups] == [2, 2]


def test_the_base_beside_a_checkpoint_is_the_one_with_the_same_nouns(workspace: Path) -> None:
    save_checkpoint(workspace / "models/base", seed=5)
    began_from(workspace / "runs/a/checkpoint-65", "models/base")
    (former,) = evaluate(["models/base"], RECIPE)
    (path,) = (workspace / "evalsets/tiny").glob("nouns-*.npy")
    table = np.load(path)
    table[np.flatnonzero(table)[::2]] = False
    np.save(path, table)
    (evaluation,) = evaluate(["runs/a/checkpoint-65"], replace(RECIPE, base=False))
    assert "un-adapted" not in evaluation.baselines
    (base,) = evaluate(["models/base"], RECIPE)
    (evaluation,) = evaluate(["runs/a/checkpoint-65"], RECIPE)
    assert evaluation.baselines["un-adapted"] == base.estimates != former.estimates


def interrupt(monkeypatch: pytest.MonkeyPatch, recipe: EvaluateRecipe) -> None:
    """Evaluate a checkpoint until more than five of its items are written."""

    class Stop(Exception):
        pass

    from coref_automl.base import store

    write = store.JsonlAppender.append

    def third_batch_stops(appender: Any, rows: Any) -> None:
        write(appender, rows)
        if appender._path.read_bytes().count(b"\n") > 5:
            raise Stop

    with monkeypatch.context() as patched:
        patched.setattr(store.JsonlAppender, "append", third_batch_stops)
        with pytest.raises(EvaluationError):
            evaluate(["runs/a/checkpoint-65"], recipe)


def test_an_interrupted_evaluation_goes_on_from_the_middle(
    workspace: Path, counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = replace(RECIPE, budget=200)
    whole = evaluate(["runs/a/checkpoint-65"], recipe)
    items = (workspace / "runs/a/evaluations/tiny-128/checkpoint-65/items.jsonl").read_bytes()
    shutil.rmtree(workspace / "runs/a/evaluations")
    interrupt(monkeypatch, recipe)
    resumed = evaluate(["runs/a/checkpoint-65"], recipe)
    assert 0 < counted.items[-1] < counted.items[-2] == 22
    assert resumed[0].estimates == whole[0].estimates
    assert (workspace / "runs/a/evaluations/tiny-128/checkpoint-65/items.jsonl").read_bytes() == items


def test_ranks_under_another_noun_table_are_not_taken_over(
    workspace: Path, counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranks among nouns depend on the table, which may change between an interrupted evaluation and its second start."""
    recipe = replace(RECIPE, budget=200)
    interrupt(monkeypatch, recipe)
    (path,) = (workspace / "evalsets/tiny").glob("nouns-*.npy")
    np.save(path, ~np.load(path))
    evaluate(["runs/a/checkpoint-65"], recipe)
    assert counted.items == [22, 22]
    (folder,) = (workspace / "runs/a/evaluations").glob("tiny-128*/checkpoint-65")
    items = (folder / "items.jsonl").read_bytes()
    shutil.rmtree(workspace / "runs/a/evaluations")
    evaluate(["runs/a/checkpoint-65"], recipe)
    assert (folder / "items.jsonl").read_bytes() == items


def test_a_model_that_counts_nothing_is_an_error_that_says_what_to_do(workspace: Path) -> None:
    save_checkpoint(workspace / "models/bytes", kind="bytes", seed=1)
    save_table(Path("evalsets/tiny"), tokenizer_fingerprint(tokenizer_of("bytes")), noun_table("bytes"))
    every = evaluate(["models/bytes"], RECIPE)[0].counted
    assert set(every) == {"real", "lambada"}
    texts = [(Document("1", "tiny", TEXTS[1]), ["김서연"])]
    freeze(Path("evalsets/names"), texts, {"real": [item("1", "김서연")]}, {})
    with pytest.raises(EvaluationError, match=r"counts no item of this set \(0%.*real-choice"):
        evaluate(["runs/a/checkpoint-65"], replace(RECIPE, eval_sets=(Path("evalsets/names"),)))


def test_the_window_is_256_tokens_unless_the_model_reads_less_or_a_length_is_given(workspace: Path) -> None:
    save_checkpoint(workspace / "models/long", seed=1, seq_len=512)
    lengths = [evaluate([path], RECIPE)[0].seq_len for path in ("models/long", "runs/a/checkpoint-65")]
    assert lengths == [256, 128]
    assert evaluate(["models/long"], replace(RECIPE, seq_len=300))[0].seq_len == 300


def test_what_was_not_run_is_absent_and_null(workspace: Path) -> None:
    freeze_tiny(workspace / "evalsets/real", tasks=("real",))
    evaluation = evaluate(["runs/a/checkpoint-65"], EvaluateRecipe(eval_sets=(Path("evalsets/real"),), device="cpu"))[0]
    assert not {"lambada_top1", "score"} & set(evaluation.estimates)
    summary = json.loads((workspace / "runs/a/checkpoint-65_eval_results.json").read_text("utf-8"))
    assert summary["lambada_top1"] is None
    assert summary["score"] is None
    assert summary["lambada_samples"] == 0


def test_one_broken_checkpoint_does_not_stop_the_others(workspace: Path) -> None:
    weights = workspace / "runs/a/checkpoint-100/model.safetensors"
    save_checkpoint(weights.parent, seed=4)
    weights.write_bytes(weights.read_bytes()[: weights.stat().st_size // 2])
    heard: list[str] = []
    with pytest.raises(EvaluationError, match="1 of 3 checkpoints could not be scored: a/checkpoint-100") as caught:
        evaluate(["runs/a"], RECIPE, on_result=lambda evaluation: heard.append(evaluation.checkpoint))
    assert caught.value.exit_status == 1
    assert heard == ["a/checkpoint-65", "a/checkpoint-131"]
    assert len(find_evaluations(["runs/a"])) == 2


def test_a_single_broken_checkpoint_is_an_input_error(workspace: Path) -> None:
    (workspace / "runs/a/checkpoint-65/config.json").unlink()
    with pytest.raises(ModelError, match=r"config\.json"):
        evaluate(["runs/a/checkpoint-65"], RECIPE)


def test_folders_of_runs_and_names_unique_across_runs(workspace: Path) -> None:
    save_checkpoint(workspace / "runs/b/checkpoint-9", seed=3)
    save_checkpoint(workspace / "old/b/checkpoint-9", seed=4)
    assert [target.name for target in find_targets(["runs"])] == ["a/checkpoint-65", "a/checkpoint-131", "b/checkpoint-9"]
    evaluations = evaluate(["runs/b", "old/b"], EvaluateRecipe(eval_sets=RECIPE.eval_sets, out=Path("results"), device="cpu"))
    assert len({evaluation.checkpoint for evaluation in evaluations}) == 2
    assert len(list(Path("results").rglob("*_eval_results.json"))) == 2
    alone = evaluate(["old/b"], EvaluateRecipe(eval_sets=RECIPE.eval_sets, out=Path("results"), device="cpu"))
    assert len(list(Path("results").rglob("*_eval_results.json"))) == 2
    assert alone[0].fingerprints == evaluations[1].fingerprints


def test_a_copied_run_keeps_its_evaluations_in_its_own_folder(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evaluate(["runs/a"], RECIPE)
    shutil.copytree(workspace / "runs", workspace / "copied")
    freeze_tiny(workspace / "evalsets/other", tasks=("real",))
    options = ["--eval-set", "evalsets/other", "--device", "cpu"]
    assert command(["evaluate", "copied/a", *options]) == 0
    assert [path.name for path in (workspace / "copied").iterdir()] == ["a"]
    assert (workspace / "copied/a/evaluations/other-128/checkpoint-65/DONE").is_file()
    following = capsys.readouterr().out.rpartition("Next: coref-automl ")[2].split()
    assert following[:2] == ["compare", "copied/a"]
    assert command(following) == 0


def test_an_output_folder_reuses_what_the_run_knows_and_writes_nothing_into_it(workspace: Path, counted: Counted) -> None:
    evaluate(["runs/a"], RECIPE)
    before = {path: path.stat().st_mtime_ns for path in Path("runs").rglob("*")}
    for name in ("results_1", "results_2"):
        evaluate(["runs/a"], EvaluateRecipe(eval_sets=RECIPE.eval_sets, out=Path(name), device="cpu", dtype="float32"))
        assert len(find_evaluations([name])) == 2
    assert counted.items == [22, 22]
    assert {path: path.stat().st_mtime_ns for path in Path("runs").rglob("*")} == before


def test_a_later_output_folder_reuses_an_earlier_one(workspace: Path, counted: Counted) -> None:
    for name in ("results_1", "results_2"):
        evaluate(["runs/a"], EvaluateRecipe(eval_sets=RECIPE.eval_sets, out=Path(name), device="cpu", dtype="float32"))
    assert counted.items == [22, 22]


def test_an_output_folder_with_something_else_is_refused(workspace: Path) -> None:
    with pytest.raises(FolderError):
        evaluate(["runs/a"], EvaluateRecipe(eval_sets=RECIPE.eval_sets, out=Path("runs"), device="cpu"))


def test_a_model_outside_a_run_has_a_folder_of_its_own(workspace: Path) -> None:
    save_checkpoint(workspace / "models/mine", seed=5)
    evaluations = evaluate(["models/mine"], RECIPE)
    assert evaluations[0].checkpoint == "mine"
    assert (workspace / "evaluations/mine/tiny-128/DONE").exists()
    assert (workspace / "evaluations/mine/mine_eval_results.json").exists()
    assert [stored.evaluation for stored in find_evaluations(["models/mine"])] == evaluations


def test_the_unadapted_model_stands_beside_its_checkpoints(workspace: Path, counted: Counted) -> None:
    save_checkpoint(workspace / "models/base", seed=5)
    provenance = Provenance("a", 65, 0.5, 1000, "mlm", "models/base", 128, 0)
    (workspace / "runs/a/checkpoint-65/training.json").write_text(json.dumps(provenance.to_json()), "utf-8")
    base = evaluate(["models/base"], RECIPE)[0]
    evaluations = evaluate(["runs/a"], RECIPE)
    assert evaluations[0].baselines["un-adapted"] == base.estimates
    assert evaluations[0].provenance == provenance
    assert "un-adapted" not in evaluations[1].baselines
    assert counted.items == [22, 22, 22]
    assert [stored.evaluation.path for stored in find_evaluations([f"runs/a/{BASES}"])] == ["models/base"]


def began_from(checkpoint: Path, base: str) -> None:
    provenance = Provenance(checkpoint.parent.name, 65, 0.5, 1000, "mlm", base, 128, 0)
    (checkpoint / "training.json").write_text(json.dumps(provenance.to_json()), "utf-8")


@pytest.mark.parametrize("together", [True, False])
def test_bases_of_one_folder_name_stand_beside_their_own_runs(workspace: Path, together: bool) -> None:
    for run, base, seed in (("b", "X/enc", 5), ("c", "Y/enc", 6)):
        save_checkpoint(workspace / base, seed=seed)
        began_from(save_checkpoint(workspace / f"runs/{run}/checkpoint-65", seed=seed + 2), base)
    calls = [["runs/b", "runs/c"]] if together else [["runs/b"], ["runs/c"]]
    evaluations = [evaluation for paths in calls for evaluation in evaluate(paths, RECIPE)]
    stored = {stored.evaluation.path: stored.evaluation for run in "bc" for stored in find_evaluations([f"runs/{run}/{BASES}"])}
    assert set(stored) == {"X/enc", "Y/enc"}
    for evaluation, base in zip(evaluations, ("X/enc", "Y/enc"), strict=True):
        assert evaluation.baselines["un-adapted"] == stored[base].estimates
    archive("runs/b", "runs/c", out="kept")
    for paths in (["runs/b", "runs/c"], ["kept"]):
        (group,) = read_groups(open_results(paths))
        names = {entry.evaluation.path: model_label(entry.evaluation.checkpoint) for entry in group.entries if not entry.trained}
        provenances = {entry.run: entry.evaluation.provenance for entry in group.entries if entry.evaluation.provenance}
        assert {run: model_label(entry.base) for run, entry in provenances.items()} == {"b": names["X/enc"], "c": names["Y/enc"]}
        assert names["X/enc"] != names["Y/enc"]


def test_a_base_does_not_overwrite_a_model_of_its_name_that_is_evaluated_itself(workspace: Path) -> None:
    save_checkpoint(workspace / "X/enc", seed=5)
    save_checkpoint(workspace / "Y/enc", seed=6)
    began_from(save_checkpoint(workspace / "runs/b/checkpoint-65", seed=7), "X/enc")
    evaluate(["runs/b", "Y/enc"], RECIPE)
    evaluations = find_evaluations(["evaluations", f"runs/b/{BASES}"])
    assert {stored.evaluation.path for stored in evaluations} == {"X/enc", "Y/enc"}


def test_another_model_of_the_name_is_not_taken_for_the_base(workspace: Path) -> None:
    save_checkpoint(workspace / "X/enc", seed=5)
    save_checkpoint(workspace / "Y/enc", seed=6)
    began_from(save_checkpoint(workspace / "runs/b/checkpoint-65", seed=7), "X/enc")
    evaluate(["Y/enc"], RECIPE)
    (evaluation,) = evaluate(["runs/b"], replace(RECIPE, base=False))
    assert "un-adapted" not in evaluation.baselines
    (group,) = read_groups(open_results(["runs/b"]))
    assert [entry.evaluation.path for entry in group.entries] == ["runs/b/checkpoint-65"]


def test_a_model_is_not_shown_the_evaluations_of_another_of_its_name(workspace: Path) -> None:
    for base, seed in (("X/enc", 5), ("Y/enc", 6)):
        save_checkpoint(workspace / base, seed=seed)
    evaluate(["Y/enc"], RECIPE)
    assert find_evaluations(["X/enc"]) == []
    (workspace / "Y").rename(workspace / "Z")
    assert find_evaluations(["X/enc"]) == []
    assert len(find_evaluations(["Z/enc"])) == 1
    (workspace / "Z").rename(workspace / "Y")
    (evaluation,) = evaluate(["X/enc"], RECIPE)
    assert [stored.evaluation for stored in find_evaluations(["X/enc"])] == [evaluation]


def test_a_model_that_is_gone_is_sought_by_its_bytes_not_by_its_name(workspace: Path) -> None:
    """Three folders up from its evaluation lies another model of that name, and then the one that was evaluated."""
    save_checkpoint(workspace / "old/models/enc", seed=5)
    evaluate(["old/models/enc"], replace(RECIPE, out=Path("results")))
    (workspace / "old/models/enc").rename(workspace / "kept")
    save_checkpoint(workspace / "enc", seed=6)
    assert [stored.evaluation.path for stored in find_evaluations(["results"])] == ["old/models/enc"]
    shutil.rmtree(workspace / "enc")
    (workspace / "kept").rename(workspace / "enc")
    assert [Path(stored.evaluation.path).resolve() for stored in find_evaluations(["results"])] == [workspace / "enc"]


def test_a_set_that_is_gone_is_sought_by_its_bytes_not_by_its_name(workspace: Path) -> None:
    evaluate(["runs/a/checkpoint-65"], RECIPE)
    frozen = str(workspace / "evalsets/tiny")
    (workspace / "evalsets/tiny").rename(workspace / "kept")
    freeze_tiny(workspace / "tiny", tasks=("real",))
    assert [stored.evaluation.evalset_path for stored in find_evaluations(["runs/a"])] == [frozen]
    shutil.rmtree(workspace / "tiny")
    (workspace / "kept").rename(workspace / "tiny")
    assert [Path(stored.evaluation.evalset_path).resolve() for stored in find_evaluations(["runs/a"])] == [workspace / "tiny"]


def test_a_folder_without_checkpoints_says_so(workspace: Path) -> None:
    with pytest.raises(ModelError, match="holds no checkpoint"):
        evaluate(["evalsets"], RECIPE)


def test_scores_can_be_read_back(workspace: Path) -> None:
    evaluate(["runs/a"], RECIPE)
    scores = find_evaluations(["runs/a/checkpoint-65"])[0].scores()
    assert len(scores) == 22
    assert all(isinstance(score, ItemScore) for score in scores)


def test_several_gpus_take_what_is_not_known(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Worker processes are the business of the pool; here its calls run in turn, as a worker would run them."""

    evaluate(["runs/a/checkpoint-65"], RECIPE)
    given: list[str] = []

    def run_calls(jobs: Any, *, on_return: Any, **settings: Any) -> None:
        assert settings["devices"] == ["cuda:0", "cuda:1"]
        for job in jobs:
            given.append(job.name)
            module, name = job.target.split(":")
            assert module == "coref_automl.evaluation.run"
            arguments = json.loads(json.dumps(job.arguments))
            arguments["recipe"]["device"] = "cpu"
            on_return(pool.Returned(job, json.loads(json.dumps(getattr(evaluation_run, name)(**arguments)))))

    from coref_automl.evaluation import run as evaluation_run

    monkeypatch.setattr(evaluation_run, "_devices", lambda recipe, count: ["cuda:0", "cuda:1"])
    monkeypatch.setattr(evaluation_run, "run_calls", run_calls)
    evaluations = evaluate(["runs/a"], RECIPE)
    assert given == ["a/checkpoint-131"]
    assert [evaluation.checkpoint for evaluation in evaluations] == ["a/checkpoint-65", "a/checkpoint-131"]


def test_a_worker_that_fails_is_listed(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from coref_automl.evaluation import run as evaluation_run

    def run_calls(jobs: Any, *, on_return: Any, **settings: Any) -> None:
        for job in jobs:
            on_return(pool.Returned(job, error=ModelError("it is damaged")))

    monkeypatch.setattr(evaluation_run, "_devices", lambda recipe, count: ["cuda:0", "cuda:1"])
    monkeypatch.setattr(evaluation_run, "run_calls", run_calls)
    with pytest.raises(EvaluationError, match="2 of 2 checkpoints could not be scored: a/checkpoint-65"):
        evaluate(["runs/a"], RECIPE)


def test_a_damaged_neighbour_is_passed_over(workspace: Path) -> None:
    evaluate(["runs/a"], RECIPE)
    (workspace / "runs/a/evaluations/tiny-128/checkpoint-131/result.json").write_text("{", "utf-8")
    save_checkpoint(workspace / "runs/a/checkpoint-200", seed=8)
    assert evaluate(["runs/a/checkpoint-200"], RECIPE)
    with pytest.raises(InputError, match="not JSON"):
        find_evaluations(["runs/a"])


def test_an_evaluation_of_another_version_is_refused(workspace: Path) -> None:
    evaluate(["runs/a/checkpoint-65"], RECIPE)
    path = workspace / "runs/a/evaluations/tiny-128/checkpoint-65/result.json"
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), "schema": 0}), "utf-8")
    with pytest.raises(InputError, match="another version"):
        find_evaluations(["runs/a"])


@pytest.mark.parametrize("edit", [("config.json", "layer_norm_eps", 0.5), ("tokenizer_config.json", "mask_token", "[SEP]")])
def test_other_settings_of_the_same_weights_are_scored_anew(
    workspace: Path, counted: Counted, edit: tuple[str, str, Any]
) -> None:
    name, key, value = edit
    path = workspace / "runs/a/checkpoint-65" / name
    settings = json.loads(path.read_text("utf-8"))
    evaluate([str(path.parent)], RECIPE)
    path.write_text(json.dumps({**settings, "transformers_version": "0"}), "utf-8")
    evaluate([str(path.parent)], RECIPE)
    assert counted.items == [22]  # who saved it changes nothing
    path.write_text(json.dumps({**settings, key: value}), "utf-8")
    evaluate([str(path.parent)], RECIPE)
    assert counted.items == [22, 22]
