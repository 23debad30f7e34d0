"""Coreference: annotated texts in, chains out. `coref_automl.coreference("...")` resolves a text."""
