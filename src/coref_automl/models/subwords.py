"""Vocabularies of other kinds. In: texts. Out: a tokenizer over byte pairs, bytes or unigrams, the same for the same texts.

WordPiece (`models/build`) has nothing to write a character with that its alphabet lacks: the whole word becomes unknown.
Byte-level pairs are built from bytes, and pairs over metaspaces and unigrams can fall back on them: no text is unknown.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

from coref_automl.korean import Tagger
from coref_automl.machine import interruptible
from coref_automl.models.build import SPECIAL, START, cut_words, framed, learn_entries, marked_words, word_normalizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

Kind = Literal["bpe", "byte-bpe", "unigram"]
_CUT = "\u241f"
"""Stands between a noun and what follows it while a vocabulary is learned; no entry reaches across it."""
_BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
_LONGEST_ENTRY = 12
_ROUNDS = 3
_UNSEEN = 0.5
"""Counted for every entry beside what was seen of it: one that no text took keeps a score."""
_AT_ONCE = 512
_NEVER = 1000.0
"""So much below the lowest score, an entry is taken for no text that other entries can spell."""


def train_subwords(
    texts: Iterable[str],
    kind: Kind,
    *,
    vocab_size: int,
    tagger: Tagger | None = None,
    alphabet: int = 3000,
    byte_fallback: bool = False,
) -> PreTrainedTokenizerFast:
    """A tokenizer of a kind. With a tagger no entry joins a noun with its particle; using the tokenizer needs none.

    `alphabet` bounds the single characters to a quarter of the entries at most. `byte_fallback` spends 256 entries on bytes,
    which spell what the alphabet lacks; byte-level pairs have them anyway.
    """
    from tokenizers import Tokenizer

    by_bytes = kind == "byte-bpe"
    spare = 0 if by_bytes or not byte_fallback else len(_BYTES)
    lines = [text.replace(_CUT, " ") for text in texts]
    if kind == "unigram" and tagger is not None:
        tokenizer = _noun_unigrams(lines, vocab_size - spare, tagger, alphabet)
    else:
        tokenizer = _trained(lines, kind, vocab_size - spare, tagger, min(alphabet, vocab_size // 4))
    tokenizer = Tokenizer.from_str(json.dumps(_settled(json.loads(tokenizer.to_str()), with_bytes=spare > 0)))
    tokenizer.decoder = _decoder(by_bytes=by_bytes)
    return framed(tokenizer)


def _trained(lines: list[str], kind: Kind, size: int, tagger: Tagger | None, alphabet: int) -> Any:
    """The library's trainer, on words that are cut behind their nouns where there is a tagger."""
    from tokenizers import Tokenizer, pre_tokenizers
    from tokenizers.normalizers import NFC

    by_bytes = kind == "byte-bpe"
    if tagger is not None:
        lines = [_apart(text, tags) for text, tags in zip(lines, tagger.tag(lines), strict=True)]
    if not by_bytes:
        lines = _without_rare(lines, alphabet)
    tokenizer = Tokenizer(_model(kind))
    tokenizer.normalizer = NFC() if by_bytes else word_normalizer(hanja_apart=False)
    cut = pre_tokenizers.Split(_CUT, "removed")
    inside = pre_tokenizers.ByteLevel(add_prefix_space=False) if by_bytes else _words()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([cut, inside] if by_bytes else [inside, cut])
    trainer = _trainer(kind, size)
    interruptible(lambda: tokenizer.train_from_iterator(lines, trainer))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True) if by_bytes else _words()
    return tokenizer


