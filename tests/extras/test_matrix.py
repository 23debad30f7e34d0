"""Command x changed input, while the work is interrupted and after it: recomputed or refused in a sentence, never stale."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import chdir
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from coref_automl.base.errors import CorefError
from coref_automl.base.say import VARIABLE
from coref_automl.corpus.sources import bundled_rows
from coref_automl.evaluation.results import find_evaluations
from coref_automl.evaluation.run import EvaluateRecipe, evaluate
from coref_automl.extras.coreference.evaluate import evaluate_coreference
from coref_automl.extras.coreference.recipe import CoreferenceRecipe
from coref_automl.extras.coreference.train import train_coreference
from coref_automl.extras.relation.evaluate import evaluate_relation
from coref_automl.extras.relation.grid import run_grid
from coref_automl.extras.relation.recipe import GridRecipe, RelationRecipe
from coref_automl.extras.relation.train import train_relation
from coref_automl.extras.study.adapt import adapt, adapt_recipe
from coref_automl.extras.study.recipe import EvaluateStage, ExperimentRecipe
from coref_automl.extras.study.run import run_experiment
from coref_automl.extras.tune.recipe import TuneRecipe
from coref_automl.extras.tune.run import run_study as run_tuning
from coref_automl.models.model_files import weights_fingerprint
from coref_automl.training.recipe import TrainRecipe
from coref_automl.training.run import train
from coref_automl.training.trainer import RunCallback
from tests.extras.tune.inline import InlineLauncher


class Killed(BaseException):
    """As sudden as a signal: nothing of ours catches it."""


def die(*_: Any) -> None:
    raise Killed


# What can change under a home, before the same command runs again.


def edit_json(path: Path, **values: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **values}), "utf-8")


def shift_weights(path: Path) -> None:
    save_file({name: value + 0.01 for name, value in load_file(path).items()}, path, {"format": "pt"})


def swap_lines(path: Path) -> None:
    lines = path.read_text("utf-8").splitlines()
    path.write_text("\n".join([*lines[1:], lines[0]]) + "\n", "utf-8")


def shorter(path: Path) -> None:
    path.write_text(json.dumps(json.loads(path.read_text("utf-8"))[:-2]), "utf-8")


CHANGES: dict[str, Callable[[Path], None]] = {
    "weights": lambda home: shift_weights(home / "model/model.safetensors"),
    "config": lambda home: edit_json(home / "model/config.json", hidden_act="relu"),
    "tokenizer": lambda home: edit_json(home / "model/tokenizer.json", normalizer={"type": "NFD"}),
    "tokenizer settings": lambda home: edit_json(home / "model/tokenizer_config.json", model_max_length=24),
    "rows": lambda home: shorter(home / "train.json"),
    "scored rows": lambda home: shorter(home / "dev.json"),
    "documents": lambda home: swap_lines(home / "tales.jsonl"),
    "texts": lambda home: swap_lines(home / "texts.jsonl"),
    "blocks": lambda home: edit_json(home / "dataset/manifest.json", fingerprint="other"),
    "set": lambda home: swap_lines(home / "evalset/items-real.jsonl"),
    "own head": lambda home: shift_weights(next(home.glob("out/seed-0/model/head.safetensors"))),
    "own encoder": lambda home: shift_weights(next(home.glob("out/seed-0/model/model.safetensors"))),
    "own config": lambda home: edit_json(next(home.glob("out/seed-0/model/config.json")), hidden_act="relu"),
}
MODEL = ("weights", "config", "tokenizer", "tokenizer settings")


# Commands: in a home and with settings, out what a user would read.


def relation_recipe(home: Path, **changes: Any) -> RelationRecipe:
    settings: dict[str, Any] = {"dev": str(home / "dev.json"), "epochs": 2, "max_length": 64, "holdout": 0.2, "device": "cpu"}
    return RelationRecipe(str(home / "model"), str(home / "train.json"), str(home / "out"), **{**settings, "seeds": 1, **changes})


def coreference_recipe(home: Path, **changes: Any) -> CoreferenceRecipe:
    settings: dict[str, Any] = {"epochs": 2, "size": 8, "window": 48, "segment": 96, "holdout": 0.4, "device": "cpu"}
    named = {"model": str(home / "model"), "data": str(home / "tales.jsonl"), "out": str(home / "out")}
    return CoreferenceRecipe(**{**named, **settings, **changes})


def do_train(home: Path, **changes: Any) -> Any:
    settings: dict[str, Any] = {"epochs": 1, "batch": 8, "checkpoints": 2, "device": "cpu", "log_every": 1, **changes}
    train(TrainRecipe(str(home / "model"), str(home / "dataset"), str(home / "out"), **settings))
    return [weights_fingerprint(str(path)) for path in sorted((home / "out").glob("checkpoint-*"))]


def do_relation(home: Path, on_epoch: Any = None, **changes: Any) -> Any:
    return train_relation(relation_recipe(home, **changes), on_epoch=on_epoch).micro_f1


def do_coreference(home: Path, on_epoch: Any = None, **changes: Any) -> Any:
    return train_coreference(coreference_recipe(home, **changes), on_epoch=on_epoch).estimates


def do_grid(home: Path, **changes: Any) -> Any:
    settings: dict[str, Any] = {"epochs": (1,), "batch_sizes": (16,), "learning_rates": (1e-3,), "schemes": ("plain",)}
    settings |= {"settings": {"max_length": 64, "holdout": 0.2, "device": "cpu", "seeds": 1}, **changes}
    with chdir(home):  # cells are named by the models' paths
        result = run_grid(GridRecipe(models=("model",), train="train.json", dev="dev.json", out="out", **settings))
    return [(cell.result.micro_f1, cell.result.fingerprints) for cell in result.cells if cell.result]


def do_evaluate(home: Path, **changes: Any) -> Any:
    settings: dict[str, Any] = {"out": home / "out", "device": "cpu", **changes}
    (result,) = evaluate([home / "model"], EvaluateRecipe(eval_sets=(home / "evalset",), **settings))
    return result.seq_len, result.estimates, result.fingerprints


def do_relation_evaluate(home: Path) -> Any:
    if not (home / "out").is_dir():
        do_relation(home)
    evaluated = evaluate_relation(home / "out", str(home / "dev.json"), device="cpu")
    (seed,) = (home / "out/seed-0/predictions").glob("dev.json")
    return evaluated.estimates, json.loads(seed.read_text("utf-8"))["model"], evaluated.fingerprints["data"]


def do_coreference_evaluate(home: Path, rank: int = 0) -> Any:
    if not (home / "out").is_dir():
        do_coreference(home, rank=rank)
    data = home / "others.jsonl"
    data.write_text((home / "tales.jsonl").read_text("utf-8").replace("만났다", "보았다"), "utf-8")
    evaluate_coreference(home / "out", str(data), device="cpu", base=str(home / "model") if rank else None)
    return {path.name for path in (home / "out/seed-0/evaluated").iterdir()}


def do_low_rank_evaluate(home: Path) -> Any:
    return do_coreference_evaluate(home, rank=2)


def do_tune(home: Path, **changes: Any) -> Any:
    space = {"learning_rate": {"low": 1e-4, "high": 1e-2, "log": True}}
    settings: dict[str, Any] = {"datasets": (str(home / "dataset"),), "eval_set": str(home / "evalset"), "space": space}
    settings |= {"settings": {"batch": 2}, "epochs": 1, "trials": 1, "finalists": 1, "seeds": 2, "device": "cpu", **changes}
    result = run_tuning(
        TuneRecipe((str(home / "model"),), str(home / "out"), **settings), launcher=InlineLauncher(), wait=lambda: None
    )
    return result.sentence


def do_study(home: Path, **changes: Any) -> Any:
    settings: dict[str, Any] = {"methods": {"mlm": {}, "entity": {}}, "lengths": (16,), "seeds": 1, "device": "cpu"}
    settings |= {"train": {"epochs": 1, "batch": 8, "checkpoints": 1}, "datasets": (str(home / "dataset"),), **changes}
    stage = EvaluateStage(sets=(str(home / "evalset"),))
    recipe = ExperimentRecipe(str(home / "model"), out=str(home / "out"), evaluate=stage, **settings)
    return run_experiment(recipe, only=("train", "evaluate"), launcher=InlineLauncher()).finished


def do_adapt(home: Path, **changes: Any) -> Any:
    texts = home / "texts.jsonl"
    if not texts.is_file():
        rows = islice(bundled_rows("synthetic"), 8)
        texts.write_text("".join(json.dumps({"text": row["text"]}) + "\n" for row in rows), "utf-8")
    settings: dict[str, Any] = {
        "model": "model",
        "methods": {"mlm": {}},
        "lengths": [64],
        "seeds": 1,
        "device": "cpu",
        "out": "out",
    }
    settings |= {"texts": {"sources": ["local:texts.jsonl"], "near_duplicates": False}, "train": {"epochs": 1, "batch": 8}}
    settings |= {"evaluate": {"sets": ["evalset"]}, "relation": None, **changes}
    with chdir(home):  # a dataset is bound to its sources as they are named
        return adapt(adapt_recipe(None, settings), confirm=lambda _: True, timed=False).answer


@dataclass(frozen=True)
class Command:
    """`settings` are what another command line would have; `again`: the same answer comes from a run from the beginning."""

    run: Callable[..., Any]
    inputs: tuple[str, ...]
    settings: tuple[dict[str, Any], ...] = ()
    again: bool = True


OWN = ("own head", "own encoder", "own config")
COMMANDS = {
    "train": Command(do_train, (*MODEL, "blocks"), ({"seed": 1}, {"objective": "entity"})),
    "re train": Command(do_relation, (*MODEL, "rows"), ({"first_seed": 1, "scheme": "plain"}, {"epochs": 1})),
    "coref train": Command(do_coreference, (*MODEL, "documents"), ({"size": 4},)),
    "re grid": Command(
        do_grid, (*MODEL, "rows"), ({"settings": {"max_length": 48, "holdout": 0.2, "device": "cpu", "seeds": 1}},)
    ),
    "evaluate": Command(do_evaluate, (*MODEL, "set"), ({"seq_len": 12},)),
    "re evaluate": Command(do_relation_evaluate, (*OWN, "scored rows"), again=False),
    "coref evaluate": Command(do_coreference_evaluate, (*OWN, "documents"), again=False),
    "coref evaluate of a low-rank head": Command(do_low_rank_evaluate, ("own head", *MODEL), again=False),
}
LONG = {
    "adapt": Command(do_adapt, (*MODEL, "texts", "set"), ({"train": {"epochs": 2, "batch": 8}},)),
    "tune": Command(do_tune, (*MODEL, "blocks", "set"), ({"seed": 1}, {"epochs": 2})),
    "study": Command(do_study, (*MODEL, "blocks", "set"), ({"train": {"epochs": 2, "batch": 8, "checkpoints": 1}},)),
}
CASES = [(name, change) for name, command in COMMANDS.items() for change in command.inputs]


@pytest.fixture(scope="module")
def finished(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Any]]:
    """A home in which a command has finished, and what it answered; made once, and never changed."""
    cache: dict[str, tuple[Path, Any]] = {}

    def of(name: str) -> tuple[Path, Any]:
        if name not in cache:
            copy = tmp_path_factory.mktemp("finished") / "home"
            shutil.copytree(home, copy)
            cache[name] = copy, {**COMMANDS, **LONG}[name].run(copy)
        return cache[name]

    return of


def never_stale(command: Command, home: Path, before: Any, **settings: Any) -> None:
    """Run again after a change: an error of one sentence, or what a run from the beginning answers."""
    try:
        again = command.run(home, **settings)
    except CorefError:
        return
    assert again != before
    if command.again:
        shutil.rmtree(home / "out")
        assert command.run(home, **settings) == again


@pytest.mark.parametrize(("name", "change"), CASES)
def test_a_change_after_the_work_is_seen(
    finished: Callable[[str], tuple[Path, Any]], tmp_path: Path, name: str, change: str
) -> None:
    source, before = finished(name)
    shutil.copytree(source, tmp_path / "home")
    CHANGES[change](tmp_path / "home")
    never_stale(COMMANDS[name], tmp_path / "home", before)


@pytest.mark.parametrize("name", [name for name, command in COMMANDS.items() if command.settings])
def test_other_settings_are_seen(finished: Callable[[str], tuple[Path, Any]], tmp_path: Path, name: str) -> None:
    source, before = finished(name)
    for number, settings in enumerate(COMMANDS[name].settings):
        shutil.copytree(source, tmp_path / str(number))
        never_stale(COMMANDS[name], tmp_path / str(number), before, **settings)


@pytest.mark.parametrize("name", COMMANDS)
def test_nothing_changed_is_answered_from_what_was_done(
    finished: Callable[[str], tuple[Path, Any]], tmp_path: Path, name: str
) -> None:
    source, before = finished(name)
    shutil.copytree(source, tmp_path / "moved")
    stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / "moved/out").rglob("*.safetensors")}
    assert COMMANDS[name].run(tmp_path / "moved") == before
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "moved/out").rglob("*.safetensors")} == stamps


@pytest.mark.parametrize("name", COMMANDS)
def test_another_language_is_no_other_result(
    finished: Callable[[str], tuple[Path, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """What is stored has no language: neither recomputed nor answered otherwise."""
    source, before = finished(name)
    shutil.copytree(source, tmp_path / "home")
    results = {path: path.stat().st_mtime_ns for path in (tmp_path / "home/out").rglob("*.safetensors")}
    for language in ("en", "ko"):
        monkeypatch.setenv(VARIABLE, language)
        assert COMMANDS[name].run(tmp_path / "home") == before
    assert {path: path.stat().st_mtime_ns for path in results} == results


SCORED_BY = {
    "evaluate": ("evaluation.slot.SCORER", "evaluation.run.SCORER"),
    "re evaluate": ("extras.relation.scoring.VERSION",),
    "coref evaluate": ("extras.coreference.evaluate.VERSION",),
    "re train": ("extras.relation.scoring.VERSION",),
}
"""What says which code scored."""


@pytest.mark.parametrize("name", SCORED_BY)
def test_another_version_of_the_scoring_code_scores_again(
    finished: Callable[[str], tuple[Path, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def stamps() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in (tmp_path / "home/out").rglob("*.json*")}

    shutil.copytree(finished(name)[0], tmp_path / "home")
    COMMANDS[name].run(tmp_path / "home")
    before = stamps()
    for constant in SCORED_BY[name]:
        monkeypatch.setattr(f"coref_automl.{constant}", 9 if "relation" in constant else "another")
    COMMANDS[name].run(tmp_path / "home")
    assert stamps() != before


@pytest.fixture(scope="module")
def interrupted(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A home in which a command was killed in the middle."""
    homes: dict[str, Path] = {}

    def of(name: str) -> Path:
        if name not in homes:
            homes[name] = tmp_path_factory.mktemp("killed") / "home"
            shutil.copytree(home, homes[name])
            options = {} if name == "train" else {"on_epoch": die}
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(RunCallback, "on_step_begin", lambda *given, **_: die() if given[2].global_step == 3 else None)
                with pytest.raises(Killed):
                    COMMANDS[name].run(homes[name], **options)
        return homes[name]

    return of


