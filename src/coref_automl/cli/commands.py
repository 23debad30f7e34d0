"""Every verb of the command line. A new one is a module here and a line below; what is on the app is what `--help` lists."""

from coref_automl.cli import (  # noqa: F401
    sources,
)
