"""Report: records in, pages out. The room can be called: `coref_automl.report(runs, "report")` writes a report."""

from coref_automl.config import callable_package

callable_package(__name__, "coref_automl.report.checkpoint_report.report")
