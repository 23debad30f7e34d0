#!/usr/bin/env python
"""Entity fine-tuning from a checkpoint, as the evaluation guide writes it; the same as `coref-automl train --objective entity`.

python scripts/run_entity_coref_finetune_v2.py --checkpoint runs/mlm_v2_scratch_1536/checkpoint-655 \
    --dataset prepared_datasets/entity_coref_v2_1536 --epochs 5 --output-dir runs/entity_v2_finetune_from_mlm_v2
"""

from __future__ import annotations

import sys

from coref_automl.cli.app import run


def arguments(given: list[str]) -> list[str]:
    """--checkpoint is the model to start from; every option of `coref-automl train` may follow."""
    renamed = [
        option.replace("--checkpoint", "--model", 1) if option.split("=")[0] == "--checkpoint" else option for option in given
    ]
    return ["train", "--objective", "entity", *renamed]


if __name__ == "__main__":
    sys.exit(run(arguments(sys.argv[1:])))
