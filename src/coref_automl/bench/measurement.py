"""What every benchmark shares: the result, the clock's fence, peak memory, and models of base shape with new weights."""

from __future__ import annotations

import ctypes
import gc
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coref_automl.records import Record
from coref_automl.say import say

_STATM = Path("/proc/self/statm")
_PAGE = 4096
_EVERY = 0.01


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


class PeakMemory:
    """Bytes beyond those held before the block, in this process or on the GPU; `peak` is None where the system does not say."""

    def __init__(self, device: str) -> None:
        self._cuda = device.startswith("cuda")
        self._stop = threading.Event()
        self._most = 0
        self._before = 0
        self.peak: int | None = None

    def __enter__(self) -> PeakMemory:
        if self._cuda:
            import torch

            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            self._before = torch.cuda.memory_allocated()
        elif _STATM.is_file():
            release_memory()
            self._before = self._most = _resident()
            self._thread = threading.Thread(target=self._watch, daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        if self._cuda:
            import torch

            self.peak = torch.cuda.max_memory_allocated() - self._before
        elif _STATM.is_file():
            self._stop.set()
            self._thread.join()
            self.peak = max(0, max(self._most, _resident()) - self._before)

    def __str__(self) -> str:
        return "memory not known here" if self.peak is None else f"{self.peak / 1e6:,.0f} MB peak"

    def _watch(self) -> None:
        while not self._stop.wait(_EVERY):
            self._most = max(self._most, _resident())


def release_memory() -> None:
    """Return freed pages to the system, so that they are not counted as held."""
    gc.collect()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _resident() -> int:
    return int(_STATM.read_text().split()[1]) * _PAGE


def synchronize(device: str) -> None:
    """Wait until a GPU has finished what it was given; reading a clock before that measures the launch."""
    if device.startswith("cuda"):
        import torch

        torch.cuda.synchronize()


def base_deberta(seq_len: int, *, layers: int = 12, hidden: int = 768, vocabulary: int = 130_000, seed: int = 0) -> Any:
    """A DeBERTa-v2 of base shape: 256 buckets, a vocabulary of 130,000. New weights cost the same as trained ones."""
    import torch
    from transformers import DebertaV2Config, DebertaV2ForMaskedLM

    config = DebertaV2Config(
        vocab_size=vocabulary, hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=hidden // 64,
        intermediate_size=4 * hidden, max_position_embeddings=seq_len, max_relative_positions=512, position_buckets=256,
        relative_attention=True, pos_att_type=["p2c", "c2p"], norm_rel_ebd="layer_norm", share_att_key=True,
        position_biased_input=False, type_vocab_size=0,
    )  # fmt: skip
    torch.manual_seed(seed)
    return DebertaV2ForMaskedLM(config)


def base_modernbert(seq_len: int, *, seed: int = 0) -> Any:
    """A ModernBERT of base shape: 22 layers of 768, a vocabulary of 50,368."""
    import torch
    from transformers import ModernBertConfig, ModernBertForMaskedLM

    torch.manual_seed(seed)
    return ModernBertForMaskedLM(
        ModernBertConfig(max_position_embeddings=seq_len, pad_token_id=0, cls_token_id=2, sep_token_id=3)
    )
