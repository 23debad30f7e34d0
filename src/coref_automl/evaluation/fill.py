"""Fill gaps. In: sentences with one gap each, or a file of them, and models. Out: the words each model would put there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coref_automl.base.decoder import short_repr
from coref_automl.base.errors import EvalSetError, EvaluationError, InputError, RecipeError
from coref_automl.base.fingerprints import fingerprint
from coref_automl.base.korean import composed
from coref_automl.base.progress import Progress, quiet
from coref_automl.base.records import ClozeItem, Record
from coref_automl.base.store import is_text
from coref_automl.corpus.batch import Answered, answer_texts
from coref_automl.models.load import LoadedModel
from coref_automl.models.model_files import weights_fingerprint

KIND = "filled gaps"
_GAP = re.compile(r"\[MASK\]|<mask>|\[마스크\]|_{1,}")
_STAND_IN = "사람"
"""Stands in the gap while the sentence is tokenized; the mask then replaces it."""


@dataclass(frozen=True, slots=True)
class Filled(Record):
    """A model's words for a gap, the most probable first."""

    model: str
    nouns_only: bool
    words: tuple[str, ...]
    probabilities: tuple[float, ...]


def find_gap(sentence: str) -> tuple[int, int]:
    """The span of the one gap of a sentence: [MASK], <mask> or _."""
    if not isinstance(sentence, str) or not is_text(sentence):
        raise RecipeError(f"A sentence is text, not {short_repr(sentence)}.")
    gaps = list(_GAP.finditer(sentence))
    if len(gaps) != 1:
        count = "no gap" if not gaps else f"{len(gaps)} gaps"
        raise InputError(f'The sentence has {count}; write [MASK] once, as in "서울은 한국의 [MASK]이다."')
    return gaps[0].span()


def fill(loaded: LoadedModel, sentence: str, *, name: str = "", nouns_only: bool = True, top: int = 10) -> Filled:
    """The vocabulary's words that fit the gap best; a particle written after the gap belongs to the hidden word."""
    return fill_all(loaded, [sentence], name=name, nouns_only=nouns_only, top=top)[0]


def fill_all(
    loaded: LoadedModel, sentences: Sequence[str], *, name: str = "", nouns_only: bool = True, top: int = 10
) -> list[Filled]:
    """`fill` for several sentences; those of one length form a batch, so that none is padded."""
    import torch

    from coref_automl.evaluation.answers import answerable
    from coref_automl.evaluation.scorer import NOT_NUMBERS
    from coref_automl.evaluation.windows import Lengths, maker_for
    from coref_automl.models.execution import matmul_precision
    from coref_automl.models.heads import encode, predict

    maker, device = maker_for(loaded.tokenizer, Lengths.fixed(loaded.seq_len)), next(loaded.model.parameters()).device
    nouns = noun_table(loaded) if nouns_only else np.zeros(0, np.bool_)
    batches: dict[tuple[int, bool], list[tuple[int, NDArray[np.int64], int]]] = {}
    for number, sentence in enumerate(sentences):
        start, end = find_gap(sentence)
        before, after = composed(sentence[:start])[0], composed(sentence[end:])[0]
        item = ClozeItem("", "real", "", "", "", len(before), len(before) + len(_STAND_IN), _STAND_IN, "")
        window = maker.window(item, before + _STAND_IN + after)
        ids = window.filled([maker.mask_id]).astype(np.int64)
        batches.setdefault((len(ids), window.initial), []).append((number, ids, window.gap))
    filled: dict[int, Filled] = {}
    for (_, initial), rows in batches.items():
        words, allowed = answerable(loaded.tokenizer, nouns, initial=initial)
        allowed = allowed if nouns_only else np.array([bool(word) for word in words])
        stacked = torch.from_numpy(np.stack([ids for _, ids, _ in rows])).to(device)
        with torch.inference_mode(), matmul_precision(tf32=False):
            hidden = encode(loaded.model, stacked, torch.ones_like(stacked))
            at_gaps = hidden[torch.arange(len(rows)), [gap for *_, gap in rows]]
            probabilities = predict(loaded.model, at_gaps.float()).float().softmax(-1).cpu().numpy()
        if not np.isfinite(probabilities).all():
            raise EvaluationError(NOT_NUMBERS)
        for (number, *_), row in zip(rows, probabilities, strict=True):
            order = [int(entry) for entry in np.argsort(-row[: len(words)], kind="stable") if allowed[entry]][:top]
            best = tuple(words[entry] or "" for entry in order), tuple(float(row[entry]) for entry in order)
            filled[number] = Filled(name, nouns_only, *best)
    return [filled[number] for number in range(len(sentences))]


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
    """Answer every row of a file with `word`, the first model's best, and `fills`, each model's words and probabilities."""

    def answer(texts: Sequence[str]) -> Iterator[dict[str, Any]]:
        by_model = {name: fill_all(model, texts, nouns_only=nouns_only, top=top) for name, model in loaded.items()}
        for row in zip(*by_model.values(), strict=True):
            fills = [[[word, round(p, 6)] for word, p in zip(f.words, f.probabilities, strict=True)] for f in row]
            yield {"word": row[0].words[0] if row[0].words else "", "fills": dict(zip(by_model, fills, strict=True))}

    made_from = {f"model {name}": weights_fingerprint(name) for name in loaded}
    made_from |= {"options": fingerprint([list(loaded), nouns_only, top])}
    progress = progress or quiet()
    return answer_texts(data, out, KIND, answer, made_from, column=column, check=find_gap, skip_bad=skip_bad, progress=progress)


_TABLES: dict[str, NDArray[np.bool_]] = {}


def noun_table(loaded: LoadedModel) -> NDArray[np.bool_]:
    """The nouns of a vocabulary: from the bundled set if it has them, else from the user's cache."""
    from coref_automl.evaluation.answers import table_for
    from coref_automl.evaluation.evalset import bundled_eval_set

    try:
        return table_for(loaded.tokenizer, bundled_eval_set(), _TABLES)
    except EvalSetError as error:
        raise InputError("Telling nouns apart needs Kiwi, which is not installed; pass --no-nouns.") from error
