"""Base: records, recipes, files, locks, jobs, progress and words; knows nothing of models."""
