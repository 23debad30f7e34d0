"""Relation extraction with typed entity markers: the end of the argument. `coref_automl.relation(...)` trains and scores."""

from coref_automl.config import callable_package

callable_package(__name__, "coref_automl.relation.train.relation")
