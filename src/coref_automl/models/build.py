"""New models. In: a named shape, texts, a trained model. Out: a model with new weights, a tokenizer, inherited words.

With a shape and texts, a whole experiment needs no hub. From random weights a post-norm encoder stays at the unigram loss for
millions of tokens, until its word vectors have found their place; with the word vectors and the mask head of another model of
the same tokenizer it begins to learn at once.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from coref_automl.config import choose
from coref_automl.errors import ModelError
from coref_automl.korean import Tagger, Tags
from coref_automl.machine import interruptible
from coref_automl.models.families import too_long

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

_WORDS = re.compile(r"[\u3400-\u9fff\uf900-\ufaff]|[^\W_\u3400-\u9fff\uf900-\ufaff]+|[^\w\s]|_")
"""Words as the tokenizer's pre-tokenizer cuts them: Hanja and punctuation are separate words."""

_TAIL_SHARE = 0.06
START = "▁"
"""Marks a word's start where continuations carry no mark."""

SPECIAL = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}


@dataclass(frozen=True, slots=True)
class Shape:
    """A family and its sizes. Dropout is off: small models seen for few epochs are short of capacity, not of noise."""

    family: str
    layers: int
    hidden: int
    heads: int
    intermediate: int


NEW = "new:"
"""A model named new:SHAPE starts from random weights and needs a tokenizer."""
SHAPES = {
    "tiny": Shape("modernbert", 2, 64, 2, 96),
    "demo": Shape("modernbert", 4, 128, 4, 192),
    "ko-mini": Shape("modernbert", 8, 320, 5, 384),
    "ko-small": Shape("modernbert", 8, 384, 6, 768),
    "deberta-tiny": Shape("deberta-v2", 2, 64, 2, 128),
    "deberta-mini": Shape("deberta-v2", 6, 320, 5, 960),
    "bert-tiny": Shape("bert", 2, 64, 2, 128),
    "roberta-tiny": Shape("roberta", 2, 64, 2, 128),
    "electra-tiny": Shape("electra", 2, 64, 2, 128),
}
"""ModernBERT first: pre-norm and rotary, it learns in minutes where the post-norm families stay at the unigram loss."""


def build_masked_lm(shape: str, tokenizer: PreTrainedTokenizerFast, *, seq_len: int, seed: int = 0) -> PreTrainedModel:
    """A model of a named shape with random weights, the same for the same seed; torch's own random state is left as it was."""
    import torch
    from transformers import AutoModelForMaskedLM

    if why := too_long(seq_len):
        raise ModelError(f"A model's length {why}.")
    config = _config(choose(shape, SHAPES, "shape"), tokenizer, seq_len)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return AutoModelForMaskedLM.from_config(config)


def _config(shape: Shape, tokenizer: PreTrainedTokenizerFast, seq_len: int) -> Any:
    from transformers import AutoConfig

    common = {
        "vocab_size": len(tokenizer),
        "num_hidden_layers": shape.layers,
        "hidden_size": shape.hidden,
        "num_attention_heads": shape.heads,
        "intermediate_size": shape.intermediate,
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.cls_token_id,
        "cls_token_id": tokenizer.cls_token_id,
        "eos_token_id": tokenizer.sep_token_id,
        "sep_token_id": tokenizer.sep_token_id,
    }
    positions = _positions(shape, seq_len, first=tokenizer.pad_token_id + 1)
    return AutoConfig.for_model(shape.family, **common, **positions)


def _positions(shape: Shape, seq_len: int, *, first: int) -> dict[str, Any]:
    """How each family's length is configured, and the settings under which it learns from nothing.

    RoBERTa counts positions from the id of its padding: `first` is the row of the first of them.
    """
    if shape.family == "modernbert":
        return {"max_position_embeddings": seq_len, "global_attn_every_n_layers": 2, "local_attention": 128}
    no_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    if shape.family == "deberta-v2":
        return no_dropout | {
            "max_position_embeddings": seq_len,
            "max_relative_positions": seq_len,
            "relative_attention": True,
            "position_buckets": 64,
            "norm_rel_ebd": "layer_norm",
            "share_att_key": True,
            "pos_att_type": ["p2c", "c2p"],
            "position_biased_input": False,
            "type_vocab_size": 0,
        }
    rows_before_the_first = first if shape.family == "roberta" else 0
    sizes = {"embedding_size": shape.hidden} if shape.family == "electra" else {}
    return no_dropout | sizes | {"max_position_embeddings": seq_len + rows_before_the_first}


