"""Other machines: a CPU without bfloat16, a system without a list of usable cores, devices that are not supported."""

from __future__ import annotations

import ast
import json
import os
import warnings
from pathlib import Path

import pytest

import coref_automl
from coref_automl.cli.app import run
from coref_automl.models import execution
from tests.corpus.conftest import rows
from tests.evaluation.tiny import freeze_tiny, save_checkpoint
from tests.masked import WARNING, without_affinity, without_bfloat16

SOFTWARE = "This CPU has no bfloat16 instructions"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    freeze_tiny(tmp_path / "set")
    save_checkpoint(tmp_path / "model", seed=1)
    return tmp_path


@pytest.fixture
def plain_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU that warns at every bfloat16 product and says it has no instructions for them."""

    without_bfloat16(monkeypatch)
    monkeypatch.setattr(execution, "_cpu_has_bfloat16", lambda: False)


def test_the_masked_cpu_warns_where_nobody_listens_for_it(plain_cpu: None) -> None:
    import torch

    from coref_automl.models.execution import autocast_to

    layer, values = torch.nn.Linear(4, 4), torch.ones(2, 4)
    with pytest.warns(UserWarning, match=WARNING), torch.autocast("cpu", torch.bfloat16):
        layer(values)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        with autocast_to("cpu", torch.bfloat16):
            layer(values)
            warnings.warn("something else", UserWarning, stacklevel=1)
    assert [str(item.message) for item in heard] == ["something else"]


def test_bfloat16_is_scored_in_software_with_one_note(place: Path, plain_cpu: None, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["evaluate", str(place / "model"), "--eval-set", str(place / "set"), "--device", "cpu"]
    assert run([*command, "--dtype", "bfloat16", "--out", str(place / "out"), "--json"]) == 0
    shown = capsys.readouterr()
    assert shown.err.count(SOFTWARE) == 1
    assert "mkldnn" not in shown.err
    assert json.loads(shown.out)["dtype"] == "bfloat16"
    assert run([*command, "--out", str(place / "exact")]) == 0
    assert SOFTWARE not in capsys.readouterr().err


def test_bfloat16_trains_in_software_with_one_note(place: Path, plain_cpu: None, capsys: pytest.CaptureFixture[str]) -> None:
    source = place / "texts.jsonl"
    source.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows(8)), "utf-8")
    model, data = str(place / "model"), str(place / "data")
    options = ["--source", f"local:{source}", "--model", model, "--seq-len", "64", "--exact-only"]
    assert run(["prepare", "mlm", *options, "--holdout", "0", "--out", data]) == 0
    capsys.readouterr()
    training = ["train", "--model", model, "--dataset", data, "--device", "cpu", "--max-tokens", "300", "--batch", "4"]
    assert run([*training, "--dtype", "bfloat16", "--out", str(place / "run")]) == 0
    shown = capsys.readouterr().err
    assert shown.count(SOFTWARE) == 1
    assert "mkldnn" not in shown


def test_a_system_without_a_list_of_usable_cores_prepares_and_fills(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without_affinity(monkeypatch)
    assert not hasattr(os, "sched_getaffinity")
    texts, model = tmp_path / "texts.jsonl", ["--model", str(tmp_path / "tokenizer")]
    texts.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows(40)), "utf-8")
    source = ["--source", f"local:{texts}", "--holdout", "0.5"]
    assert run(["tokenizer", "learn", *source, "--vocab-size", "1000", "--alphabet", "300", "--out", model[1]]) == 0
    assert run(["prepare", "entity", *source, *model, "--seq-len", "128", "--out", str(tmp_path / "data")]) == 0
    assert run(["prepare", "eval", *source, *model, "--task", "real", "--out", str(tmp_path / "set")]) == 0
    save_checkpoint(tmp_path / "model", seed=1)
    assert run(["fill", "시민은 [MASK]을 찾았다.", "--model", str(tmp_path / "model"), "--device", "cpu"]) == 0
    assert "Traceback" not in capsys.readouterr().err


def test_cores_are_those_of_this_process_and_all_where_no_list_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    from coref_automl.base.machine import usable_cores

    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3}, raising=False)
    assert usable_cores() == 1
    without_affinity(monkeypatch)
    assert usable_cores() == os.cpu_count()


def bound_and_read_in_comprehensions(function: ast.AST) -> set[str]:
    """Names that one comprehension of a function binds and another reads without binding."""
    bound: list[set[str]] = []
    read: list[set[str]] = []
    for node in ast.walk(function):
        if isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp):
            names = [name for name in ast.walk(node) if isinstance(name, ast.Name)]
            bound.append({name.id for name in names if isinstance(name.ctx, ast.Store)})
            read.append({name.id for name in names if isinstance(name.ctx, ast.Load)})
    return {name for number, names in enumerate(read) for other in bound for name in (names - bound[number]) & other}


def test_no_comprehension_binds_a_module_s_name_that_another_reads() -> None:
    """Python 3.12.0 and 3.12.1 take the second for the local variable of the first, which has no value by then."""
    result = []
    for path in sorted(Path(coref_automl.__file__).parent.rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        own = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                result += [f"{path.name}: {node.name}: {name}" for name in bound_and_read_in_comprehensions(node) & own]
    assert not result


@pytest.mark.parametrize("device", ["mps", "xpu:0", "meta"])
def test_an_unsupported_device_is_declined_in_a_sentence(place: Path, device: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["evaluate", str(place / "model"), "--eval-set", str(place / "set"), "--out", str(place / "out")]
    assert run([*command, "--device", device]) == 2
    assert f"The device {device} is not supported; pass --device cpu" in capsys.readouterr().err
