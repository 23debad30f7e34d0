from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ablation_runs import run_variants, variants_of
from ablation_table import fill_section, markdown, table
from coref_automl.base.errors import ComparisonError, EvaluationError, InputError
from coref_automl.base.folders import remove
from coref_automl.extras.relation.data import read_relations
from coref_automl.extras.relation.recipe import RelationRecipe

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "relation_ablation.py"


@pytest.fixture
def base(encoder_folder: Path, relation_file: Path, dev_file: Path, tmp_path: Path) -> RelationRecipe:
    return RelationRecipe(
        model=str(encoder_folder),
        train=str(relation_file),
        dev=str(dev_file),
        out=str(tmp_path),
        epochs=1,
        batch_size=16,
        learning_rate=3e-3,
        holdout=0.2,
        max_length=64,
        keep_weights=False,
        device="cpu",
    )


def test_an_ablation_goes_seed_by_seed_resumes_and_judges(base: RelationRecipe, dev_file: Path, tmp_path: Path) -> None:
    recipes = variants_of(base, ["none", "typed"], tmp_path)
    assert recipes["none"].scheme == "none"
    with pytest.raises(InputError, match="no variant 'magic'"):
        variants_of(base, ["magic"], tmp_path)
    assert run_variants(recipes, seeds=1).seeds == {"none": 1, "typed": 1}
    written = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("result.json")}
    assert run_variants(recipes, seeds=2).seeds == {"none": 2, "typed": 2}
    assert all(path.stat().st_mtime_ns == then for path, then in written.items())
    late = run_variants(variants_of(base, ["none", "typed", "plain"], tmp_path), seeds=1, seconds=-1.0)
    assert (late.seeds["plain"], late.left, late.failed) == (0, 1, {})
    dev = read_relations(str(dev_file))
    runs = {name: Path(recipe.out) for name, recipe in recipes.items()}
    lines = table(runs, dev, reference="none")
    assert [line.name for line in lines] == ["none", "typed"]
    assert lines[0].verdict is None
    assert lines[1].verdict is not None
    assert lines[1].verdict.difference == pytest.approx((lines[1].micro_f1 - lines[0].micro_f1) / 100)
    shown = markdown(lines, dev, "none")
    assert "`made_dev`, 40 rows" in shown
    assert "Verdicts: 1, each judged by itself" in shown
    assert "| none | 2 |" in shown
    alone = [replace(line, verdict=line.verdict and replace(line.verdict, over_seeds=None, shown=False)) for line in lines]
    unjudged = markdown(alone, dev, "none")
    assert "Verdicts: 0" in unjudged
    assert unjudged.rstrip().endswith("| no verdict |")
    with pytest.raises(ComparisonError, match="not among"):
        table(runs, dev, reference="plain")


def test_only_the_marked_section_of_a_document_is_replaced() -> None:
    text = "before\n<!-- results: begin -->\nold\n<!-- results: end -->\nafter\n"
    filled = fill_section(text, "results", "new\n")
    assert filled == "before\n<!-- results: begin -->\nnew\n<!-- results: end -->\nafter\n"
    assert fill_section(filled, "results", "new") == filled
    with pytest.raises(InputError, match="no section"):
        fill_section("nothing", "results", "new")


@pytest.mark.journey
def test_two_workers_give_the_same_table_as_one_and_a_failing_run_stops_no_other(
    base: RelationRecipe, dev_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    dev = read_relations(str(dev_file))
    shown = []
    for workers in (1, 2):
        out = tmp_path / f"{workers}"
        recipes = variants_of(base, ["none", "typed"], out)
        recipes["broken"] = replace(base, model=str(tmp_path / "absent"), out=str(out / "broken"))
        ran = run_variants(recipes, seeds=2, workers=workers)
        assert ran.seeds == {"none": 2, "typed": 2, "broken": 0}
        assert list(ran.failed) == ["broken, seed 0", "broken, seed 1"]
        assert "absent" in ran.failed["broken, seed 0"]
        lines = table({name: out / name for name in ("none", "typed")}, dev, reference="none")
        shown.append(markdown(lines, dev, "none"))
    assert shown[0] == shown[1]


def test_an_ablation_where_everything_fails_is_a_failure(base: RelationRecipe, tmp_path: Path) -> None:
    with pytest.raises(EvaluationError, match="Every run failed"):
        run_variants({"broken": replace(base, model=str(tmp_path / "absent"), out=str(tmp_path / "broken"))}, seeds=1)


def test_runs_are_paired_by_the_seed_they_share(base: RelationRecipe, dev_file: Path, tmp_path: Path) -> None:
    recipes = variants_of(base, ["none", "typed"], tmp_path)
    run_variants(recipes, seeds=2)
    remove(tmp_path / "typed" / "run-0")
    lines = table({name: tmp_path / name for name in recipes}, read_relations(str(dev_file)), reference="none")
    f1 = [
        json.loads((tmp_path / name / "run-1/seed-1/predictions/made_dev.json").read_text("utf-8"))["micro_f1"]
        for name in recipes
    ]
    assert lines[1].verdict is not None
    assert 100 * lines[1].verdict.difference == pytest.approx(f1[1] - f1[0])


@pytest.mark.journey
def test_one_command_trains_schemes_on_one_model_and_the_reference_on_others(
    base: RelationRecipe, tmp_path: Path, encoder_folder: Path
) -> None:
    out, docs = tmp_path / "out", tmp_path / "page.md"
    docs.write_text("<!-- results: begin -->\n<!-- results: end -->\n", "utf-8")
    models = ["--model", f"base={encoder_folder}", "--model", f"other={encoder_folder}"]
    plan = ["--variants", "plain,typed-punct", "--others", "typed-punct", "--reference", "typed-punct", "--seeds", "1"]
    files = ["--train", base.train, "--dev", str(base.dev), "--out", str(out), "--docs", str(docs)]
    size = ["--epochs", "1", "--device", "cpu", "--max-rows", "100"]
    subprocess.run([sys.executable, str(SCRIPT), *models, *plan, *files, *size], check=True, capture_output=True)
    assert sorted(str(path.relative_to(out).parent) for path in out.glob("*/*/run-0")) == [
        "base/plain",
        "base/typed-punct",
        "other/typed-punct",
    ]
    text = docs.read_text("utf-8")
    assert "### Variants on `base`" in text
    assert "### Encoders, all with `typed-punct`" in text
    assert not list(out.rglob("*.safetensors"))
