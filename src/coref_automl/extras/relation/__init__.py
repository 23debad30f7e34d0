"""Relation extraction with typed entity markers: the end of the argument. `coref_automl.relation(...)` trains and scores."""

from coref_automl.base.config import callable_package

callable_package(__name__, "coref_automl.extras.relation.train.relation")
