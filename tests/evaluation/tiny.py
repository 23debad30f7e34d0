"""Small things to score with: texts, tokenizers of four kinds, models of every family, items with known places."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from coref_automl.base.records import ClozeItem, Document, ItemScore, Task
from coref_automl.evaluation.answers import save_table
from coref_automl.evaluation.evalset import EvalSet, freeze
from coref_automl.models.build import SPECIAL, build_masked_lm, train_tokenizer
from coref_automl.models.load import LoadedModel, tokenizer_fingerprint
from coref_automl.models.vocabulary import entry_words

TEXTS = [
    "한빛전자는 새 공장을 세웠다. 한빛전자의 대표 김서연은 공장에서 말했다. 시민은 도서관을 찾았다.",
    "김서연은 도서관에서 공부하였다. 도서관은 강변에 있다. 강변의 도서관을 시민이 찾는다. 김서연의 친구도 왔다.",
    "시민은 공장을 보았고 도서관을 지었다. 기차는 강변을 지난다. 기차에서 시민이 내렸다. 공장의 기차도 있다.",
    "대표는 기차를 탔다. 강변에는 나무가 많다. 나무 아래에서 대표가 쉬었다. 나무는 크고 강변은 넓다.",
]
NOUNS = ("한빛전자", "공장", "대표", "김서연", "시민", "도서관", "강변", "기차", "나무", "친구")


@cache
def tokenizer_of(kind: str) -> PreTrainedTokenizerFast:
    if kind == "wordpiece":
        # written out so that every noun is one entry and particles are continuations, except where a test wants several pieces
        entries = [
            *SPECIAL.values(),
            *(noun for noun in NOUNS if noun not in ("한빛전자", "김서연")),
            "한빛",
            "김서",
            "##전자",
            "##연",
        ]
        letters = sorted({letter for text in TEXTS for letter in text if not letter.isspace()})
        entries += [*letters, *(f"##{letter}" for letter in letters)]
        vocabulary = {entry: number for number, entry in enumerate(dict.fromkeys(entries))}
        inner = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
        inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        return _wrapped(inner)
    if kind == "pairs":
        return train_tokenizer(TEXTS * 4, vocab_size=400)
    options = {"show_progress": False, "special_tokens": list(SPECIAL.values())}
    if kind == "bytes":
        inner = Tokenizer(models.BPE(unk_token="[UNK]"))
        inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
        inner.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        inner.train_from_iterator(TEXTS * 4, trainers.BpeTrainer(vocab_size=500, initial_alphabet=alphabet, **options))
        return _wrapped(inner)
    inner = Tokenizer(models.Unigram())
    inner.pre_tokenizer = pre_tokenizers.Metaspace()
    inner.decoder = decoders.Metaspace()
    inner.train_from_iterator(TEXTS * 8, trainers.UnigramTrainer(vocab_size=160, unk_token="[UNK]", **options))
    return _wrapped(inner)


def _wrapped(inner: Tokenizer) -> PreTrainedTokenizerFast:
    cls, sep = (("[CLS]", inner.token_to_id("[CLS]")), ("[SEP]", inner.token_to_id("[SEP]")))
    inner.post_processor = processors.BertProcessing(sep, cls)
    return PreTrainedTokenizerFast(tokenizer_object=inner, **SPECIAL)


def loaded(shape: str = "bert-tiny", kind: str = "wordpiece", seq_len: int = 128, seed: int = 0) -> LoadedModel:
    tokenizer = tokenizer_of(kind)
    model: Any = build_masked_lm(shape, tokenizer, seq_len=seq_len, seed=seed)
    return LoadedModel(model.eval(), tokenizer, model.config.model_type, seq_len, ())


def item(document: str, answer: str, occurrence: int = 1, task: Task = "real", text: str | None = None, **more: Any) -> ClozeItem:
    """The item that hides the given occurrence of a word; its antecedent is the occurrence before."""
    text = TEXTS[int(document)] if text is None else text
    places = [at for at in range(len(text)) if text.startswith(answer, at)]
    start = places[occurrence]
    antecedent = (places[occurrence - 1], places[occurrence - 1] + len(answer)) if occurrence else None
    settings: dict[str, Any] = {"antecedent": antecedent, "distance": 5 if antecedent else -1}
    return ClozeItem(
        id=f"{task}-{document}-{start}", task=task, document=document, cluster=f"document {document}", source="tiny", start=start,
        end=start + len(answer), answer=answer, tag="NNG", **{**settings, **more},
    )  # fmt: skip


def items() -> list[ClozeItem]:
    return [
        item("0", "한빛전자"), item("0", "공장"), item("1", "도서관"), item("1", "강변"), item("1", "김서연"), item("2", "시민"),
        item("2", "기차"), item("2", "공장"), item("3", "나무"), item("3", "대표"), item("3", "강변"),
    ]  # fmt: skip


def documents() -> dict[str, str]:
    return {str(number): text for number, text in enumerate(TEXTS)}


def noun_table(kind: str = "wordpiece") -> NDArray[np.bool_]:
    """The entries that are one of the nouns of the texts; no tagger needed."""
    return np.array([word in {*NOUNS, "한빛", "전자"} for word in entry_words(tokenizer_of(kind))])


def nouns_in(text: str) -> tuple[str, ...]:
    return tuple(noun for noun in NOUNS if noun in text)


def freeze_tiny(folder: Path, kinds: Sequence[str] = ("wordpiece",), tasks: Sequence[Task] = ("real", "lambada")) -> EvalSet:
    """A frozen set of the items above, with the noun tables of some tokenizers."""
    built: dict[Task, list[ClozeItem]] = {}
    for task in tasks:
        built[task] = [replace(entry, id=f"{task}-{entry.document}-{entry.start}", task=task) for entry in items()]
    texts = [(Document(id=name, source="tiny", text=text), nouns_in(text)) for name, text in documents().items()]
    freeze(folder, texts, built, {"name": folder.name})
    for kind in kinds:
        save_table(folder, tokenizer_fingerprint(tokenizer_of(kind)), noun_table(kind))
    return EvalSet.open(folder)


def save_checkpoint(folder: Path, shape: str = "bert-tiny", kind: str = "wordpiece", seed: int = 0, seq_len: int = 128) -> Path:
    return Path(shutil.copytree(_saved(shape, kind, seed, seq_len), folder, copy_function=shutil.copy, dirs_exist_ok=True))


@cache
def _saved(shape: str, kind: str, seed: int, seq_len: int) -> Path:
    """Built once a process: a hundred tests ask for the same few models."""
    folder = Path(tempfile.mkdtemp(prefix="tiny-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    ready = loaded(shape, kind, seq_len, seed)
    ready.tokenizer.backend_tokenizer.no_padding()  # a test that padded left that in the tokenizer all share, and it is written
    ready.tokenizer.backend_tokenizer.no_truncation()
    ready.model.save_pretrained(folder)
    ready.tokenizer.save_pretrained(folder)
    return folder


def collect(batches: Iterable[list[ItemScore]]) -> dict[str, ItemScore]:
    """All scores by item id."""
    return {score.item: score for batch in batches for score in batch}
