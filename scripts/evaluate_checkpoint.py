"""Evaluate one checkpoint.

    python scripts/evaluate_checkpoint.py --checkpoint runs/a/checkpoint-655 [--seq-len N] [--output-dir DIR]

Every other option of `coref-automl evaluate` is passed on.
"""

import argparse
import sys

from coref_automl.cli.app import run

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", required=True, help="checkpoint folder, run folder, or model name")
    known, rest = parser.parse_known_args()
    sys.exit(run(["evaluate", known.checkpoint, *rest]))
