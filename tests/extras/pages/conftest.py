"""The evaluations that the comparison's tests write are what reports are made of."""

from tests.comparison.conftest import evaluated, scored, scored_source, study_folder, study_source

__all__ = ["evaluated", "scored", "scored_source", "study_folder", "study_source"]
