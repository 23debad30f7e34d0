"""The mean of coreference heads that were trained further from one head.

python benchmarks/mean_heads.py runs/a/seed-0/model runs/b/seed-1/model ... --out mean

In: model folders of one encoder and shape; one that is named twice counts twice. Out: a model folder with the mean of their
weights and the settings of the first; the texts that any of them learned from are left out when it is scored.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from coref_automl.base.store import write_json
from coref_automl.extras.coreference.recipe import HEAD, SETTINGS
from coref_automl.extras.coreference.split import learned_from


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("heads", nargs="+", type=Path)
    options.add_argument("--out", type=Path, required=True)
    arguments = options.parse_args()
    read = [load_file(folder / HEAD) for folder in arguments.heads]
    mean = {name: torch.stack([weights[name].float() for weights in read]).mean(0) for name in read[0]}
    arguments.out.mkdir(parents=True)
    save_file({name: value.to(torch.bfloat16) for name, value in mean.items()}, arguments.out / HEAD)
    write_json(arguments.out / "learned_from.json", sorted(set[str]().union(*map(learned_from, arguments.heads))))
    (arguments.out / SETTINGS).write_bytes((arguments.heads[0] / SETTINGS).read_bytes())


if __name__ == "__main__":
    main()
