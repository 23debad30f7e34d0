"""Relation extraction with typed entity markers: downstream evaluation. `coref_automl.relation(...)` trains and scores."""
