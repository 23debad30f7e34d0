"""coref-automl bench: throughput beside the usual way, in one run on the same inputs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coref_automl.cli.app import app
from coref_automl.cli.options import AsJson, print_json

if TYPE_CHECKING:
    from coref_automl.bench.measurement import BenchResult

bench_app = typer.Typer(help="Measure throughput against the usual way, as a ratio.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(bench_app, name="bench")


def show(result: BenchResult, as_json: bool) -> None:
    if as_json:
        print_json({**result.to_json(), "ratio": result.ratio})
        return
    for line in result.lines:
        print(line)
    print(result.closing_line())


@bench_app.command(epilog="Example: coref-automl bench evaluate --items 200 --seq-len 256")
def evaluate(
    model: Annotated[str | None, typer.Option("--model", help="Model to run. Default: random weights of --shape.")] = None,
    shape: Annotated[str, typer.Option("--shape", help="Shape of a model with random weights.")] = "deberta-tiny",
    eval_set: Annotated[
        Path | None, typer.Option("--eval-set", help="Evaluation set with Real items. Default: the bundled set.")
    ] = None,
    items: Annotated[int, typer.Option("--items", min=1, help="Number of Real items.")] = 200,
    seq_len: Annotated[int, typer.Option("--seq-len", help="Window length in tokens.")] = 256,
    device: Annotated[str, typer.Option("--device", help="cpu, cuda, or auto.")] = "auto",
    dtype: Annotated[str, typer.Option("--dtype", help="float32, bfloat16, or auto (bfloat16 on a GPU).")] = "auto",
    batch_size: Annotated[
        int, typer.Option("--batch-size", min=1, help="Batch size of the pipeline; 1 is fastest on a CPU.")
    ] = 1,
    as_json: AsJson = False,
) -> None:
    """Score Real items in one pass, against the fill-mask pipeline with its top 50 and Kiwi on each candidate, twice."""
    from coref_automl.bench.evaluate import run

    result = run(
        model=model,
        shape=shape,
        eval_set=eval_set,
        items=items,
        seq_len=seq_len,
        device=device,
        dtype=dtype,
        batch_size=batch_size,
    )
    show(result, as_json)


@bench_app.command(epilog="Example: coref-automl bench prepare --source local:wiki.jsonl --megabytes 5")
def prepare(
    source: Annotated[str, typer.Option("--source", help="Text source.")] = "bundled:synthetic",
    model: Annotated[
        str | None, typer.Option("--model", help="Model whose tokenizer is used. Default: trained on the texts.")
    ] = None,
    megabytes: Annotated[float, typer.Option("--megabytes", min=0.01, help="Amount of text in MB.")] = 1.0,
    seq_len: Annotated[int, typer.Option("--seq-len", min=16, help="Tokens per row.")] = 512,
    workers: Annotated[int, typer.Option("--workers", min=0, help="Number of processes and threads; 0 means one per core.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Prepare texts stage by stage, against one Kiwi call per document, tokenising and padding."""
    from coref_automl.bench.prepare import run

    show(run(source=source, model=model, megabytes=megabytes, seq_len=seq_len, workers=workers), as_json)


@bench_app.command("re", epilog="Example: coref-automl bench re --rows 256 --padded 256")
def relation(
    model: Annotated[str | None, typer.Option("--model", help="Model to train. Default: random weights of --shape.")] = None,
    shape: Annotated[str, typer.Option("--shape", help="Shape of a model with random weights.")] = "ko-mini",
    data: Annotated[str, typer.Option("--data", help="Relation rows.")] = "bundled:relations",
    rows: Annotated[int, typer.Option("--rows", min=8, help="Number of rows.")] = 256,
    batch_size: Annotated[int, typer.Option("--batch-size", min=1, help="Rows per step, both ways.")] = 32,
    padded: Annotated[int, typer.Option("--padded", min=32, help="Length that the usual way pads to.")] = 256,
    device: Annotated[str, typer.Option("--device", help="cpu, cuda, or auto.")] = "auto",
    as_json: AsJson = False,
) -> None:
    """Train relation rows in batches of similar length, against rows padded to one length."""
    from coref_automl.bench.relation import run

    result = run(model=model, shape=shape, data=data, rows=rows, batch_size=batch_size, padded=padded, device=device)
    show(result, as_json)


@bench_app.command(epilog="Example: coref-automl bench train --source local:wiki.jsonl --seq-len 512")
def train(
    model: Annotated[str | None, typer.Option("--model", help="Model to train. Default: random weights of --shape.")] = None,
    shape: Annotated[str, typer.Option("--shape", help="Shape of a model with random weights.")] = "ko-mini",
    source: Annotated[str, typer.Option("--source", help="Text source.")] = "bundled:passages",
    documents: Annotated[int, typer.Option("--documents", min=1, help="Number of documents.")] = 400,
    seq_len: Annotated[int, typer.Option("--seq-len", min=16, help="Tokens per row.")] = 512,
    batch: Annotated[int, typer.Option("--batch", min=1, help="Rows per step, all three ways.")] = 8,
    steps: Annotated[int, typer.Option("--steps", min=1, help="Steps per way.")] = 5,
    device: Annotated[str, typer.Option("--device", help="cpu, cuda, or auto.")] = "auto",
    compiled: Annotated[bool, typer.Option("--compile", help="Compile our training step.")] = False,
    attention: Annotated[
        str, typer.Option("--attention", help="Attention of our way: auto, sdpa, eager, flex or fused.")
    ] = "auto",
    as_json: AsJson = False,
) -> None:
    """Train packed rows with the head at masked positions only, against padded rows and joined chunks with full logits."""
    from coref_automl.bench.train import run

    result = run(
        model=model,
        shape=shape,
        source=source,
        documents=documents,
        seq_len=seq_len,
        batch=batch,
        steps=steps,
        device=device,
        compiled=compiled,
        attention=attention,
    )
    show(result, as_json)
