"""What no one should type, through the commands: each is refused in a sentence, and never with an exception's own words."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coref_automl.cli.app import run
from tests.corpus.conftest import rows
from tests.evaluation.tiny import freeze_tiny, save_checkpoint

DEEP = "[" * 100_000
DIGITS = "9" * 5_000
LONG = "a" * 300
MODEL = "model"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, an evaluation set, a dataset and an evaluated run, as the commands make them."""
    folder = tmp_path_factory.mktemp("made")
    freeze_tiny(folder / "set")
    save_checkpoint(folder / MODEL, seed=1)
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows(8))
    (folder / "texts.jsonl").write_text(text, "utf-8")
    source = ["--source", f"local:{folder / 'texts.jsonl'}", "--exact-only", "--holdout", "0"]
    data = ["--model", str(folder / MODEL), "--seq-len", "64", "--out", str(folder / "data")]
    assert run(["prepare", "mlm", *source, *data]) == 0
    training = ["--dataset", str(folder / "data"), "--epochs", "1", "--batch", "8", "--save-every", "0.5", "--device", "cpu"]
    assert run(["train", "--model", str(folder / MODEL), *training, "--out", str(folder / "run")]) == 0
    how = ["--eval-set", str(folder / "set"), "--device", "cpu", "--no-base"]
    assert run(["evaluate", str(folder / "run"), *how]) == 0
    return folder


