"""Words for a new model. In: a model with random weights, and a trained one of its tokenizer. Out: the trained one's words in it.

From random weights a post-norm encoder stands at the unigram loss for millions of tokens, until its word vectors have found their
place. With the word vectors and the mask head of another model it begins to learn at once.
"""

from __future__ import annotations

from typing import Any

import torch

from coref_automl.errors import ModelError

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
            f"The words to start from are {_size(theirs)} and the new model needs {_size(ours)}; take those of another model."
        )
    ours.copy_(theirs[: len(ours)])


def _fill_bias(ours: Any, theirs: Any) -> None:
    if ours is not None:
        ours.zero_() if theirs is None else ours.copy_(theirs[: len(ours)])


def _size(weight: Any) -> str:
    return " x ".join(f"{number:,}" for number in weight.shape)
