"""Coreference: annotated texts in, chains out. The room can be called: `coref_automl.coreference("...")` resolves a text."""

from coref_automl.base.config import callable_package

callable_package(__name__, "coref_automl.extras.coreference.predict.coreference")
