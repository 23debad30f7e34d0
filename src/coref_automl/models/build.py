"""New models. In: a named shape, texts, a trained model. Out: a model with new weights, a tokenizer, inherited words.

With a shape and texts, an experiment needs no hub. From random weights a post-norm encoder stays at the unigram loss for millions
of tokens, until its word embeddings are useful; with the word embeddings and the mask head of another model of the same tokenizer
it learns from the start.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from coref_automl.base.config import choose
from coref_automl.base.errors import ModelError
from coref_automl.base.korean import Tagger, Tags
from coref_automl.base.machine import interruptible
from coref_automl.models.families import too_long
from coref_automl.models.vocabulary import ids_end

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

_WORDS = re.compile(r"[\u3400-\u9fff\uf900-\ufaff]|[^\W_\u3400-\u9fff\uf900-\ufaff]+|[^\w\s]|_")
"""Words as the pre-tokenizer splits them: each Hanja character and each punctuation mark is a word."""

_ENDING_SHARE = 0.06
START = "▁"
"""Prefix of a word's first entry in vocabularies that do not mark continuations."""

SPECIAL = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}


@dataclass(frozen=True, slots=True)
class Shape:
    """A family and its sizes. Dropout is off: small models trained for few epochs lack capacity, not regularization."""

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
    """Build a model with random weights, the same for the same seed; torch's random state is left unchanged."""
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
        "vocab_size": ids_end(tokenizer),
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
    family_settings = _family_settings(shape, seq_len, first_row=tokenizer.pad_token_id + 1)
    return AutoConfig.for_model(shape.family, **common, **family_settings)


def _family_settings(shape: Shape, seq_len: int, *, first_row: int) -> dict[str, Any]:
    """Return a family's settings for its length and for training from scratch.

    RoBERTa counts positions from its padding id: `first_row` is the row of its first position.
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
    unused_rows = first_row if shape.family == "roberta" else 0
    sizes = {"embedding_size": shape.hidden} if shape.family == "electra" else {}
    return no_dropout | sizes | {"max_position_embeddings": seq_len + unused_rows}


def train_tokenizer(
    texts: Iterable[str], *, vocab_size: int, tagger: Tagger | None = None, alphabet: int = 3000
) -> PreTrainedTokenizerFast:
    """Train a WordPiece tokenizer, the same for the same texts. Using it needs no tagger."""
    return _assemble(learn_entries(list(texts), vocab_size, tagger=tagger, alphabet=alphabet))


def learn_entries(texts: list[str], size: int, *, tagger: Tagger | None, alphabet: int = 3000) -> list[str]:
    """Learn a vocabulary, special entries first; entries inside a word begin with ##.

    With a tagger, nouns and their endings (particles, suffixes) are learned separately: no entry joins a noun with its particle,
    so the vocabulary is spent on nouns, and as many nouns as possible are a single entry. 6% of the entries are for endings.
    `alphabet` limits the single characters (initial and inner ones counted separately), which take a quarter of the entries at
    most.
    """
    stems, endings = _stems_and_endings(texts, tagger)
    forms = _characters(texts, min(alphabet, size // 4))
    characters = {form.removeprefix("##") for form in forms}
    entries = [*SPECIAL.values(), *forms]
    if tagger is not None:
        count = min(round(size * _ENDING_SHARE), size - len(entries))
        entries += _new([f"##{entry.removeprefix('##')}" for entry in _learn(endings, count, characters)], entries)[:count]
    return entries + _new(_learn(stems, size, characters), entries)[: size - len(entries)]


def _new(learned: list[str], present: list[str]) -> list[str]:
    """Drop entries that are present already, repeated, or single characters (chosen by frequency); keep the order."""
    excluded = {*present, *(f"##{special}" for special in SPECIAL.values())}
    return [entry for entry in dict.fromkeys(learned) if entry not in excluded and len(entry.removeprefix("##")) > 1]


def _stems_and_endings(texts: list[str], tagger: Tagger | None) -> tuple[list[str], list[str]]:
    """Split the words of each text into their starts and their endings, each as a line separated by blanks."""
    if tagger is None:
        return texts, []
    stems, endings = [], []
    for text, tags in zip(texts, tagger.tag(texts), strict=True):
        words = list(_split_words(text, tags))
        stems.append(" ".join(stem for stem, _ in words))
        endings.append(" ".join(ending for _, ending in words if ending))
    return stems, endings


def _split_words(text: str, tags: Tags) -> Iterator[tuple[str, str]]:
    """Split each word after its last noun or pronoun: the start, and the ending."""
    noun_ends = tags.spans[:, 1].tolist()
    end = noun = 0
    for word in text.split():
        start = text.index(word, end)
        end = start + len(word)
        cut = end
        while noun < len(noun_ends) and noun_ends[noun] <= end:
            cut = noun_ends[noun] if noun_ends[noun] > start else cut
            noun += 1
        yield text[start:cut], text[cut:end]


def _characters(texts: list[str], size: int) -> list[str]:
    """Return the most frequent single characters, at a word's start or (##) inside one; ties in code-point order."""
    words = Counter(word for text in texts for word in _WORDS.findall(text))
    counts: Counter[str] = Counter()
    for word, count in words.items():
        counts[word[0]] += count
        for character in word[1:]:
            counts[f"##{character}"] += count
    return sorted(sorted(counts, key=lambda form: (-counts[form], form))[:size])


