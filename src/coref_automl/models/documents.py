"""The documents of packed rows. In: (B, L) segments: 1, 2, ... for the documents of a row, 0 for padding. Out: masks of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from coref_automl.errors import ModelError


@dataclass(frozen=True, slots=True)
class Documents:
    """Which document each position of a batch belongs to; a position attends to its own document alone."""

    segments: Tensor

    @classmethod
    def of(cls, attention_mask: object) -> Documents | None:
        """From what `encode` takes as a mask: documents, or a (B, L) mask of real tokens; None for a mask of pairs."""
        if isinstance(attention_mask, Documents):
            return attention_mask
        if not isinstance(attention_mask, Tensor) or attention_mask.dim() not in (2, 3, 4):
            form = f"{attention_mask.dim()} dimensions" if isinstance(attention_mask, Tensor) else type(attention_mask).__name__
            raise ModelError(f"DeBERTa-v2 takes no mask of this form ({form}); pass a (B, L) mask or what packed_masks makes.")
        return cls((attention_mask > 0).to(torch.int32)) if attention_mask.dim() == 2 else None

    def real(self) -> Tensor:
        """The (B, L) mask of real tokens."""
        return (self.segments > 0).to(torch.long)

    def pairs(self) -> Tensor:
        """The same as a mask of pairs (B, 1, L, L)."""
        same = self.segments[:, None, :, None] == self.segments[:, None, None, :]
        return same & (self.segments > 0)[:, None, None, :]
