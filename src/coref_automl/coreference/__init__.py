"""Coreference: annotated texts in, chains out. The room is also the function that resolves a text."""
