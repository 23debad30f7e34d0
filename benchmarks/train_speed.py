"""Training speed of every family on a GPU, beside plain Hugging Face and beside a ceiling, in one call of under eight minutes.

python benchmarks/train_speed.py [--texts FILE.jsonl.xz] [--only bert-512,train] [--dropout 0,0.1] [--rounds 3]

One table, tokens/s, median of the rounds with their spread; bfloat16 autocast, fused AdamW, new weights (they cost the same).

    Hugging Face   SDPA, logits of all tokens, full rows of one document, no padding
    ours           rows packed by `prepare`, documents kept apart, head at hidden positions, layers compiled (DeBERTa: fused)
    ceiling        compiled layers, no mask at all, head at hidden positions, the same number of tokens

The sides take turns within a round. `train` rows are `coref-automl train` itself, start-up left out. Texts are Wikipedia
documents: a file of {"text": ...}, else bundled words cut at lengths like Wikipedia's.
"""

from __future__ import annotations

import argparse
import json
import lzma
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np

from base_models import base_absolute, base_deberta, base_modernbert

VOCABULARY = 16_384
HIDDEN = 0.2
"""Share of tokens that are hidden."""
BATCHES = 3
"""Distinct batches, by turns; as many steps are not timed, so that every shape has been seen."""
LENGTHS = (500, 1_900)
"""Median and 90th percentile of the tokens of documents made from bundled words."""


@dataclass(frozen=True, slots=True)
class Case:
    """A shape to time: the model for a length, rows and length, dropouts; `long`: documents of a row and more alone."""

    model: Callable[[int], Any]
    rows: int
    length: int
    dropouts: tuple[float, ...] = (0.0, 0.1)
    long: bool = False


modernbert = partial(base_modernbert, vocabulary=VOCABULARY)
modernbert_31m = partial(modernbert, layers=10, hidden=512, inner=768, every=2)
deberta = partial(base_deberta, vocabulary=VOCABULARY)
bert, roberta, electra = (partial(base_absolute, family) for family in ("bert", "roberta", "electra"))


def ko_mini(_length: int) -> Any:
    from coref_automl.models.load import load_masked_lm

    return load_masked_lm("bundled:ko-mini").model


