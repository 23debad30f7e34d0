"""Fill gaps. In: sentences with one gap each, or a file of them, and models. Out: the words each model would put there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coref_automl.corpus.batch import Answered, answer_texts
from coref_automl.decoder import short_repr
from coref_automl.errors import EvalSetError, InputError, RecipeError
from coref_automl.fingerprints import fingerprint
from coref_automl.models.load import LoadedModel
from coref_automl.models.model_files import weights_fingerprint
from coref_automl.progress import Progress, quiet
from coref_automl.records import ClozeItem, Record

KIND = "filled gaps"
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
        raise RecipeError(f"A sentence is text, not {short_repr(sentence)}.")
    gaps = list(_GAP.finditer(sentence))
    if len(gaps) != 1:
        how = "no gap" if not gaps else f"{len(gaps)} gaps"
        raise InputError(f'The sentence has {how}; write [MASK] once, as in "서울은 한국의 [MASK]이다."')
    return gaps[0].span()


def fill(loaded: LoadedModel, sentence: str, *, name: str = "", nouns_only: bool = True, top: int = 10) -> Filled:
    """The words of the vocabulary that fit the gap best; a particle written after it stays with the hidden word."""
    return fill_all(loaded, [sentence], name=name, nouns_only=nouns_only, top=top)[0]


def fill_all(
    loaded: LoadedModel, sentences: Sequence[str], *, name: str = "", nouns_only: bool = True, top: int = 10
) -> list[Filled]:
    """The same for several sentences; those of one length are read together, so that none is padded."""
    import torch

    from coref_automl.evaluation.answers import answerable
    from coref_automl.evaluation.windows import maker_for
    from coref_automl.models.execution import matmul_precision
    from coref_automl.models.heads import encode, predict

    maker, device = maker_for(loaded.tokenizer, loaded.seq_len), next(loaded.model.parameters()).device
    nouns = noun_table(loaded) if nouns_only else np.zeros(0, np.bool_)
    read: dict[tuple[int, bool], list[tuple[int, NDArray[np.int64], int]]] = {}
    for number, sentence in enumerate(sentences):
        start, end = find_gap(sentence)
        item = ClozeItem("", "real", "", "", "", start, start + len(_STAND_IN), _STAND_IN, "", ())
        window = maker.window(item, sentence[:start] + _STAND_IN + sentence[end:])
        ids = window.filled([maker.mask_id]).astype(np.int64)
        read.setdefault((len(ids), window.initial), []).append((number, ids, window.gap))
    found: dict[int, Filled] = {}
    for (_, initial), rows in read.items():
        words, allowed = answerable(loaded.tokenizer, nouns, initial=initial)
        allowed = allowed if nouns_only else np.array([bool(word) for word in words])
        stacked = torch.from_numpy(np.stack([ids for _, ids, _ in rows])).to(device)
        with torch.inference_mode(), matmul_precision(tf32=False):
            hidden = encode(loaded.model, stacked, torch.ones_like(stacked))
            at = hidden[torch.arange(len(rows)), [gap for *_, gap in rows]]
            chances = predict(loaded.model, at.float()).float().softmax(-1).cpu().numpy()
        for (number, *_), line in zip(rows, chances, strict=True):
            order = [int(entry) for entry in np.argsort(-line[: len(words)], kind="stable") if allowed[entry]][:top]
            best = tuple(words[entry] or "" for entry in order), tuple(float(line[entry]) for entry in order)
            found[number] = Filled(name, nouns_only, *best)
    return [found[number] for number in range(len(sentences))]


def fill_file(
    loaded: Mapping[str, LoadedModel],
    data: str,
    out: Path,
    *,
    column: str = "text",
    nouns_only: bool = True,
    top: int = 10,
    skip_bad: bool = False,
    progress: Progress | None = None,
) -> Answered:
    """Every row of a file with `word`, the first model's best, and `fills`: for each model its words with their probabilities."""

    def answer(texts: Sequence[str]) -> Iterator[dict[str, Any]]:
        each = {name: fill_all(ready, texts, nouns_only=nouns_only, top=top) for name, ready in loaded.items()}
        for found in zip(*each.values(), strict=True):
            listed = [[[w, round(p, 6)] for w, p in zip(one.words, one.probabilities, strict=True)] for one in found]
            yield {"word": found[0].words[0] if found[0].words else "", "fills": dict(zip(each, listed, strict=True))}

    made_from = {f"model {name}": weights_fingerprint(name) for name in loaded}
    made_from |= {"options": fingerprint([list(loaded), nouns_only, top])}
    progress = progress or quiet()
    return answer_texts(data, out, KIND, answer, made_from, column=column, check=find_gap, skip_bad=skip_bad, progress=progress)


_TABLES: dict[str, NDArray[np.bool_]] = {}


def noun_table(loaded: LoadedModel) -> NDArray[np.bool_]:
    """The nouns of a vocabulary: the bundled set's own where it has them, else kept in the user's cache between calls."""
    from coref_automl.evaluation.answers import table_for
    from coref_automl.evaluation.evalset import bundled_eval_set

    try:
        return table_for(loaded.tokenizer, bundled_eval_set(), _TABLES)
    except EvalSetError as error:
        raise InputError("Telling nouns apart needs Kiwi, which is not installed; pass --no-nouns.") from error
