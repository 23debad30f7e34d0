"""Python as the command line: options by name, records that show themselves, examples that run."""

from __future__ import annotations

import ast
import builtins
import doctest
import inspect
import re
import sys
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import coref_automl as ca
from coref_automl import api
from coref_automl.base.errors import CorefError, InputError, RecipeError
from coref_automl.base.store import write_json
from coref_automl.corpus.sources import bundled_rows
from coref_automl.extras.pages.checkpoint_report import report
from coref_automl.extras.relation.api import predict_relations
from coref_automl.extras.relation.train import relation
from coref_automl.extras.study.api import adapt
from coref_automl.report.printout import compare, html_table, recommend
from tests.comparison.conftest import Maker, Model, evaluated
from tests.evaluation.tiny import freeze_tiny, save_checkpoint
from tests.training.conftest import dataset, make_dataset, tokenizer_folder

__all__ = ["dataset", "evaluated", "make_dataset", "tokenizer_folder"]
FUNCTIONS = {
    "evaluate": api.evaluate, "fill": api.fill, "train": api.train, "relation": relation, "compare": compare,
    "recommend": recommend, "report": report, "adapt": adapt, "load": api.load, "path": api.path,
    "predict_relations": predict_relations,
}  # fmt: skip


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, dataset: Path, tokenizer_folder: Path) -> dict[str, Any]:
    """What the examples of the docstrings speak of."""
    folder = tmp_path_factory.mktemp("world")
    freeze_tiny(folder / "set")
    save_checkpoint(folder / "model", seed=0)
    write_json(folder / "rows.json", list(islice(bundled_rows("relations"), 60)))
    return {
        "eval_set": folder / "set", "model": str(folder / "model"), "rows": folder / "rows.json", "dataset": dataset,
        "tokenizer": tokenizer_folder,
    }  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_example_of_the_docstring_runs(
    name: str, world: dict[str, Any], evaluated: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = inspect.getdoc(FUNCTIONS[name])
    assert text
    runs = evaluated([Model("base", 0, -1.0), Model("run", 100, 0.8), Model("run", 200, 0.9)])
    test = doctest.DocTestParser().get_doctest(text, {**world, "runs": runs, "out": tmp_path / name}, name, None, 0)
    assert test.examples
    runner = doctest.DocTestRunner()
    runner.run(test)
    assert runner.summarize(verbose=False).failed == 0


def test_the_page_defines_the_names_that_its_examples_use() -> None:
    page = (Path(__file__).parents[1] / "docs" / "api.md").read_text("utf-8")
    first, *_ = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    defined: dict[str, Any] = {}
    exec(first, defined)
    parser = doctest.DocTestParser()
    for function in FUNCTIONS.values():
        tree = ast.parse("".join(example.source for example in parser.get_examples(inspect.getdoc(function) or "")))
        names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
        bound = {node.id for node in names if isinstance(node.ctx, ast.Store)} | {"ca", "AutoTokenizer", "error"}
        assert {node.id for node in names} - bound <= {*defined, *vars(builtins)}


def test_evaluations_show_themselves(world: dict[str, Any], tmp_path: Path) -> None:
    result = ca.evaluate(world["model"], eval_set=world["eval_set"], out=tmp_path / "out", device="cpu", base=False)
    assert repr(result).count("\n") == 0
    assert "Real@1" in repr(result)
    assert result._repr_html_().startswith("<table>")
    assert "real1_low" not in result._repr_html_()
    (row,) = result.to_rows()
    assert row["real1_low"] <= row["real1"] <= row["real1_high"]


def test_verdicts_show_themselves(evaluated: Maker) -> None:
    root = evaluated([Model("base", 0, -1.0), Model("run", 100, 0.8), Model("run", 200, 0.9)])
    table, advice = ca.compare(root), ca.recommend(root)
    assert repr(table).endswith("2 of 2 better than base")
    assert len(repr(table)) < 160
    assert [row["finding"] for row in table.to_rows()].count("better") == 2
    assert str(advice).startswith(repr(advice))
    assert sum(row["leads"] for row in advice.to_rows()) == len(advice.questions)
    result = ca.report(root, out=root.parent / "report")
    assert repr(result).startswith(result.page)


def test_without_pandas_a_frame_is_one_sentence_and_rows_stay(evaluated: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "pandas":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    table = ca.compare(evaluated([Model("base", 0, -1.0), Model("run", 100, 0.8)]))
    with pytest.raises(InputError, match=r"pip install pandas, or use to_rows\(\)"):
        table.to_frame()
    assert len(table.to_rows()) == 2


def test_with_pandas_a_frame_has_a_row_per_checkpoint(evaluated: Maker) -> None:
    pytest.importorskip("pandas", reason="pandas is not installed")
    frame = ca.compare(evaluated([Model("base", 0, -1.0), Model("run", 100, 0.8)])).to_frame()
    assert list(frame["checkpoint"]) == ["base", "checkpoint-100"]


def test_trained_runs_show_themselves(
    dataset: Path, tokenizer_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = tmp_path / "rows.json"
    write_json(rows, list(islice(bundled_rows("relations"), 60)))
    named = {"model": "new:tiny", "tokenizer": str(tokenizer_folder), "dataset": str(dataset), "out": str(tmp_path / "run")}
    run = ca.train(**named, max_tokens=2_000, device="cpu")
    results = ca.relation(run.checkpoints[-1], rows, out=tmp_path / "re", seeds=1, epochs=1, max_rows=40, device="cpu")
    for result, names in ((run, ["checkpoint", "path", "best"]), (results, ["metric", "value", "low", "high"])):
        assert repr(result).count("\n") == 0
        assert len(repr(result)) < 160
        assert list(result.to_rows()[0]) == names
        monkeypatch.setitem(sys.modules, "pandas", None)  # not installed
        assert result._repr_html_() is None
        monkeypatch.undo()
        frames = SimpleNamespace(DataFrame=lambda rows: SimpleNamespace(_repr_html_=lambda: f"<table>{len(rows)}</table>"))
        monkeypatch.setitem(sys.modules, "pandas", frames)
        assert result._repr_html_() == f"<table>{len(result.to_rows())}</table>"
        monkeypatch.undo()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: ca.evaluate("bundled:ko-mini", ca.EvaluateRecipe(), device="cpu"), "a recipe or options, not both; device"),
        (lambda: ca.evaluate("bundled:ko-mini", devise="cpu"), "unknown key 'devise'. Did you mean 'device'?"),
        (lambda: ca.train(model="m", dataset="d", out="o", epoch=3), "Did you mean 'epochs'"),
        (lambda: ca.relation("m", "t", out="o", seed=1), "Did you mean 'seeds'"),
        (lambda: ca.adapt("m", "t", out="o", seqlen=3), "unknown key 'seqlen'. Did you mean 'seq_len'"),
        (lambda: ca.fill("no gap here"), "write \\[MASK\\] once"),
    ],
)
def test_what_cannot_be_meant_is_one_sentence(call: Any, said: str) -> None:
    with pytest.raises((CorefError, RecipeError), match=said):
        call()


def test_a_long_table_says_how_much_it_leaves_out() -> None:
    assert html_table([{"<a>": number} for number in range(40)]).endswith("<p>… 10</p>")
    assert "<th>&lt;a&gt;</th>" in html_table([{"<a>": 1}])


def test_adapt_takes_named_sources_by_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, ...]] = []
    monkeypatch.setattr("coref_automl.extras.study.adapt.adapt", lambda recipe, **_: told.append(recipe.texts.sources))
    ca.adapt("bundled:ko-mini", ["kowiki", "mine.jsonl", "hf://datasets/a/b.jsonl"], out=tmp_path / "out")
    assert told == [("kowiki", "local:mine.jsonl", "hf://datasets/a/b.jsonl")]
