"""A unigram vocabulary. In: texts. Out: a tokenizer, the same for the same texts.

WordPiece (`models/build`) takes the longest entry from the left, and has nothing to write a character with that its alphabet
lacks: its whole word is unknown. Unigrams are taken by their frequency (`그는` is then `그`, `는`) and can fall back on bytes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from coref_automl.korean import Tagger
from coref_automl.models.build import SPECIAL, START, framed, learn_entries, marked_words, word_normalizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
_ROUNDS = 3
_UNSEEN = 0.5
"""Counted for every entry beside what was seen of it: one that no text took keeps a score."""
_AT_ONCE = 512
_NEVER = 1000.0
"""So much below the lowest score, an entry is taken for no text that other entries can spell."""


def train_unigrams(
    texts: Iterable[str], *, vocab_size: int, tagger: Tagger | None = None, alphabet: int = 3000
) -> PreTrainedTokenizerFast:
    """Entries as WordPiece learns them, scored by how often a text takes them, the fewest pieces first.

    The library's own trainer begins with what several words share and would lose nouns that are cut out of all their words.
    256 entries are bytes, which spell what the alphabet lacks.
    """
    from tokenizers.decoders import ByteFallback, Metaspace, Sequence

    lines = list(texts)
    learned = learn_entries(lines, vocab_size - len(_BYTES) - 1, tagger=tagger, alphabet=alphabet)[len(SPECIAL) :]
    entries = [START, *(entry.removeprefix("##") if entry.startswith("##") else f"{START}{entry}" for entry in learned)]
    entries = [*SPECIAL.values(), *dict.fromkeys(entries)]
    scores = [0.0] * len(entries)
    for _ in range(_ROUNDS):
        counts = _taken(_tokenizer(entries, scores), lines)
        total = sum(counts.values()) + _UNSEEN * len(entries)
        scores = [math.log((counts[place] + _UNSEEN) / total) for place in range(len(entries))]
    low = min(scores) - _NEVER  # a text that spells a special or byte entry is not one
    scores = [low if entry in SPECIAL.values() else score for entry, score in zip(entries, scores, strict=True)]
    tokenizer = _tokenizer([*entries, *_BYTES], [*scores, *[low] * len(_BYTES)], byte_fallback=True)
    tokenizer.decoder = Sequence([ByteFallback(), Metaspace(replacement=START, prepend_scheme="always")])
    return framed(tokenizer)


def _taken(tokenizer: Any, lines: list[str]) -> Counter[int]:
    """How often the texts take each entry."""
    counts: Counter[int] = Counter()
    for start in range(0, len(lines), _AT_ONCE):
        for read in tokenizer.encode_batch_fast(lines[start : start + _AT_ONCE]):
            counts.update(read.ids)
    return counts


def _tokenizer(entries: list[str], scores: list[float], *, byte_fallback: bool = False) -> Any:
    from tokenizers import Tokenizer
    from tokenizers.models import Unigram

    unknown = entries.index(SPECIAL["unk_token"])
    tokenizer = Tokenizer(Unigram(list(zip(entries, scores, strict=True)), unk_id=unknown, byte_fallback=byte_fallback))
    tokenizer.normalizer, tokenizer.pre_tokenizer = word_normalizer(), marked_words()
    return tokenizer
