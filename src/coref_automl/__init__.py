"""Continue the pretraining of a Korean encoder, measure every checkpoint, choose the one the evidence supports.

The names below are the public ones; each is imported on first use, so that `import coref_automl` is fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coref_automl.api import evaluate as evaluate
    from coref_automl.api import fill as fill
    from coref_automl.api import load as load
    from coref_automl.api import path as path
    from coref_automl.api import train as train
    from coref_automl.base.errors import CorefError as CorefError
    from coref_automl.base.records import ClozeItem as ClozeItem
    from coref_automl.base.records import Comparison as Comparison
    from coref_automl.base.records import Document as Document
    from coref_automl.base.records import Estimate as Estimate
    from coref_automl.base.records import Evaluation as Evaluation
    from coref_automl.base.records import ItemScore as ItemScore
    from coref_automl.corpus.prepare import prepare as prepare
    from coref_automl.corpus.recipe import PrepareRecipe as PrepareRecipe
    from coref_automl.evaluation.prepare import prepare_eval as prepare_eval
    from coref_automl.evaluation.recipe import EvalRecipe as EvalRecipe
    from coref_automl.evaluation.run import EvaluateRecipe as EvaluateRecipe
    from coref_automl.extras.coreference.predict import Resolved as Resolved
    from coref_automl.extras.coreference.predict import coreference as coreference
    from coref_automl.extras.coreference.recipe import CoreferenceRecipe as CoreferenceRecipe
    from coref_automl.extras.coreference.train import train_coreference as train_coreference
    from coref_automl.extras.pages.checkpoint_report import report as report
    from coref_automl.extras.relation.api import predict_relations as predict_relations
    from coref_automl.extras.relation.recipe import RelationRecipe as RelationRecipe
    from coref_automl.extras.relation.train import relation as relation
    from coref_automl.extras.relation.train import train_relation as train_relation
    from coref_automl.extras.study.api import adapt as adapt
    from coref_automl.report.printout import compare as compare
    from coref_automl.report.printout import recommend as recommend
    from coref_automl.training.recipe import TrainRecipe as TrainRecipe

_PUBLIC = {
    "extras.study.api": "adapt",
    "extras.relation.api": "predict_relations",
    "": "coreference relation report",
    "api": "evaluate fill load path train",
    "extras.coreference.predict": "Resolved",
    "extras.coreference.recipe": "CoreferenceRecipe",
    "extras.coreference.train": "train_coreference",
    "corpus.prepare": "prepare",
    "corpus.recipe": "PrepareRecipe",
    "base.errors": "CorefError",
    "evaluation.prepare": "EvalRecipe prepare_eval",
    "evaluation.run": "EvaluateRecipe",
    "base.records": "ClozeItem Comparison Document Estimate Evaluation ItemScore",
    "extras.relation.recipe": "RelationRecipe",
    "extras.relation.train": "train_relation",
    "report.printout": "compare recommend",
    "training.recipe": "TrainRecipe",
}
"""Public names by module; those under "" are packages that can be called."""
_HOMES = {name: module for module, names in _PUBLIC.items() for name in names.split()}

__all__ = sorted([*_HOMES, "__version__"])


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("coref-automl")
    if _HOMES.get(name) == "":  # a package that can be called; importing one of its modules sets this name, too
        return importlib.import_module(f"coref_automl.{'' if name == 'report' else 'extras.'}{name}")
    if name in _HOMES:
        return getattr(importlib.import_module(f"coref_automl.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'coref_automl' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
