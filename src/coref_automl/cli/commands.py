"""Every verb of the command line. A new one is a module here and a line below; what is on the app is what `--help` lists."""

import importlib

VERBS = (
    "sources",
    "prepare",
    "bench",
    "evaluate",
    "compare",
    "demo",
    "tokenizer",
    "train",
    "relation",
    "relation_train",
    "coreference",
    "tune",
)

for _verb in VERBS:
    importlib.import_module(f"coref_automl.cli.{_verb}")
