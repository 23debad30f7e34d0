"""The command line. A command parses its options, calls one function and prints its result."""

from coref_automl.cli.app import main as main
