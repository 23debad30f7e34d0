"""Report: records in, words and tables out. The package makes this room callable: `coref_automl.report(runs, "report")`."""
