"""Continue the pretraining of a Korean encoder, measure every checkpoint, choose the one the evidence supports.

The names below are the public ones; each is imported on first use, so that `import coref_automl` is fast.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from coref_automl import report as report
from coref_automl.base import handed
from coref_automl.extras import table

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
    from coref_automl.extras.relation.api import predict_relations as predict_relations
    from coref_automl.extras.relation.recipe import RelationRecipe as RelationRecipe
    from coref_automl.extras.relation.train import relation as relation
    from coref_automl.extras.relation.train import train_relation as train_relation
    from coref_automl.extras.study.api import adapt as adapt
    from coref_automl.report.printout import compare as compare
    from coref_automl.report.printout import recommend as recommend
    from coref_automl.training.recipe import TrainRecipe as TrainRecipe

_PUBLIC = {
    "api": "evaluate fill load path train",
    "base.errors": "CorefError",
    "base.records": "ClozeItem Comparison Document Estimate Evaluation ItemScore",
    "corpus.prepare": "prepare",
    "corpus.recipe": "PrepareRecipe",
    "evaluation.prepare": "EvalRecipe prepare_eval",
    "evaluation.run": "EvaluateRecipe",
    "report.printout": "compare recommend",
    "training.recipe": "TrainRecipe",
}
"""Public names by module; those of extras are in their table."""
_HOMES = {name: module for module, names in _PUBLIC.items() for name in names.split()}
_OF_EXTRAS = table.names()
handed.CHECKS.update(table.checks())
handed.OFFERS.update(table.offers())

__all__ = sorted([*_HOMES, *_OF_EXTRAS, "__version__", "report"])


class _Report(ModuleType):
    """The room `report`, which can be called: `coref_automl.report(runs, "report")` writes a report."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return handed.offered("report")(*arguments, **options)


sys.modules[report.__name__].__class__ = _Report


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("coref-automl")
    if name in _HOMES:
        return getattr(importlib.import_module(f"coref_automl.{_HOMES[name]}"), name)
    if name in _OF_EXTRAS:
        return _OF_EXTRAS[name]()
    raise AttributeError(f"module 'coref_automl' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
