"""Evaluation: frozen cloze items, scored in one pass, every number with its interval."""