def _noun_unigrams(lines: list[str], size: int, tagger: Tagger, alphabet: int) -> Any:
    """Entries as WordPiece learns them, chosen in a text by their frequency and not from the left: `그는` is then `그`, `는`.

    The library's unigram trainer begins with what several words share and would lose nouns that are cut out of all their words.
    """
    learned = learn_entries(lines, size - 1, tagger=tagger, alphabet=alphabet)[len(SPECIAL) :]
    entries = [START, *(entry.removeprefix("##") if entry.startswith("##") else f"{START}{entry}" for entry in learned)]
    entries = [*SPECIAL.values(), *dict.fromkeys(entries)]
    tokenizer = _unigrams(entries, [0.0] * len(entries))  # at first all are alike, so that the fewest pieces win
    for _ in range(_ROUNDS):
        counts: Counter[int] = Counter()
        for start in range(0, len(lines), _AT_ONCE):
            for read in tokenizer.encode_batch_fast(lines[start : start + _AT_ONCE]):
                counts.update(read.ids)
        total = sum(counts.values()) + _UNSEEN * len(entries)
        tokenizer = _unigrams(entries, [math.log((counts[place] + _UNSEEN) / total) for place in range(len(entries))])
    return tokenizer


def _unigrams(entries: list[str], scores: list[float]) -> Any:
    from tokenizers import Tokenizer
    from tokenizers.models import Unigram

    tokenizer = Tokenizer(Unigram(list(zip(entries, scores, strict=True)), unk_id=entries.index(SPECIAL["unk_token"])))
    tokenizer.normalizer, tokenizer.pre_tokenizer = word_normalizer(), marked_words()
    return tokenizer


def _apart(text: str, tags: Any) -> str:
    return " ".join(f"{head}{_CUT}{tail}" if tail else head for head, tail in cut_words(text, tags))


def _without_rare(lines: list[str], size: int) -> list[str]:
    """The lines with only their most frequent characters; ties in code order, or a trainer's own limit would cut through them."""
    counts: Counter[str] = Counter()
    for line in lines:
        counts.update(line)
    kept = set(sorted(counts, key=lambda letter: (-counts[letter], letter))[:size]) | {_CUT, " "}
    rare = {ord(letter): " " for letter in counts if letter not in kept}
    return [line.translate(rare) for line in lines]


def _model(kind: Kind) -> Any:
    from tokenizers.models import BPE, Unigram

    return Unigram() if kind == "unigram" else BPE(unk_token=None if kind == "byte-bpe" else SPECIAL["unk_token"])


def _trainer(kind: Kind, size: int) -> Any:
    from tokenizers.pre_tokenizers import ByteLevel
    from tokenizers.trainers import BpeTrainer, UnigramTrainer

    common = {"vocab_size": size, "special_tokens": list(SPECIAL.values()), "show_progress": False}
    if kind == "unigram":
        return UnigramTrainer(unk_token=SPECIAL["unk_token"], max_piece_length=_LONGEST_ENTRY, **common)
    if kind == "byte-bpe":
        return BpeTrainer(min_frequency=2, initial_alphabet=sorted(ByteLevel.alphabet()), **common)
    return BpeTrainer(min_frequency=2, max_token_length=_LONGEST_ENTRY, **common)


def _words() -> Any:
    """What blanks separate, and punctuation apart: an entry that holds a name and its bracket hides where the name begins."""
    from tokenizers.pre_tokenizers import Metaspace, Punctuation, Sequence

    return Sequence([Metaspace(replacement=START, prepend_scheme="always"), Punctuation("isolated")])


def _decoder(*, by_bytes: bool) -> Any:
    from tokenizers.decoders import ByteFallback, ByteLevel, Metaspace, Sequence

    return ByteLevel() if by_bytes else Sequence([ByteFallback(), Metaspace(replacement=START, prepend_scheme="always")])


def _settled(rules: dict[str, Any], *, with_bytes: bool) -> dict[str, Any]:
    """A trained tokenizer's rules, with an entry for every byte where asked.

    A unigram model would find special and byte entries in a text that spells them: they get scores too low for that.
    """
    model, new = rules["model"], _BYTES if with_bytes else []
    if model["type"] == "Unigram":
        low = min(score for _, score in model["vocab"]) - _NEVER
        model["vocab"] = [[entry, low if entry in SPECIAL.values() else score] for entry, score in model["vocab"]]
        model["vocab"] += [[entry, low] for entry in new]
    else:
        model["vocab"] |= {entry: len(model["vocab"]) + place for place, entry in enumerate(new)}
    model["byte_fallback"] = with_bytes
    return rules
