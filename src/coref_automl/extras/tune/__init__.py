"""Tuning: a study around train and evaluate that survives, prunes, and ends with a confirmed recipe."""