def _learn(lines: list[str], size: int, characters: set[str]) -> list[str]:
    """Learn at least `size` entries, if the texts have them, in the order of byte-pair encoding.

    In two ways the trainer would break ties differently in every process. Marks on continuations are numbered in the order of a
    hash table, so the starts of words are marked; and its limit on the alphabet cuts through ties, so rare characters are removed
    here.
    """
    from tokenizers import Tokenizer
    from tokenizers.models import BPE
    from tokenizers.trainers import BpeTrainer

    rare = {ord(character): " " for character in set().union(*map(set, lines)) - characters}
    learner = Tokenizer(BPE(unk_token="[UNK]"))
    learner.pre_tokenizer = marked_words()
    trainer = BpeTrainer(
        vocab_size=size + 2 * len(characters) + 2,  # it counts single characters, also marked ones, which are chosen elsewhere
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
    """Return a pre-tokenizer with WordPiece's words, each marked at its start."""
    from tokenizers.pre_tokenizers import Metaspace, Sequence

    return Sequence([_pre_tokenizer(), Metaspace(replacement=START, prepend_scheme="always", split=False)])


def word_normalizer() -> Any:
    """Return a normalizer: NFC, no control characters, blanks around Hanja."""
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
    """Wrap as a fast tokenizer of transformers that puts [CLS] before a text and [SEP] after it."""
    from tokenizers.processors import BertProcessing
    from transformers import PreTrainedTokenizerFast

    first, last = ((SPECIAL[name], tokenizer.token_to_id(SPECIAL[name])) for name in ("cls_token", "sep_token"))
    tokenizer.post_processor = BertProcessing(last, first)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **SPECIAL)


_BERT_HEAD = ("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm")
_ROBERTA_HEAD = ("lm_head.dense", "lm_head.layer_norm")
_NEW_DEBERTA_HEAD = ("lm_predictions.lm_head.dense", "lm_predictions.lm_head.LayerNorm")
_HEADS = {
    "bert": _BERT_HEAD,
    "electra": ("generator_predictions.dense", "generator_predictions.LayerNorm"),
    "distilbert": ("vocab_transform", "vocab_layer_norm"),
    "roberta": _ROBERTA_HEAD,
    "xlm-roberta": _ROBERTA_HEAD,
    "camembert": _ROBERTA_HEAD,
    "deberta-v2": _BERT_HEAD,
    "modernbert": ("head.dense", "head.norm"),
}
"""Names of the dense layer and the norm that every family has between the last hidden state and the output embeddings."""


def inherit_words(model: Any, source: Any) -> None:
    """Copy word embeddings, mask head and output bias of `source` into `model`, whose vocabulary is as large or smaller.

    A bias that only the source has is dropped; one that only the new model has is set to zero.
    """
    pairs = [(model.get_input_embeddings(), source.get_input_embeddings()), *zip(_head(model), _head(source), strict=True)]
    (weight, bias), (source_weight, source_bias) = _output_layer(model), _output_layer(source)
    import torch

    with torch.no_grad():
        for layer, source_layer in pairs:
            _copy(layer.weight, source_layer.weight)
            _copy_bias(getattr(layer, "bias", None), getattr(source_layer, "bias", None))
        if weight is not pairs[0][0].weight:
            _copy(weight, source_weight)
        _copy_bias(bias, source_bias)


def _head(model: Any) -> tuple[Any, Any]:
    dense, norm = _NEW_DEBERTA_HEAD if _has_new_deberta_head(model) else _HEADS[model.config.model_type]
    return model.get_submodule(dense), model.get_submodule(norm)


def _output_layer(model: Any) -> tuple[Any, Any]:
    """Return the weight and the bias that turn a hidden state into logits."""
    if _has_new_deberta_head(model):
        return model.get_input_embeddings().weight, model.lm_predictions.lm_head.bias
    layer = model.get_output_embeddings()
    return layer.weight, layer.bias


def _has_new_deberta_head(model: Any) -> bool:
    """DeBERTa has two kinds of heads; the newer one has no output embeddings of its own."""
    return model.config.model_type == "deberta-v2" and not model.config.legacy


def _copy(target: Any, source: Any) -> None:
    if target.shape[1:] != source.shape[1:] or len(target) > len(source):
        raise ModelError(f"The words to start from are {_size(source)} and the model needs {_size(target)}; pass another model.")
    target.copy_(source[: len(target)])


def _copy_bias(target: Any, source: Any) -> None:
    if target is not None:
        target.zero_() if source is None else target.copy_(source[: len(target)])


def _size(weight: Any) -> str:
    return " x ".join(f"{number:,}" for number in weight.shape)
