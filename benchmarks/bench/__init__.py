"""Benchmarks: our throughput beside that of the usual way, in the same run on the same inputs. Here: their options and results.

Without a model, weights are random, which changes no speed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from coref_automl.base.config import Setting, typed
from coref_automl.base.records import Record
from coref_automl.base.say import say


@dataclass(frozen=True, slots=True)
class BenchResult(Record):
    """Two speeds in one unit, and the lines that explain them."""

    ours: float
    usual: float
    unit: str
    lines: tuple[str, ...] = ()

    @property
    def ratio(self) -> float:
        return self.ours / self.usual

    def closing_line(self) -> str:
        ours, usual = f"{self.ours:.1f} {self.unit}", f"{self.usual:.1f} {self.unit}"
        return say(
            f"비율 {self.ratio:.1f} (이 패키지 {ours}, 일반적인 방법 {usual})",
            f"ratio {self.ratio:.1f} (ours {ours}, usual way {usual})",
        )


def recipe_for_texts(texts: list[str], model: str, seq_len: int, folder: Path, mode: Literal["mlm", "combined"]) -> Any:
    """A recipe of `prepare` that drops only exact copies of these texts, so that both ways do the same work."""
    from coref_automl.base.store import write_jsonl
    from coref_automl.corpus.recipe import PrepareRecipe

    path = folder / "texts.jsonl"
    write_jsonl(path, ({"id": str(number), "text": text} for number, text in enumerate(texts)))
    no_filters: dict[str, Any] = {"holdout": 0.0, "min_characters": 1, "min_hangul": 0.0, "similarity": 1.0}
    return PrepareRecipe(mode=mode, sources=(f"local:{path}",), model=model, seq_len=seq_len, **no_filters)


Model = Annotated[str | None, Setting("Model to run. Default: random weights of --shape.")]
Shape = Annotated[str, Setting("Shape of a model with random weights.")]
Source = Annotated[str, Setting("Text source.")]
Length = Annotated[int, Setting("Tokens per row.", 16)]
Device = Annotated[str, Setting("cpu, cuda, or auto.")]


@dataclass(frozen=True, slots=True)
class _Bench:
    def __post_init__(self) -> None:
        typed(self)


@dataclass(frozen=True, slots=True)
class EvaluateBench(_Bench):
    model: Model = None
    shape: Shape = "deberta-tiny"
    eval_set: Annotated[str | None, Setting("Evaluation set with Real items. Default: the bundled set.")] = None
    items: Annotated[int, Setting("Number of Real items.", 1)] = 200
    seq_len: Annotated[int, Setting("Window length in tokens.", 1)] = 256
    device: Device = "auto"
    dtype: Annotated[str, Setting("float32, bfloat16, or auto (bfloat16 on a GPU).")] = "auto"
    batch_size: Annotated[int, Setting("Batch size of the pipeline; 1 is fastest on a CPU.", 1)] = 1


@dataclass(frozen=True, slots=True)
class PrepareBench(_Bench):
    source: Source = "bundled:synthetic"
    model: Annotated[str | None, Setting("Model whose tokenizer is used. Default: trained on the texts.")] = None
    megabytes: Annotated[float, Setting("Amount of text in MB.", 0.01)] = 1.0
    seq_len: Length = 512
    workers: Annotated[int, Setting("Number of processes and threads; 0 means one per core.", 0)] = 0


@dataclass(frozen=True, slots=True)
class RelationBench(_Bench):
    model: Model = None
    shape: Shape = "ko-mini"
    data: Annotated[str, Setting("Relation rows.")] = "bundled:relations"
    rows: Annotated[int, Setting("Number of rows.", 8)] = 256
    batch_size: Annotated[int, Setting("Rows per step, both ways.", 1)] = 32
    padded: Annotated[int, Setting("Length that the usual way pads to.", 32)] = 256
    device: Device = "auto"


@dataclass(frozen=True, slots=True)
class TrainBench(_Bench):
    model: Model = None
    shape: Shape = "ko-mini"
    source: Source = "bundled:passages"
    documents: Annotated[int, Setting("Number of documents.", 1)] = 400
    seq_len: Length = 512
    batch: Annotated[int, Setting("Rows per step, all three ways.", 1)] = 8
    steps: Annotated[int, Setting("Steps per way.", 1)] = 5
    device: Device = "auto"
    compile: Annotated[bool, Setting("Compile our training step.", flags=("--compile",))] = False
    attention: Annotated[str, Setting("Attention of our way: auto, packed, sdpa, eager or fused.")] = "auto"
