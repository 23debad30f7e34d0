"""KorSTS from an encoder: similarity of two sentences by a small regression head, Spearman, three seeds.

    python benchmarks/korsts.py MODEL [MODEL ...] --data korsts --out korsts.json [--workers 6]

`--data` holds sts-train, sts-dev and sts-test (.tsv or .tsv.xz). Every rate is tried with every seed; the rate with the highest
mean on dev is kept, and its runs alone say what they score on test. MODEL: NAME=MODEL, or a model.
"""

from __future__ import annotations

import argparse
import csv
import json
import lzma
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

from coref_automl.models.load import load_encoder
from coref_automl.training.optimizer import schedule_factor

RATES = (1e-4, 2e-4, 4e-4)
SEEDS = 3
EPOCHS = 10
BATCH = 64
Pairs = list[tuple[str, str, float]]


def pairs(folder: Path, side: str) -> Pairs:
    """Sentences and their score from 0 to 5; a quotation mark is a character like any other."""
    (path,) = sorted(folder.glob(f"sts-{side}.tsv*"))[:1]
    with lzma.open(path, "rt", encoding="utf-8") if path.suffix == ".xz" else path.open(encoding="utf-8") as handle:
        rows = csv.DictReader(handle, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [(row["sentence1"], row["sentence2"], float(row["score"])) for row in rows]


class Similarity(torch.nn.Module):  # type: ignore[misc]
    """Both sentences in one row; a linear layer over the first state and the mean of all."""

    def __init__(self, encoder: Any) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = torch.nn.Linear(2 * encoder.config.hidden_size, 1)

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        states = self.encoder(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).last_hidden_state
        real = batch["attention_mask"][..., None]
        mean = (states * real).sum(1) / real.sum(1)
        return self.head(torch.cat([states[:, 0], mean], 1).float())[:, 0]


def scored(model: Similarity, tokenizer: Any, rows: Pairs, device: str) -> float:
    """Spearman in percent."""
    model.eval()
    order = np.argsort([len(first) + len(second) for first, second, _ in rows])
    found = np.zeros(len(rows))
    with torch.no_grad(), torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
        for part in np.array_split(order, max(1, len(rows) // 256)):
            found[part] = model(encoded(tokenizer, [rows[at] for at in part], device)).float().cpu().numpy()
    return 100 * float(np.corrcoef(ranks(found), ranks(np.array([score for *_, score in rows])))[0, 1])


def ranks(values: Any) -> Any:
    """Places from 0 on; equal values share the mean of theirs."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts + 1) / 2)[which]


def encoded(tokenizer: Any, rows: Pairs, device: str) -> dict[str, torch.Tensor]:
    first, second = [row[0] for row in rows], [row[1] for row in rows]
    batch = tokenizer(
        first, second, padding=True, truncation=True, max_length=256, return_tensors="pt", return_token_type_ids=False
    )
    return {name: batch[name].to(device) for name in ("input_ids", "attention_mask")}


def run(name: str, rate: float, seed: int, data: Path, epochs: int, limit: int | None) -> dict[str, float]:
    """One fine-tuning run, scored after its last epoch: no epoch is chosen."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(seed)
    encoder, tokenizer = load_encoder(name, device=device)
    model = Similarity(encoder).to(device)
    train = pairs(data, "train")[:limit]
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.01)
    draw = np.random.default_rng(seed)
    batches = [part for _ in range(epochs) for part in np.array_split(draw.permutation(len(train)), -(-len(train) // BATCH))]
    model.train()
    for step, part in enumerate(batches):
        for group in optimizer.param_groups:
            group["lr"] = rate * schedule_factor((step + 1) / (len(batches) + 1), "linear", 0.1)
        rows = [train[at] for at in part]
        gold = torch.tensor([score / 5 for *_, score in rows], device=device)
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = torch.nn.functional.mse_loss(model(encoded(tokenizer, rows, device)), gold)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return {side: scored(model, tokenizer, pairs(data, side)[:limit], device) for side in ("dev", "test")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--rates", type=float, nargs="+", default=RATES)
    parser.add_argument("--limit", type=int, help="rows of each side, for a trial")
    given = parser.parse_args()
    named = {one.partition("=")[0]: one.rpartition("=")[2] for one in given.models}
    grid = [(name, rate, seed) for name in named for rate in given.rates for seed in range(SEEDS)]
    table: dict[str, Any] = {}
    with ProcessPoolExecutor(given.workers, mp_context=get_context("spawn")) as pool:
        asked = [pool.submit(run, named[name], rate, seed, given.data, given.epochs, given.limit) for name, rate, seed in grid]
        found = [(name, rate, one.result()) for (name, rate, _), one in zip(grid, asked, strict=True)]
    for model in named:
        dev = {rate: [one["dev"] for name, at, one in found if (name, at) == (model, rate)] for rate in given.rates}
        best = max(given.rates, key=lambda rate: float(np.mean(dev[rate])))
        test = [one["test"] for name, at, one in found if (name, at) == (model, best)]
        table[model] = {"dev": dev, "rate": best, "test": test, "test mean": float(np.mean(test))}
        print(
            model, f"rate {best:g}, dev {np.mean(dev[best]):.1f}, test {np.mean(test):.1f}", *(f"{score:.1f}" for score in test)
        )
    given.out.write_text(json.dumps(table, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