CASES = {
    "bert-512": Case(bert, 64, 512),
    "bert-2048": Case(bert, 16, 2048),
    "bert-2048-long": Case(bert, 16, 2048, (0.0,), long=True),
    "roberta-512": Case(roberta, 64, 512),
    "electra-512": Case(electra, 64, 512),
    "modernbert-512": Case(modernbert, 64, 512),
    "modernbert-2048": Case(modernbert, 16, 2048),
    "modernbert-2048-long": Case(modernbert, 16, 2048, (0.0,), long=True),
    "modernbert31m-256": Case(modernbert_31m, 256, 256),
    "ko-mini-256": Case(ko_mini, 256, 256, (0.0,)),
    "deberta-2048-long": Case(deberta, 8, 2048, (0.0,), long=True),
}
TRAINED = {
    "modernbert31m-256": ({}, 3),
    "ko-mini-256": ({}, 1),
    "deberta-2048-long": ({"dropout": 0.1}, 1),
}
"""What `coref-automl train` runs: options, and how often."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=",".join([*CASES, "train"]), help="cases, and train for the command itself")
    parser.add_argument("--texts", type=Path)
    parser.add_argument("--dropout", default="0,0.1")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=5, help="steps of a side in a round")
    parser.add_argument("--device", default="cuda")
    arguments = parser.parse_args()
    chosen = arguments.only.split(",")
    if unknown := set(chosen) - {*CASES, "train"}:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; --only takes {', '.join([*CASES, 'train'])}")
    import torch
    import transformers

    started = time.monotonic()
    name = torch.cuda.get_device_name() if arguments.device == "cuda" else "CPU"
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, {name}, {arguments.rounds} rounds")
    with tempfile.TemporaryDirectory() as folder:
        corpus = Corpus(documents(arguments.texts), Path(folder))
        print(corpus.describe(), "", ROW.format(*HEADER), sep="\n", flush=True)
        for name in (name for name in CASES if name in chosen):
            for dropout in CASES[name].dropouts:
                if dropout in map(float, arguments.dropout.split(",")):
                    time_case(name, CASES[name], dropout, corpus, arguments)
        if "train" in chosen:
            for name, (options, times) in TRAINED.items():
                for _ in range(times):
                    print(train_itself(name, CASES[name], options, corpus, arguments.device), flush=True)
    print(f"{time.monotonic() - started:.0f} s in all")


ROW = "{:<22}{:>8}{:>14}{:>14}{:>7}{:>14}{:>9}{:>16}{:>9}{:>8}"
HEADER = ("rows x length", "dropout", "Hugging Face", "ours", "ratio", "ceiling", "of it", "spread HF, ours", "first s", "GB")
"""`first s`: the first step of ours, compiling included; `GB`: peak memory of all sides together."""


@dataclass(slots=True, eq=False)
class Side:
    """One way to train: its step on the next batch, tokens of a batch, and the speed of each round."""

    step: Callable[[], None]
    tokens: list[int]
    speeds: list[float]
    first: float = 0.0
    done: int = 0

    def run(self, steps: int) -> float:
        """Return tokens per second over some steps."""
        import torch

        synchronize: Callable[[], None] = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
        synchronize()
        started = time.perf_counter()
        for _ in range(steps):
            self.step()
        synchronize()
        seconds = time.perf_counter() - started
        seen = sum(self.tokens[(self.done + number) % len(self.tokens)] for number in range(steps))
        self.done += steps
        return seen / seconds

    @property
    def speed(self) -> float:
        return statistics.median(self.speeds)

    @property
    def spread(self) -> float:
        return (max(self.speeds) - min(self.speeds)) / self.speed


def time_case(name: str, case: Case, dropout: float, corpus: Corpus, arguments: argparse.Namespace) -> None:
    """Print the row of one shape and dropout."""
    import torch

    torch._dynamo.reset()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    sides = {"usual": usual(case, dropout, corpus, arguments.device), "ours": ours(case, dropout, corpus, arguments.device)}
    if case.model is not deberta:
        sides["ceiling"] = ceiling(case, dropout, corpus, arguments.device)
    for side in sides.values():
        started = time.perf_counter()
        side.run(1)
        side.first = time.perf_counter() - started
        side.run(BATCHES - 1)
    for _ in range(arguments.rounds):
        for side in sides.values():
            side.speeds.append(side.run(arguments.steps))
    left, right, most = sides["usual"], sides["ours"], sides.get("ceiling")
    memory = torch.cuda.max_memory_allocated() / 1e9 if torch.cuda.is_available() else 0.0
    print(
        ROW.format(
            name, f"{dropout:g}", f"{left.speed:,.0f}", f"{right.speed:,.0f}", f"{right.speed / left.speed:.2f}",
            f"{most.speed:,.0f}" if most else "", f"{right.speed / most.speed:.0%}" if most else "",
            f"{left.spread:.1%}, {right.spread:.1%}", f"{right.first:.1f}", f"{memory:.0f}",
        ),
        flush=True,
    )  # fmt: skip


def fresh(case: Case, dropout: float, device: str, attention: str) -> Any:
    import torch

    from coref_automl.models.execution import use_attention, with_dropout

    with torch.device(device):  # random numbers for a hundred million weights take seconds on a CPU
        model = with_dropout(case.model(case.length).to(device), dropout).train()
    use_attention(model, attention)
    return model


def usual(case: Case, dropout: float, corpus: Corpus, device: str) -> Side:
    """Plain Hugging Face: every token's logits, and no mask, as there is no padding."""
    import torch

    model = fresh(case, dropout, device, "eager" if case.model is deberta else "sdpa")
    rng, batches = np.random.default_rng(0), []
    for rows in islice(corpus.full_rows(case), BATCHES):
        labels = np.where(rng.random(rows.shape) < HIDDEN, rows, -100)
        batches.append([torch.from_numpy(array).to(device) for array in (rows, labels)])

    def loss(ids: Any, labels: Any) -> Any:
        return model(input_ids=ids, labels=labels).loss

    return Side(stepper(model, device, batches, loss), [case.rows * case.length], [])


def ours(case: Case, dropout: float, corpus: Corpus, device: str) -> Side:
    """The step of `coref-automl train`."""
    from coref_automl.training.loss import prepare_model

    model = fresh(case, dropout, device, "auto")
    prepare_model(model, compiled=True)
    batches = list(islice(corpus.packed(case), BATCHES))
    tokens = [int((batch["segments"] > 0).sum()) for batch in batches]
    placed = [[{key: value.to(device) for key, value in batch.items()}] for batch in batches]
    return Side(stepper(model, device, placed, lambda batch: model(**batch)["loss"]), tokens, [])


def ceiling(case: Case, dropout: float, corpus: Corpus, device: str) -> Side:
    """What the shape allows: nothing to keep apart, not even ModernBERT's window."""
    import torch

    from coref_automl.models.packed import compile_layers
    from coref_automl.training.loss import loss_at, token_loss

    model = fresh(case, dropout, device, "sdpa")
    compile_layers(model)
    score = torch.compile(token_loss, dynamic=False)
    no_mask = None
    if model.config.model_type == "modernbert":
        no_mask = dict.fromkeys(("full_attention", "sliding_attention"))
    batches = [
        [batch[name].to(device) for name in ("input_ids", "positions", "labels")]
        for batch in islice(corpus.packed(case), BATCHES)
    ]

    def loss(ids: Any, positions: Any, labels: Any) -> Any:
        return loss_at(model, ids, no_mask, positions, labels, score=score)[0] / labels.ne(-100).sum()

    return Side(stepper(model, device, batches, loss), [case.rows * case.length], [])


def stepper(model: Any, device: str, batches: list[Any], loss: Callable[..., Any]) -> Callable[[], None]:
    """Return a whole training step on the next of these batches."""
    from coref_automl.extras.study.probe import training_step

    step, turn = training_step(model, device), cycle(batches)
    return lambda: step(partial(loss, *next(turn)))