def train_tokenizer(
    texts: Iterable[str], *, vocab_size: int, tagger: Tagger | None = None, alphabet: int = 3000
) -> PreTrainedTokenizerFast:
    """A WordPiece tokenizer, the same for the same texts. Using it needs no tagger."""
    return _assemble(learn_entries(list(texts), vocab_size, tagger=tagger, alphabet=alphabet))


def learn_entries(texts: list[str], size: int, *, tagger: Tagger | None, alphabet: int = 3000) -> list[str]:
    """A vocabulary, special entries first; what stands inside a word begins with ##.

    With a tagger, nouns and what follows them are learned apart: no entry joins a noun with its particle, so the vocabulary is
    spent on nouns, and a hidden noun is one entry as often as its size allows.
    `alphabet` bounds the single characters (at a word's start and inside one counted apart) to a quarter of the entries at most;
    six entries in a hundred are spent on what follows a noun.
    """
    heads, endings = _words(texts, tagger)
    characters = _characters(texts, min(alphabet, size // 4))
    letters = {form.removeprefix("##") for form in characters}
    entries = [*SPECIAL.values(), *characters]
    if tagger is not None:
        wanted = min(round(size * _TAIL_SHARE), size - len(entries))
        entries += _new([f"##{entry.removeprefix('##')}" for entry in _learn(endings, wanted, letters)], entries)[:wanted]
    return entries + _new(_learn(heads, size, letters), entries)[: size - len(entries)]


def _new(learned: list[str], known: list[str]) -> list[str]:
    """What is not yet among the entries, once, in the order learned. Single characters are chosen by their count, not here."""
    held = {*known, *(f"##{special}" for special in SPECIAL.values())}
    return [entry for entry in dict.fromkeys(learned) if entry not in held and len(entry.removeprefix("##")) > 1]


def _words(texts: list[str], tagger: Tagger | None) -> tuple[list[str], list[str]]:
    """Texts as lines of blank-separated pieces: what starts words, and what follows a noun inside one."""
    if tagger is None:
        return texts, []
    heads, tails = [], []
    for text, tags in zip(texts, tagger.tag(texts), strict=True):
        pieces = list(_cut_words(text, tags))
        heads.append(" ".join(head for head, _ in pieces))
        tails.append(" ".join(tail for _, tail in pieces if tail))
    return heads, tails


def _cut_words(text: str, tags: Tags) -> Iterator[tuple[str, str]]:
    """Each word, cut behind its last noun or pronoun: its start, and what follows."""
    noun_ends = tags.spans[:, 1].tolist()
    at = noun = 0
    for word in text.split():
        start = text.index(word, at)
        at = start + len(word)
        cut = at
        while noun < len(noun_ends) and noun_ends[noun] <= at:
            cut = noun_ends[noun] if noun_ends[noun] > start else cut
            noun += 1
        yield text[start:cut], text[cut:at]


def _characters(texts: list[str], size: int) -> list[str]:
    """The most frequent single characters, at a word's start or (##) inside one; ties in code order."""
    words = Counter(word for text in texts for word in _WORDS.findall(text))
    counts: Counter[str] = Counter()
    for word, times in words.items():
        counts[word[0]] += times
        for character in word[1:]:
            counts[f"##{character}"] += times
    return sorted(sorted(counts, key=lambda form: (-counts[form], form))[:size])


def _learn(lines: list[str], size: int, letters: set[str]) -> list[str]:
    """At least `size` entries, if the texts have them, in the order in which byte-pair encoding learns them.

    Two habits of the trainer would let ties fall otherwise in every process. Words carry a mark at their start, because marks
    on continuations are numbered in the order of a hash table; and rare characters are taken out here, because the trainer's
    own limit on the alphabet cuts through ties.
    """
    from tokenizers import Tokenizer
    from tokenizers.models import BPE
    from tokenizers.trainers import BpeTrainer

    rare = {ord(character): " " for character in set().union(*map(set, lines)) - letters}
    learner = Tokenizer(BPE(unk_token="[UNK]"))
    learner.pre_tokenizer = marked_words()
    trainer = BpeTrainer(
        vocab_size=size + 2 * len(letters) + 2,  # it counts letters, alone and at a word's start, which are chosen elsewhere
        min_frequency=2,
        show_progress=False,
        special_tokens=["[UNK]"],
        max_token_length=12,
    )
    interruptible(lambda: learner.train_from_iterator((line.translate(rare) for line in lines), trainer))
    vocabulary: dict[str, int] = learner.get_vocab()
    ordered = sorted(vocabulary, key=lambda entry: vocabulary[entry])
    return [entry.removeprefix(START) if entry.startswith(START) else f"##{entry}" for entry in ordered]


def _pre_tokenizer() -> Any:
    from tokenizers.pre_tokenizers import BertPreTokenizer

    return BertPreTokenizer()


def marked_words() -> Any:
    """The same words as WordPiece's, each with a mark at its start."""
    from tokenizers.pre_tokenizers import Metaspace, Sequence

    return Sequence([_pre_tokenizer(), Metaspace(replacement=START, prepend_scheme="always", split=False)])


def word_normalizer() -> Any:
    """NFC, no control characters, and blanks around Hanja."""
    from tokenizers.normalizers import NFC, BertNormalizer, Sequence

    cleaned = BertNormalizer(clean_text=True, handle_chinese_chars=True, strip_accents=False, lowercase=False)
    return Sequence([NFC(), cleaned])


def _assemble(entries: list[str]) -> PreTrainedTokenizerFast:
    from tokenizers import Tokenizer, decoders
    from tokenizers.models import WordPiece

    vocabulary = {entry: index for index, entry in enumerate(entries)}
    tokenizer = Tokenizer(WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=60))
    tokenizer.normalizer = word_normalizer()
    tokenizer.pre_tokenizer = _pre_tokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    return as_fast(tokenizer)


def as_fast(tokenizer: Any) -> PreTrainedTokenizerFast:
    """The tokenizer as the library takes it, with [CLS] before a text and [SEP] behind it."""
    from tokenizers.processors import BertProcessing
    from transformers import PreTrainedTokenizerFast

    first, last = ((SPECIAL[name], tokenizer.token_to_id(SPECIAL[name])) for name in ("cls_token", "sep_token"))
    tokenizer.post_processor = BertProcessing(last, first)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **SPECIAL)


