"""The relation-extraction ablation: marker schemes and techniques, seed by seed, within a time limit; resumable.

    python benchmarks/relation_ablation.py --model base=MODEL --model entity=MODEL --others typed --reference typed \\
        --train TRAIN.json --dev DEV.json --out ablation --workers 8 --seconds 570
    python benchmarks/relation_ablation.py --train TRAIN.json --dev DEV.json --out ablation --table-only

Models: `--model NAME=MODEL`, repeated. The first gets all `--variants`, the others those of `--others` (all without it),
each in OUT/NAME/VARIANT; models are compared with each other on the variants named by `--across`. All runs stand in one line for
`--workers` processes that share the device. The tables go to OUT/ablation.md and OUT/ablation.json; `--docs` also puts them
between the result markers of a document. A run keeps its predictions, not its weights.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ablation_runs import VARIANTS, Ran, run_variants, variants_of
from ablation_table import Line, fill_section, markdown, table
from coref_automl.base.errors import CorefError
from coref_automl.base.progress import Progress
from coref_automl.base.store import write_json, write_text
from coref_automl.extras.relation.data import read_relations
from coref_automl.extras.relation.recipe import RelationRecipe

FIRST = "none,plain,typed,punct,typed-punct"


def main() -> int:
    options = read_options()
    try:
        failed = {} if options.table_only else train(options).failed
        write_tables(options)
    except CorefError as error:
        print(f"relation_ablation: {error}", file=sys.stderr)
        return error.exit_status
    except KeyboardInterrupt:
        print("Interrupted. The same command goes on from where it stopped.", file=sys.stderr)
        return 130
    for name, reason in failed.items():
        print(f"{name} failed: {reason}", file=sys.stderr)
    return 1 if failed else 0


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", default=[], metavar="NAME=MODEL", help="repeat for several encoders")
    parser.add_argument("--train", required=True)
    parser.add_argument("--dev", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--variants", default=FIRST, help=f"comma-separated; default {FIRST}")
    parser.add_argument("--others", default="", help="variants of the models after the first; default the same as --variants")
    parser.add_argument("--scheme", default="typed", help="the scheme that variants without one of their own use")
    parser.add_argument("--reference", default="", help="variant that the others are compared with; default the first")
    parser.add_argument("--across", default="", help="variants on which several models are compared; default the reference")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--precision", default="auto", help="auto, float32 or bfloat16")
    parser.add_argument("--max-rows", type=int, default=None)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--workers", type=int, default=1, help="processes that share the device, a run each at a time")
    parser.add_argument("--seconds", type=float, default=None, help="start no run that would not end within this time")
    parser.add_argument("--keep-weights", action="store_true")
    parser.add_argument("--table-only", action="store_true", help="train nothing; tables from what is there")
    parser.add_argument("--auprc", action="store_true", help="verdicts on AUPRC too, in ablation.json (slow)")
    parser.add_argument("--docs", type=Path, default=None, help="document whose result section is replaced")
    return parser.parse_args()


def train(options: argparse.Namespace) -> Ran:
    recipes: dict[str, RelationRecipe] = {}
    for place, entry in enumerate(options.model):
        name, model = named(entry)
        base = RelationRecipe(
            model=model,
            train=options.train,
            dev=options.dev,
            out=str(options.out / name),
            scheme=options.scheme,
            seeds=options.seeds,
            epochs=options.epochs,
            batch_size=options.batch_size,
            learning_rate=options.lr,
            max_rows=options.max_rows,
            device=options.device,
            precision=options.precision,
            keep_weights=options.keep_weights,
            epoch_checkpoints=False,
        )
        variants = options.others if place and options.others else options.variants
        found = variants_of(base, variants.split(","), options.out / name)
        recipes |= {f"{name}/{variant}": recipe for variant, recipe in found.items()}
    ran = run_variants(recipes, seeds=options.seeds, seconds=options.seconds, workers=options.workers, progress=Progress())
    print(", ".join(f"{name}: {count} seeds" for name, count in ran.seeds.items()))
    return ran


def named(entry: str) -> tuple[str, str]:
    """NAME=MODEL as both; a model without a name is called by its folder."""
    name, _, model = entry.partition("=")
    return (name, model) if model else (Path(name).name.replace(":", "-"), name)


def write_tables(options: argparse.Namespace) -> None:
    """One table a model over its variants, and one over models for each variant of `--across`."""
    dev = read_relations(options.dev)
    found: dict[str, dict[str, Path]] = {}
    for done in sorted(options.out.glob("*/*/run-*/DONE")):
        found.setdefault(done.parents[2].name, {})[done.parents[1].name] = done.parents[1]
    models = [named(entry)[0] for entry in options.model]
    found = dict(sorted(found.items(), key=lambda entry: models.index(entry[0]) if entry[0] in models else len(models)))
    order = {variant: place for place, variant in enumerate(dict.fromkeys([*options.variants.split(","), *VARIANTS]))}
    parts, record = [], {}
    for model, runs in found.items():
        if len(runs) < 2:
            continue
        runs = dict(sorted(runs.items(), key=lambda entry: order.get(entry[0], len(order))))
        reference = options.reference if options.reference in runs else next(iter(runs))
        lines = table(runs, dev, reference=reference, auprc=options.auprc)
        parts.append(f"### Variants on `{model}`\n\n{markdown(lines, dev, reference)}")
        record[model] = as_json(lines)
    for across in (options.across or options.reference or options.scheme).split(","):
        same = {model: runs[across] for model, runs in found.items() if across in runs}
        if len(same) > 1:
            first = next(iter(same))
            lines = table(same, dev, reference=first, auprc=options.auprc)
            parts.append(f"### Encoders, all with `{across}`\n\n{markdown(lines, dev, first)}")
            record[f"encoders, {across}"] = as_json(lines)
    text = "\n".join(parts)
    write_text(options.out / "ablation.md", text)
    write_json(options.out / "ablation.json", {"split": dev.split, "n": len(dev.rows), "tables": record})
    if options.docs:
        write_text(options.docs, fill_section(options.docs.read_text("utf-8"), "results", text))
    print(text)


def as_json(lines: tuple[Line, ...]) -> list[dict[str, object]]:
    return [line.to_json() for line in lines]


if __name__ == "__main__":
    sys.exit(main())
