"""Evaluate one checkpoint.

    python scripts/evaluate_checkpoint.py --checkpoint runs/a/checkpoint-655 [--seq-len N] [--output-dir DIR]

Every other option of `coref-automl evaluate` is passed on.
"""

import argparse
import sys

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", required=True, help="checkpoint folder, run folder, or model name")
    known, rest = parser.parse_known_args()
    if known.checkpoint.endswith("_eval_results.json"):
        # `for ckpt in runs/a/checkpoint-*` also meets the results that stand beside the checkpoints
        print(f"{known.checkpoint} is a result, not a checkpoint: left out.", file=sys.stderr)
        sys.exit(0)
    from coref_automl.cli.app import run

    sys.exit(run(["evaluate", known.checkpoint, *rest]))
