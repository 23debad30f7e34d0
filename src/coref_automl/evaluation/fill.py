"""Fill one gap. In: a sentence with a gap, and models. Out: the words each model would put there, with their probabilities."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coref_automl.decoder import shown
from coref_automl.errors import EvalSetError, InputError, RecipeError
from coref_automl.records import ClozeItem, Record

if TYPE_CHECKING:
    from coref_automl.models.load import LoadedModel

_GAP = re.compile(r"\[MASK\]|<mask>|\[마스크\]|_{1,}")
_STAND_IN = "사람"
"""Fills the gap while the sentence is tokenized, and is then replaced by the mask."""


@dataclass(frozen=True, slots=True)
class Filled(Record):
    """One model's words for a gap, the most probable first."""

    model: str
    nouns_only: bool
    words: tuple[str, ...]
    probabilities: tuple[float, ...]


def find_gap(sentence: str) -> tuple[int, int]:
    """The one gap of a sentence: [MASK], <mask> or _."""
    if not isinstance(sentence, str):
        raise RecipeError(f"A sentence is text, not {shown(sentence)}.")
    gaps = list(_GAP.finditer(sentence))
    if len(gaps) != 1:
        how = "no gap" if not gaps else f"{len(gaps)} gaps"
        raise InputError(f'The sentence has {how}; write [MASK] once, as in "서울은 한국의 [MASK]이다."')
    return gaps[0].span()


def fill(loaded: LoadedModel, sentence: str, *, name: str = "", nouns_only: bool = True, top: int = 10) -> Filled:
    """The words of the vocabulary that fit the gap best; a particle written after it stays with the hidden word."""
    import torch

    from coref_automl.evaluation.answers import answerable
    from coref_automl.evaluation.windows import maker_for
    from coref_automl.models.heads import encode, predict
    from coref_automl.models.precision import products

    start, end = find_gap(sentence)
    text = sentence[:start] + _STAND_IN + sentence[end:]
    item = ClozeItem("", "real", "", "", "", start, start + len(_STAND_IN), _STAND_IN, "", ())
    maker = maker_for(loaded.tokenizer, loaded.seq_len)
    window = maker.window(item, text)
    device = next(loaded.model.parameters()).device
    row = torch.from_numpy(window.filled([maker.mask_id]).astype(np.int64))[None].to(device)
    with torch.inference_mode(), products(tf32=False):
        hidden = encode(loaded.model, row, torch.ones_like(row))
        chances = predict(loaded.model, hidden[:, window.gap].float())[0].float().softmax(-1).cpu().numpy()
    nouns = noun_table(loaded) if nouns_only else np.zeros(0, np.bool_)
    words, allowed = answerable(loaded.tokenizer, nouns, initial=window.initial)
    allowed = allowed if nouns_only else np.array([bool(word) for word in words])
    order = [int(entry) for entry in np.argsort(-chances[: len(words)], kind="stable") if allowed[entry]][:top]
    return Filled(name, nouns_only, tuple(words[entry] or "" for entry in order), tuple(float(chances[entry]) for entry in order))


def noun_table(loaded: LoadedModel) -> NDArray[np.bool_]:
    """The nouns of a vocabulary, kept in the user's cache between calls."""
    from coref_automl.evaluation.answers import table_for
    from coref_automl.korean import default_cache

    try:
        return table_for(loaded.tokenizer, default_cache() / "nouns", {})
    except EvalSetError as error:
        raise InputError("Telling nouns apart needs Kiwi, which is not installed; pass --no-nouns.") from error
