"""Report: records in, pages out. The room can be called: `coref_automl.report(runs, "report")` writes a report."""

from coref_automl.base.config import callable_package

callable_package(__name__, "coref_automl.extras.pages.checkpoint_report.report")