class Corpus:
    """Documents, packed once per length by `prepare`."""

    def __init__(self, texts: list[str], folder: Path) -> None:
        from coref_automl.models.load import load_tokenizer

        self.texts, self.folder = texts, folder
        self.tokenizer = load_tokenizer("bundled:ko-mini")
        self.ids = self.tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]

    def describe(self) -> str:
        lengths = [len(ids) for ids in self.ids]
        high = np.percentile(lengths, 90)
        return f"{len(lengths):,} documents, {sum(lengths):,} tokens: median {np.median(lengths):.0f}, 90th percentile {high:.0f}"

    def full_rows(self, case: Case) -> Iterator[Any]:
        """Batches of rows cut from the documents laid end to end."""
        stream = np.concatenate([np.asarray(ids, np.int64) for ids in self.ids])
        size = case.rows * case.length
        for start in range(0, len(stream) - size, size):
            yield stream[start : start + size].reshape(case.rows, case.length)

    def dataset(self, case: Case) -> Any:
        from bench import recipe_for_texts
        from coref_automl.corpus.dataset import PackedDataset
        from coref_automl.corpus.prepare import prepare

        out = self.folder / f"{case.length}{'-long' * case.long}"
        if not out.exists():
            work = self.folder / f"{out.name}-texts"
            work.mkdir()
            least = case.length if case.long else 0
            texts = [text for text, ids in zip(self.texts, self.ids, strict=True) if len(ids) >= least]
            recipe = recipe_for_texts(texts, "bundled:ko-mini", case.length, work, "mlm")
            prepare(replace(recipe, near_duplicates=False), out)
        return PackedDataset.open(out)

    def packed(self, case: Case) -> Iterator[Any]:
        """Batches as `train` makes them, over and over; the order of rows is random, and the same every time."""
        from coref_automl.training.batches import Collator, MaskedRows
        from coref_automl.training.masking import Masking

        dataset, special = self.dataset(case), np.zeros(VOCABULARY, bool)
        special[list(self.tokenizer.all_special_ids)] = True
        masking = Masking("mlm", int(self.tokenizer.mask_token_id), special, special, min_prob=HIDDEN, max_prob=HIDDEN)
        rows, collate = MaskedRows(dataset, masking, 0), Collator.of(dataset, masking)
        order = cycle(np.random.default_rng(0).permutation(len(dataset)).tolist())
        while True:
            yield collate([rows[number] for number in islice(order, case.rows)])


def documents(path: Path | None) -> list[str]:
    if path is not None:
        opened = lzma.open if path.suffix == ".xz" else open
        with opened(path, "rt", encoding="utf-8") as lines:
            return [json.loads(line)["text"] for line in lines]
    from coref_automl.corpus.sources import passages

    words = " ".join(passage.text for passage in passages()).split()
    rng = np.random.default_rng(0)
    per_word, deviation = 2.2, np.log(LENGTHS[1] / LENGTHS[0]) / 1.2816
    sizes = np.exp(rng.normal(np.log(LENGTHS[0] / per_word), deviation, 2_000)).astype(int).clip(20, 20_000)
    endless = words * (2 + int(sizes.max()) // len(words))
    starts = rng.integers(0, len(words), len(sizes))
    return [" ".join(endless[start : start + size]) for start, size in zip(starts, sizes, strict=True)]


def train_itself(name: str, case: Case, options: dict[str, Any], corpus: Corpus, device: str) -> str:
    """Run `coref-automl train` with default options for about 60 steps, and return its speed after the first half."""
    import torch

    from coref_automl.base.progress import read_events
    from coref_automl.training.recipe import TrainRecipe
    from coref_automl.training.run import train

    torch._dynamo.reset()
    steps, model, run = 60, corpus.folder / f"model-{name}", Path(tempfile.mkdtemp(dir=corpus.folder)) / "run"
    if not model.exists():
        case.model(case.length).save_pretrained(model)
        corpus.tokenizer.save_pretrained(model)
    dataset = corpus.dataset(case)
    recipe = TrainRecipe(
        model=str(model), dataset=str(dataset.folder), out=str(run), batch=case.rows, micro_batch=case.rows, device=device,
        max_tokens=int(dataset.lengths().mean() * case.rows * steps), save_every=0, log_every=5, compile=True, **options,
    )  # fmt: skip
    started = time.monotonic()
    train(recipe)
    events = [event for event in read_events(run / "events.ndjson") if event["event"] == "step"]
    first, timed = events[0]["seconds"], [event["tokens_per_second"] for event in events if event["step"] > steps // 2]
    return (
        f"train {name}, dropout {options.get('dropout', 0):g}: {statistics.median(timed):,.0f} tokens/s "
        f"({min(timed):,.0f} to {max(timed):,.0f}); first step after {first:.1f} s, {time.monotonic() - started:.0f} s in all"
    )


if __name__ == "__main__":
    main()