_OF_BERT = ("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm")
_OF_ROBERTA = ("lm_head.dense", "lm_head.layer_norm")
_OF_NEW_DEBERTA = ("lm_predictions.lm_head.dense", "lm_predictions.lm_head.LayerNorm")
_HEADS = {
    "bert": _OF_BERT,
    "electra": ("generator_predictions.dense", "generator_predictions.LayerNorm"),
    "distilbert": ("vocab_transform", "vocab_layer_norm"),
    "roberta": _OF_ROBERTA,
    "xlm-roberta": _OF_ROBERTA,
    "camembert": _OF_ROBERTA,
    "deberta-v2": _OF_BERT,
    "modernbert": ("head.dense", "head.norm"),
}
"""Between the last hidden state and the words every family has a dense layer and a norm; they go by these names."""


def inherit_words(model: Any, source: Any) -> None:
    """Word vectors, mask head and the words' biases of `source` into `model`, which has as many words or fewer.

    A bias that only the source has finds no place; one that only the new model has starts at zero.
    """
    pairs = [(model.get_input_embeddings(), source.get_input_embeddings()), *zip(_head(model), _head(source), strict=True)]
    (table, bias), (their_table, their_bias) = _answers(model), _answers(source)
    import torch

    with torch.no_grad():
        for ours, theirs in pairs:
            _fill(ours.weight, theirs.weight)
            _fill_bias(getattr(ours, "bias", None), getattr(theirs, "bias", None))
        if table is not pairs[0][0].weight:
            _fill(table, their_table)
        _fill_bias(bias, their_bias)


def _head(model: Any) -> tuple[Any, Any]:
    dense, norm = _OF_NEW_DEBERTA if _is_new_deberta(model) else _HEADS[model.config.model_type]
    return model.get_submodule(dense), model.get_submodule(norm)


def _answers(model: Any) -> tuple[Any, Any]:
    """The table and the biases that turn a hidden state into scores of words."""
    if _is_new_deberta(model):
        return model.get_input_embeddings().weight, model.lm_predictions.lm_head.bias
    words = model.get_output_embeddings()
    return words.weight, words.bias


def _is_new_deberta(model: Any) -> bool:
    """DeBERTa has two kinds of heads; the newer one has no table of its own."""
    return model.config.model_type == "deberta-v2" and not model.config.legacy


def _fill(ours: Any, theirs: Any) -> None:
    if ours.shape[1:] != theirs.shape[1:] or len(ours) > len(theirs):
        raise ModelError(
            f"The words to start from are {_size(theirs)} and the new model needs {_size(ours)}; pass another model."
        )
    ours.copy_(theirs[: len(ours)])


def _fill_bias(ours: Any, theirs: Any) -> None:
    if ours is not None:
        ours.zero_() if theirs is None else ours.copy_(theirs[: len(ours)])


def _size(weight: Any) -> str:
    return " x ".join(f"{number:,}" for number in weight.shape)
