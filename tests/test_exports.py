"""The public surface is small, written down, and cannot drift."""

from __future__ import annotations

import subprocess
import sys

import coref_automl

PUBLIC = [
    "ClozeItem",
    "Comparison",
    "CorefError",
    "CoreferenceRecipe",
    "Document",
    "Estimate",
    "EvalRecipe",
    "EvaluateRecipe",
    "Evaluation",
    "ItemScore",
    "PrepareRecipe",
    "RelationRecipe",
    "Resolved",
    "TrainRecipe",
    "__version__",
    "adapt",
    "compare",
    "coreference",
    "evaluate",
    "fill",
    "load",
    "path",
    "predict_relations",
    "prepare",
    "prepare_eval",
    "recommend",
    "relation",
    "report",
    "train",
    "train_coreference",
    "train_relation",
]


def test_the_exported_names_are_these_and_each_of_them_exists() -> None:
    assert coref_automl.__all__ == sorted(PUBLIC)
    for name in PUBLIC:
        assert getattr(coref_automl, name) is not None, name


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = "import sys, coref_automl; print({'torch', 'transformers', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_no_public_function_hides_the_tune_module() -> None:
    assert "tune" not in coref_automl.__all__
