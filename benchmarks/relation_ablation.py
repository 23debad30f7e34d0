"""The relation-extraction ablation: marker schemes and techniques, seed by seed, within a time limit; resumable.

    python benchmarks/relation_ablation.py --model base=MODEL --train TRAIN.json --dev DEV.json --out ablation --seconds 570
    python benchmarks/relation_ablation.py --train TRAIN.json --dev DEV.json --out ablation --table-only

Models: `--model NAME=MODEL`, repeated; each gets the same variants in OUT/NAME/VARIANT. Several models are compared with each
other on the variant named by `--across`. The tables go to OUT/ablation.md and OUT/ablation.json; `--docs` also puts them between
the result markers of a document. A run keeps its predictions, not its weights.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from coref_automl.errors import CorefError
from coref_automl.progress import Progress
from coref_automl.relation.ablation import Line, fill_section, markdown, run_variants, table, variants_of
from coref_automl.relation.cache import RowCache
from coref_automl.relation.recipe import RelationRecipe
from coref_automl.store import write_json, write_text

FIRST = "none,plain,typed,punct,typed-punct"


def main() -> int:
    options = read_options()
    try:
        if not options.table_only:
            train(options)
        write_tables(options)
    except CorefError as error:
        print(f"relation_ablation: {error}", file=sys.stderr)
        return error.exit_status
    except KeyboardInterrupt:
        print("Interrupted. The same command goes on from where it stopped.", file=sys.stderr)
        return 130
    return 0


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", default=[], metavar="NAME=MODEL", help="repeat for several encoders")
    parser.add_argument("--train", required=True)
    parser.add_argument("--dev", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--variants", default=FIRST, help=f"comma-separated; default {FIRST}")
    parser.add_argument("--scheme", default="typed", help="the scheme that variants without one of their own use")
    parser.add_argument("--reference", default="", help="variant that the others are compared with; default the first")
    parser.add_argument("--across", default="", help="variant on which several models are compared; default the reference")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--max-rows", type=int, default=None)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seconds", type=float, default=None, help="start no run that would not end within this time")
    parser.add_argument("--keep-weights", action="store_true")
    parser.add_argument("--table-only", action="store_true", help="train nothing; tables from what is there")
    parser.add_argument("--auprc", action="store_true", help="verdicts on AUPRC too, in ablation.json (slow)")
    parser.add_argument("--docs", type=Path, default=None, help="document whose result section is replaced")
    return parser.parse_args()


def train(options: argparse.Namespace) -> None:
    recipes: dict[str, RelationRecipe] = {}
    for entry in options.model:
        name, _, model = entry.partition("=")
        base = RelationRecipe(
            model=model or name,
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
            keep_weights=options.keep_weights,
            epoch_checkpoints=False,
        )
        name = name if model else Path(name).name
        found = variants_of(base, options.variants.split(","), options.out / name)
        recipes |= {f"{name}/{variant}": recipe for variant, recipe in found.items()}
    counts = run_variants(recipes, seeds=options.seeds, seconds=options.seconds, progress=Progress(), cache=RowCache())
    print(", ".join(f"{name}: {count} seeds" for name, count in counts.items()))


def write_tables(options: argparse.Namespace) -> None:
    """One table a model over its variants, and one over models on a common variant."""
    dev = RowCache().read(options.dev, skip_bad=False)
    found: dict[str, dict[str, Path]] = {}
    for done in sorted(options.out.glob("*/*/seed-0/DONE")):
        found.setdefault(done.parents[2].name, {})[done.parents[1].name] = done.parents[1]
    order = {variant: place for place, variant in enumerate(options.variants.split(","))}
    parts, record = [], {}
    for model, runs in found.items():
        runs = dict(sorted(runs.items(), key=lambda entry: order.get(entry[0], len(order))))
        reference = options.reference if options.reference in runs else next(iter(runs))
        lines = table(runs, dev, reference=reference, auprc=options.auprc)
        parts.append(f"### Variants on `{model}`\n\n{markdown(lines, dev, reference)}")
        record[model] = as_json(lines)
    across = options.across or options.reference or options.scheme
    same = {model: runs[across] for model, runs in found.items() if across in runs}
    if len(same) > 1:
        first = next(entry.partition("=")[0] for entry in [*options.model, *same] if entry.partition("=")[0] in same)
        lines = table(same, dev, reference=first, auprc=options.auprc)
        parts.append(f"### Encoders, all with `{across}`\n\n{markdown(lines, dev, first)}")
        record["encoders"] = as_json(lines)
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