@pytest.mark.parametrize(("name", "change"), [case for case in CASES if case[0] in ("train", "re train", "coref train")])
def test_a_change_in_the_middle_of_the_work_is_refused(
    interrupted: Callable[[str], Path], tmp_path: Path, name: str, change: str
) -> None:
    shutil.copytree(interrupted(name), tmp_path / "home")
    CHANGES[change](tmp_path / "home")
    with pytest.raises(CorefError):
        COMMANDS[name].run(tmp_path / "home")


def test_a_model_that_changes_between_two_seeds_is_refused(home: Path, tmp_path: Path) -> None:
    shutil.copytree(home, tmp_path / "home")

    def change(seed: int, epoch: int, _scores: Any) -> None:
        if (seed, epoch) == (0, 2):
            CHANGES["config"](tmp_path / "home")

    with pytest.raises(CorefError, match="bytes of the model's config"):
        do_relation(tmp_path / "home", on_epoch=change, seeds=2)


def test_a_model_that_changes_while_it_is_scored_leaves_no_evaluation(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from coref_automl.evaluation.scorer import Scorer

    shutil.copytree(home, tmp_path / "home")
    score = Scorer.score

    def late(self: Any, *given: Any, **options: Any) -> Any:
        CHANGES["config"](tmp_path / "home")
        return score(self, *given, **options)

    monkeypatch.setattr(Scorer, "score", late)
    with pytest.raises(CorefError, match="has changed while it was scored"):
        do_evaluate(tmp_path / "home")
    assert not find_evaluations([tmp_path / "home/out"])


@pytest.mark.journey
@pytest.mark.parametrize(("name", "change"), [(name, change) for name, command in LONG.items() for change in command.inputs])
def test_a_change_after_a_study_is_refused(
    finished: Callable[[str], tuple[Path, Any]], tmp_path: Path, name: str, change: str
) -> None:
    source, _ = finished(name)
    shutil.copytree(source, tmp_path / "home")
    CHANGES[change](tmp_path / "home")
    with pytest.raises(CorefError):
        LONG[name].run(tmp_path / "home")


@pytest.mark.journey
@pytest.mark.parametrize("name", LONG)
def test_a_study_of_another_version_of_the_scoring_code_is_refused(
    finished: Callable[[str], tuple[Path, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    source, _ = finished(name)
    shutil.copytree(source, tmp_path / "home")
    for module in ("evaluation.slot", "evaluation.run", "extras.study.plan", "extras.tune.masked"):
        monkeypatch.setattr(f"coref_automl.{module}.SCORER", "another")
    with pytest.raises(CorefError, match="scoring code"):
        LONG[name].run(tmp_path / "home")


@pytest.mark.journey
@pytest.mark.parametrize("name", ["tune", "adapt"])
def test_a_finished_study_is_told_in_the_language_asked_for(
    finished: Callable[[str], tuple[Path, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    source, _ = finished(name)
    shutil.copytree(source, tmp_path / "home")
    sentences = []
    for language in ("en", "ko"):
        monkeypatch.setenv(VARIABLE, language)
        sentences.append(LONG[name].run(tmp_path / "home"))
    assert [any("가" <= sign <= "힣" for sign in sentence) for sentence in sentences] == [False, True]


@pytest.mark.journey
@pytest.mark.parametrize("name", LONG)
def test_a_study_with_other_settings_is_refused(finished: Callable[[str], tuple[Path, Any]], tmp_path: Path, name: str) -> None:
    source, _ = finished(name)
    shutil.copytree(source, tmp_path / "home")
    for settings in LONG[name].settings:
        with pytest.raises(CorefError):
            LONG[name].run(tmp_path / "home", **settings)
