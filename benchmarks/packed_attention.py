"""Packed attention on a GPU: is it right, does it learn the same, and what does it give to padded rows?

python benchmarks/packed_attention.py [--parts right,losses,padded] [--steps 300] [--texts FILE.jsonl.xz]

1. States and gradients of packed documents beside the same documents alone, in bfloat16, as relative errors; beside
   them the error of SDPA with a mask, which is the rounding that nobody can avoid.
2. Losses of the same steps on the same batches: Hugging Face's model with a mask, and ours with compiled layers.
3. Rows of one document with padding, as scoring and relation extraction have them: with a mask and with bounds.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from train_speed import CASES, VOCABULARY, Case, Corpus, bert, documents, electra, modernbert, roberta

FAMILIES: dict[str, Callable[[int], Any]] = {
    "bert": bert,
    "roberta": roberta,
    "electra": electra,
    "modernbert": partial(modernbert, layers=12),
}


def main() -> None:
    import tempfile

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--texts", type=Path)
    parser.add_argument("--parts", default="right,losses,padded")
    arguments = parser.parse_args()
    parts = arguments.parts.split(",")
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}")
    for family, build in FAMILIES.items() if "right" in parts else ():
        for length in (256, 512, 2048):
            print(f"{family} {length}: {right(build, length)}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        corpus = Corpus(documents(arguments.texts), Path(folder))
        cases = {"bert": Case(bert, 16, 512), "modernbert": Case(modernbert, 16, 512)}
        for name, case in cases.items() if "losses" in parts else ():
            print(f"{name} losses: {losses(case, corpus, arguments.steps)}", flush=True)
    for name in ("bert-512", "bert-2048", "modernbert-512", "modernbert-2048") if "padded" in parts else ():
        print(f"{name} padded rows: {padded(CASES[name])}", flush=True)


def right(build: Callable[[int], Any], length: int) -> str:
    """Relative errors of packed documents, and of SDPA with a mask, against each document alone."""
    from coref_automl.models.execution import packed_masks, use_attention
    from coref_automl.models.heads import encode
    from coref_automl.models.packed import layout

    with torch.device("cuda"):
        model = build(length).cuda().eval()
    rng = np.random.default_rng(0)
    sizes = [[length // 8, length // 2, length - length // 8 - length // 2 - 3], [length], [7, 70, length - 77]]
    segments = np.stack([np.pad(np.repeat([1, 2, 3][: len(row)], row), (0, length - sum(row))) for row in sizes])
    starts, kept = (torch.from_numpy(array).cuda() for array in layout(segments.astype(np.int32)))
    ids = torch.from_numpy(rng.integers(5, VOCABULARY, segments.shape)).cuda()
    placed = torch.from_numpy(segments).cuda()
    weights = [weight for weight in model.base_model.parameters() if weight.requires_grad]
    direction = torch.randn(*segments.shape, model.config.hidden_size, device="cuda")

    def run(half: bool, mask: Callable[[], Any]) -> tuple[Any, Any]:
        with torch.autocast("cuda", torch.bfloat16, enabled=half):
            states = encode(model, ids, mask())[placed > 0]
        slopes = torch.autograd.grad((states.float() * direction[placed > 0]).sum(), weights, allow_unused=True)
        return states.detach().float(), torch.cat([slope.flatten() for slope in slopes if slope is not None])

    use_attention(model, "sdpa")
    exact_states, total = torch.zeros_like(direction), 0
    for row, number in ((row, number) for row in range(3) for number in range(1, 4)):
        mine = placed[row] == number
        if not mine.any():
            continue
        positions = mine.nonzero().T
        states = encode(model, ids[row : row + 1, mine], torch.ones_like(positions), positions)[0]
        exact_states[row, mine] = states.detach()
        slopes = torch.autograd.grad((states * direction[row, mine]).sum(), weights, allow_unused=True)
        total = total + torch.cat([slope.flatten() for slope in slopes if slope is not None])
    exact = exact_states[placed > 0], total
    found = {"float32 with a mask": run(False, lambda: packed_masks(model, placed))}
    found["sdpa"] = run(True, lambda: packed_masks(model, placed))
    use_attention(model, "packed")
    found["packed"] = run(True, lambda: packed_masks(model, placed, starts, kept))
    found["packed, float32"] = run(False, lambda: packed_masks(model, placed, starts, kept))
    compare = [
        f"{name} {' / '.join(f'{float((a - b).norm() / b.norm()):.1e}' for a, b in zip(pair, exact, strict=True))}"
        for name, pair in found.items()
    ]
    return ", ".join(compare) + " (states / gradients)"


def losses(case: Case, corpus: Corpus, steps: int) -> str:
    """Mean losses of tens of steps, of both sides, from the same weights on the same batches."""
    from coref_automl.models.execution import packed_masks, use_attention
    from coref_automl.training.loss import prepare_model
    from coref_automl.training.masking import IGNORED
    from coref_automl.training.optimizer import adamw, parameter_groups

    curves = []
    for mine in (False, True):
        with torch.device("cuda"):
            model = case.model(case.length).cuda().eval()  # without dropout
        use_attention(model, "packed" if mine else "sdpa")
        if mine:
            prepare_model(model, compiled=True)
        optimizer, curve = adamw(parameter_groups(model, learning_rate=1e-4, weight_decay=0.01), fused=True), []
        for batch in islice(corpus.packed(case), steps):
            placed = {name: value.cuda() for name, value in batch.items()}
            with torch.autocast("cuda", torch.bfloat16):
                if mine:
                    loss = model(**placed)["loss"]
                else:
                    labels = torch.full_like(placed["input_ids"], IGNORED).flatten()
                    told = placed["labels"] != IGNORED
                    labels[placed["positions"][told]] = placed["labels"][told]
                    mask = packed_masks(model, placed["segments"])
                    loss = model(input_ids=placed["input_ids"], attention_mask=mask, labels=labels.view(case.rows, -1)).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            curve.append(loss.detach())
        curves.append(torch.stack(curve).float().cpu().view(-1, 10).mean(1))
    theirs, ours = curves
    shown = [f"{step * 10}: {theirs[step - 1]:.3f} / {ours[step - 1]:.3f}" for step in (1, 10, 20, 30) if step <= len(ours)]
    return (
        f"Hugging Face / ours, mean of ten steps up to {', '.join(shown)}; largest difference {(theirs - ours).abs().max():.4f}"
    )


def padded(case: Case) -> str:
    """Rows of 60 to 100% of their length, scored and trained on: thousand tokens per second with a mask and with bounds."""
    from coref_automl.models.execution import packed_masks, use_attention
    from coref_automl.models.heads import encode
    from coref_automl.models.packed import rows_of

    with torch.device("cuda"):
        model = case.model(case.length).cuda().eval()
    use_attention(model, "packed")
    lengths = torch.randint(int(0.6 * case.length), case.length + 1, (case.rows, 1), device="cuda")
    mask = (torch.arange(case.length, device="cuda") < lengths).int()
    ids = torch.randint(5, VOCABULARY, mask.shape, device="cuda")
    said = []
    ways = {"mask": lambda: packed_masks(model, mask), "bounds": lambda: rows_of(mask)}
    for kind, make in ways.items():
        for training in (False, True):

            def step(make: Callable[[], Any] = make, training: bool = training) -> None:
                with torch.autocast("cuda", torch.bfloat16), torch.set_grad_enabled(training):
                    states = encode(model, ids, make())
                if training:
                    states.float().mean().backward()

            step()
            step()
            torch.cuda.synchronize()
            started = time.perf_counter()
            for _ in range(10):
                step()
            torch.cuda.synchronize()
            rows = 10 * case.rows / (time.perf_counter() - started)
            said.append(f"{kind}, {'trained' if training else 'scored'} {rows:,.0f} rows/s")
    return "; ".join(said)


if __name__ == "__main__":
    main()