@pytest.fixture
def place(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy to damage, as the working folder."""
    monkeypatch.chdir(shutil.copytree(made, tmp_path / "place"))
    return Path.cwd()


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def call(*arguments: str | Path, status: int = 2) -> str:
        capsys.readouterr()
        result = run([str(argument) for argument in arguments])
        shown = capsys.readouterr().err
        assert "run it again with --debug" not in shown
        assert result == status, shown
        assert len(shown) < 2_000
        return shown

    return call


EVALUATE = ("evaluate", MODEL, "--eval-set", "set", "--device", "cpu", "--out", "out")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (DEEP, "nested too deeply"),
        (f'{{"a": {DIGITS}}}', "Exceeds the limit"),
        ("[1, 2]", ""),
        ('"text"', ""),
        ("{}", ""),
    ],
    ids=["deep", "digits", "list", "text", "empty"],
)
def test_json_that_cannot_be_read_or_is_something_else(place: Path, said: Callable[..., str], text: str, reason: str) -> None:
    for name, command in {
        "set/manifest.json": EVALUATE,
        f"{MODEL}/config.json": EVALUATE,
        "data/manifest.json": ("train", "--model", MODEL, "--dataset", "data", "--out", "other", "--device", "cpu"),
        "run/manifest.json": ("train", "--model", MODEL, "--dataset", "data", "--out", "run", "--device", "cpu"),
    }.items():
        before = Path(name).read_text("utf-8")
        Path(name).write_text(text, "utf-8")
        shown = said(*command)
        assert name.partition("/")[0] in shown
        assert reason in shown
        Path(name).write_text(before, "utf-8")
    Path("rows.json").write_text(text, "utf-8")
    assert "rows.json" in said("re", "train", "--model", MODEL, "--train", "rows.json", "--out", "relation", "--device", "cpu")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: " + "[" * 3_000, "nested too deeply"),
        (f"seed: {DIGITS}", "is not YAML"),
        (f"seed: 0x{'f' * 6_000}", "is not YAML"),
        ("1: 2\n", "unknown key 1"),
        ("? [a, b]\n: 2\n", ""),
        ("~: 2\n", "unknown key None"),
        ("max_minutes: .inf\n", "max_minutes should be a finite number below 1.8e308, not inf"),
        ("learning_rate: .nan\n", "learning_rate should be a finite number below 1.8e308, not nan"),
        ("seed: 2020-13-45\n", ""),
        ("model: [a]\n", "model should be text"),
        ("out: {a: 1}\n", "out should be text"),
        ("- a\n", "key: value"),
        ('model: "a\\0b"\n', ""),
    ],
)
def test_recipes_that_are_none(place: Path, said: Callable[..., str], text: str, reason: str) -> None:
    Path("recipe.yaml").write_text(text, "utf-8")
    options = {"model": MODEL, "dataset": "data", "out": "out"}
    options.pop(text.partition(":")[0], None)  # an option of the command line goes before the recipe
    assert reason in said(
        "train", "--recipe", "recipe.yaml", *(part for name in options for part in (f"--{name}", options[name]))
    )


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--seq-len", "0"), "seq_len should be 1 or more, not 0"),
        (("--batch-tokens", "-5"), "budget (--batch-tokens) should be 1 or more, not -5"),
        (("--seed", "-1"), "seed should be 0 or more"),
        (("--eval-set", LONG), "File name too long"),
        (("--out", LONG), "File name too long"),
        (("--device", LONG), "Unknown device"),
        (("--eval-set", "~nosuchuser/set"), "~nosuchuser/set"),
        (("--out", "\udcff"), "is not UTF-8"),
    ],
)
def test_options_of_evaluate(place: Path, said: Callable[..., str], options: tuple[str, ...], reason: str) -> None:
    assert reason in said(*EVALUATE, *options)


@pytest.mark.parametrize(
    "line",
    [
        "train --model model --dataset data --epochs 1e40 --device cpu",
        "train --model model --dataset data --max-tokens 100000000000000000 --device cpu --dry-run",
        "tokenizer learn --source local:texts.jsonl --vocab-size 1000 --holdout 1e308",
        "tokenizer learn --source local:texts.jsonl --vocab-size 1000 --holdout nan",
        "tokenizer learn --source local:texts.jsonl --vocab-size 1000 --holdout -1",
    ],
)
def test_budgets_and_shares_beyond_all_bounds(place: Path, said: Callable[..., str], line: str) -> None:
    option = next(word for word in ("epochs", "max-tokens", "holdout") if word in line)
    assert option in said(*line.split(), "--out", "out")


@pytest.mark.parametrize("name", [".", "..", "a.b", "", "a/b", "nosuchpackage"])
def test_names_of_trackers(place: Path, said: Callable[..., str], name: str) -> None:
    assert "--report-to" in said(
        "train", "--model", MODEL, "--dataset", "data", "--out", "out", "--device", "cpu", "--report-to", name
    )


@pytest.mark.parametrize("command", ["adapt", "tune", "train", "re train", "re grid", "coref train"])
def test_keys_that_are_no_text(place: Path, said: Callable[..., str], command: str) -> None:
    for key in ("2020-01-01", "3.5", "null"):
        Path("recipe.yaml").write_text(f"? {key}\n: 1\n", "utf-8")
        assert "unknown key" in said(*command.split(), "--recipe", "recipe.yaml", "--out", "out")


@pytest.mark.parametrize("text", ["texts: texts", "texts: [1]", "texts: null", "texts: {sources: 3}", "train: 1"])
def test_stages_that_are_none(place: Path, said: Callable[..., str], text: str) -> None:
    Path("recipe.yaml").write_text(f"model: {MODEL}\n{text}\n", "utf-8")
    options = ("--seq-len", "64", "--epochs", "1")
    for line in ((), options) if text.startswith("texts") else ((*options, "--source", "local:texts.jsonl"),):
        stage = text.partition(":")[0]
        wanted = "--source" if "null" in text else stage
        assert wanted in said("adapt", "--recipe", "recipe.yaml", "--out", "out", *line)


@pytest.mark.parametrize("seed", [-1, -(2**63), 2**63, 10**40])
def test_seeds_of_recipes(place: Path, said: Callable[..., str], seed: int) -> None:
    recipes: dict[str, dict[str, Any]] = {
        "adapt": {"model": MODEL, "texts": {"sources": ["local:texts.jsonl"]}},
        "tune": {"models": [MODEL], "datasets": ["data"], "eval_set": "set"},
        "train": {"model": MODEL, "dataset": "data"},
        "re train": {"model": MODEL, "train": "rows.json"},
        "coref train": {"model": MODEL, "data": "chains.jsonl"},
    }
    for command, recipe in recipes.items():
        key = "first_seed" if " " in command or command == "adapt" else "seed"
        Path("recipe.yaml").write_text(json.dumps({**recipe, key: seed}), "utf-8")
        assert f"{key} " in said(*command.split(), "--recipe", "recipe.yaml", "--out", "out")
        assert not Path("out").exists()


@pytest.mark.parametrize("model", [LONG, f"{LONG}/{LONG}", "~nosuchuser/model", "\udcff", "", "a\nb", "set", "texts.jsonl"])
def test_names_of_models(place: Path, said: Callable[..., str], model: str) -> None:
    said("evaluate", model, "--eval-set", "set", "--device", "cpu", "--out", "out")
    said("fill", "시민은 [MASK]을 찾았다.", "--model", model, "--device", "cpu")
    said("train", "--model", model, "--dataset", "data", "--out", "new", "--device", "cpu")
    said("prepare", "mlm", "--source", "local:texts.jsonl", "--model", model, "--out", "new-data")


@pytest.mark.parametrize(
    "source", [LONG, f"local:{LONG}", "local:~nosuchuser/texts.jsonl", "local:\udcff", "local:", "local:set"]
)
def test_names_of_sources(place: Path, said: Callable[..., str], source: str) -> None:
    said("prepare", "mlm", "--source", source, "--model", MODEL, "--out", "new")
    said("prepare", "eval", "--source", source, "--model", MODEL, "--task", "real", "--out", "new")


def test_rows_with_half_a_surrogate_are_rows(place: Path, said: Callable[..., str]) -> None:
    texts = [json.dumps({**row, "id": "\ud800", "title": "\udfff", "source": "\ud800"}) for row in rows(4)]
    texts.append(json.dumps({"text": rows(5)[4]["text"] + "\ud800"}))
    Path("half.jsonl").write_text("\n".join(texts) + "\n", "utf-8")
    said(
        "prepare",
        "mlm",
        "--source",
        "local:half.jsonl",
        "--model",
        MODEL,
        "--seq-len",
        "64",
        "--holdout",
        "0",
        "--out",
        "n",
        status=0,
    )


def test_a_file_whose_name_is_not_utf8_is_named(place: Path, said: Callable[..., str]) -> None:
    Path("folder").mkdir()
    shutil.copy("texts.jsonl", b"folder/\xff.jsonl".decode("utf-8", "surrogateescape"))
    shown = said("prepare", "mlm", "--source", "local:folder", "--model", MODEL, "--out", "new")
    assert "is not UTF-8" in shown


def test_an_argument_cut_in_a_character_is_named_as_an_argument_and_shortened(said: Callable[..., str]) -> None:
    cut = ("서울은 " * 400).encode()[:-2].decode("utf-8", "surrogateescape")
    shown = said("coref", "predict", cut)
    assert "argument '서울은 서울은" in shown
    assert "is not UTF-8" in shown
    assert len(shown) < 300


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"estimates": 5}, "estimates should be an object, not 5"),
        (
            {"estimates": {"real1": {"value": "x", "low": 0, "high": 1, "n": 1}}},
            "estimates.real1.value should be a number, not 'x'",
        ),
        ({"seq_len": "64"}, "seq_len should be a whole number, not '64'"),
        ({"seq_len": 10**400}, "seq_len should be between -2**63 and 2**63, not 1000"),
        ({"fingerprints": []}, "fingerprints should be an object, not []"),
        ({"checkpoint": None}, "checkpoint should be text, not None"),
        ({"seconds": True}, "seconds should be a number, not True"),
        ({"seconds": float("nan")}, "seconds should be a finite number below 1.8e308, not nan"),
        ({"colour": "red"}, "unknown key 'colour'"),
        ({"schema": 2, "colour": "red"}, "was written by a newer version (schema 2, this one reads 1); update coref-automl"),
    ],
)
def test_a_stored_result_of_other_types(place: Path, said: Callable[..., str], change: dict[str, Any], reason: str) -> None:
    path = next(Path("run/evaluations").rglob("result.json"))
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **change}), "utf-8")
    for command in (
        ("compare", path.parent),
        ("report", path.parent, "--out", "page"),
        ("archive", path.parent, "--out", "kept"),
    ):
        shown = said(*command)
        assert reason in shown
        assert str(path) in shown


def test_weights_that_do_not_fit_in_memory_are_no_bad_checkpoint(
    place: Path, said: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import AutoModelForMaskedLM

    def short(*_: Any, **__: Any) -> None:
        raise RuntimeError("[enforce fail at alloc_cpu.cpp:128] data. DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(AutoModelForMaskedLM, "from_pretrained", short)
    shown = said(*EVALUATE, status=1)
    assert "does not fit in the memory of cpu" in shown
    assert "another checkpoint" not in shown


@pytest.mark.journey
@pytest.mark.slow
def test_a_limit_on_the_size_of_files_stops_in_a_sentence_and_leaves_earlier_checkpoints(made: Path, tmp_path: Path) -> None:
    """The weights fit under the limit and the optimizer, which holds two numbers a weight, does not."""
    weights = (made / MODEL / "model.safetensors").stat().st_size
    command = ["train", "--model", made / MODEL, "--dataset", made / "data", "--out", tmp_path / "run", "--device", "cpu"]
    done = subprocess.run(
        [sys.executable, "-m", "coref_automl.cli", *map(str, command), "--epochs", "1", "--batch", "8"],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1"},
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (int(1.5 * weights), int(1.5 * weights))),
    )
    assert done.returncode == 1, done.stderr
    assert "could not be saved" in done.stderr
    assert "earlier checkpoints are intact" in done.stderr
    assert not list((tmp_path / "run").glob("checkpoint-*"))


def test_saved_weights_obey_the_umask(made: Path, tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        command = ["train", "--model", str(made / MODEL), "--dataset", str(made / "data"), "--out", str(tmp_path / "run")]
        assert run([*command, "--epochs", "1", "--batch", "16", "--save-every", "1", "--device", "cpu"]) == 0
    finally:
        os.umask(before)
    written = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert {path.name for path in written} >= {"model.safetensors", "optimizer.pt"}
    assert {oct(path.stat().st_mode & 0o777) for path in written} == {"0o640"}
