"""The command line. One module a verb: parse, call one function, print its result."""

from coref_automl.cli.app import main

__all__ = ["main"]
