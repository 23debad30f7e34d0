"""Ranks, tops and word ranks are those of the model's full logits, whatever the family, the vocabulary and the batch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from coref_automl.errors import EvaluationError, ModelError, RecipeError
from coref_automl.evaluation import scorer as module
from coref_automl.evaluation.answers import matches
from coref_automl.evaluation.scorer import Scorer, rank_of
from coref_automl.evaluation.windows import WindowMaker
from coref_automl.models.build import SPECIAL, build_masked_lm
from coref_automl.models.load import LoadedModel
from coref_automl.models.vocabulary import entry_words, word_ids
from coref_automl.records import ClozeItem, ItemScore
from tests.evaluation.tiny import TEXTS, collect, documents, item, items, loaded, noun_table, tokenizer_of

FAMILIES = ("bert-tiny", "roberta-tiny", "electra-tiny", "deberta-tiny", "tiny")
KINDS = ("wordpiece", "pairs", "bytes", "unigram")


def full_logits(ready: LoadedModel, case: ClozeItem, masks: int) -> torch.Tensor:
    """The plain way: the whole model on the whole row."""
    maker = WindowMaker(ready.tokenizer, ready.seq_len)
    window = maker.window(case, TEXTS[int(case.document)])
    row = torch.from_numpy(window.filled([maker.mask_id] * masks)).long()[None]
    with torch.inference_mode():
        logits: torch.Tensor = ready.model(input_ids=row, attention_mask=torch.ones_like(row)).logits
    return logits[0, window.gap : window.gap + masks].float()


def slow_score(ready: LoadedModel, case: ClozeItem, allowed: np.ndarray[Any, Any]) -> tuple[int, int, tuple[str, ...], int]:
    words = entry_words(ready.tokenizer)
    logits = full_logits(ready, case, 1)[0].numpy()
    order = [at for at in np.argsort(-logits, kind="stable") if at < len(words) and allowed[at]]
    ranked = [words[at] or "" for at in order]
    strict = next((rank for rank, word in enumerate(ranked, 1) if word == case.answer), 0)
    lenient = next((rank for rank, word in enumerate(ranked, 1) if matches(word, case.answer)), 0)
    means = []
    for (word,) in case.candidates:
        pieces = word_ids(ready.tokenizer, word)[:4]
        log = full_logits(ready, case, len(pieces)).log_softmax(-1)
        known = ready.tokenizer.unk_token_id not in pieces
        means.append(float(sum(log[at, piece] for at, piece in enumerate(pieces)) / len(pieces)) if known else -np.inf)
    return strict, lenient, tuple(ranked[:5]), 1 + sum(other >= means[0] for other in means[1:])


def score_all(ready: LoadedModel, kind: str, cases: list[ClozeItem], **settings: Any) -> dict[str, ItemScore]:
    engine = Scorer(ready, noun_table(kind), seq_len=ready.seq_len, **settings)
    return collect(engine.score(cases, documents(), words={case.id for case in cases}))


@pytest.mark.parametrize("shape", FAMILIES)
def test_scores_equal_the_full_logits_of_every_family(shape: str) -> None:
    ready = loaded(shape)
    scores = score_all(ready, "wordpiece", items())
    for case in items():
        score = scores[case.id]
        assert (score.strict_rank, score.lenient_rank, score.top, score.word_rank) == slow_score(ready, case, noun_table())


@pytest.mark.parametrize("kind", KINDS)
def test_scores_equal_the_full_logits_for_every_vocabulary(kind: str) -> None:
    ready = loaded("bert-tiny", kind, seed=3)
    scores = score_all(ready, kind, items())
    for case in items():
        score = scores[case.id]
        assert (score.strict_rank, score.lenient_rank, score.top, score.word_rank) == slow_score(ready, case, noun_table(kind))


def test_deberta_with_its_other_head() -> None:
    ready = loaded("deberta-tiny")
    config = type(ready.model.config)(**{**ready.model.config.to_dict(), "legacy": False, "tie_word_embeddings": False})
    other = replace(ready, model=type(ready.model)(config).eval())
    scores = score_all(other, "wordpiece", items())
    for case in items():
        assert scores[case.id].strict_rank == slow_score(other, case, noun_table())[0]


def test_the_batch_does_not_change_a_score() -> None:
    ready = loaded("deberta-tiny")
    one_by_one = score_all(ready, "wordpiece", items(), budget=1)
    together = score_all(ready, "wordpiece", items(), budget=100_000)
    backwards = score_all(ready, "wordpiece", items()[::-1])
    assert one_by_one == together == backwards


def test_words_are_scored_only_where_they_are_wanted() -> None:
    cases = items()
    scores = collect(Scorer(loaded(), noun_table(), seq_len=128).score(cases, documents(), words={cases[0].id}))
    assert scores[cases[0].id].word_rank is not None
    assert all(scores[case.id].word_rank is None for case in cases[1:])


def test_an_answer_of_several_pieces_has_no_strict_rank_but_a_word_rank() -> None:
    case = item("1", "김서연")
    score = score_all(loaded(), "wordpiece", [case])[case.id]
    assert score.pieces == 2
    assert score.strict_rank == 0
    assert score.word_rank in range(1, 8)


def test_an_answer_without_any_match_ranks_zero() -> None:
    case = replace(item("1", "도서관"), answer="없는말", candidates=(("없는말",), ("시민",)))
    score = score_all(loaded(), "wordpiece", [case])[case.id]
    assert (score.strict_rank, score.lenient_rank) == (0, 0)
    assert len(score.top) == 5


def test_lambada_is_ranked_among_all_words_and_real_among_nouns() -> None:
    real, lambada = item("1", "도서관"), item("1", "도서관", task="lambada")
    scores = score_all(loaded(), "wordpiece", [real, lambada])
    words = entry_words(tokenizer_of("wordpiece"))
    assert set(scores[real.id].top) <= {word for word, noun in zip(words, noun_table(), strict=True) if noun}
    every_word = np.array([bool(word) for word in words])
    assert scores[lambada.id].strict_rank == slow_score(loaded(), lambada, every_word)[0]
    assert "은" in scores[lambada.id].top


def test_a_group_counts_by_its_best_surface() -> None:
    ready = loaded(seed=1)
    case = item("1", "강변")
    ranks = {}
    for group in case.candidates:
        turned = replace(case, candidates=(group, *(other for other in case.candidates if other != group)))
        ranks[group] = score_all(ready, "wordpiece", [turned])[case.id].word_rank
    winner = next(group for group, rank in ranks.items() if rank == 1)
    assert winner != case.candidates[0]
    joined = replace(case, candidates=((*case.candidates[0], *winner), *(g for g in case.candidates[1:] if g != winner)))
    assert score_all(ready, "wordpiece", [joined])[case.id].word_rank == 1


def test_weights_that_are_not_numbers_are_an_error() -> None:
    ready = loaded(seed=9)
    with torch.no_grad():
        next(iter(ready.model.bert.encoder.layer[0].parameters())).fill_(float("nan"))
    with pytest.raises(EvaluationError, match="not numbers"):
        score_all(ready, "wordpiece", items())


def test_memory_that_does_not_suffice_only_makes_batches_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    ready = loaded()
    cases = [*items(), *(replace(case, id=f"lambada {case.id}", task="lambada") for case in items())]
    expected = score_all(ready, "wordpiece", cases)
    sizes: list[int] = []
    plain = module.encode_at

    def small(model: Any, ids: torch.Tensor, *places: torch.Tensor) -> torch.Tensor:
        sizes.append(len(ids))
        if len(ids) > 8:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return plain(model, ids, *places)

    monkeypatch.setattr(module, "encode_at", small)
    assert score_all(ready, "wordpiece", cases) == expected
    assert max(sizes) > 8
    failed = [size for size in sizes if size > 8]
    assert sizes[: len(failed)] == failed  # a task learns from the one before it what does not fit


def test_only_one_chunk_of_logits_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    widest: list[int] = []
    plain = module.predict
    monkeypatch.setattr(module, "_HEAD_POSITIONS", 3)
    expected = score_all(loaded(), "wordpiece", items())

    def watched(model: Any, hidden: torch.Tensor) -> torch.Tensor:
        widest.append(len(hidden))
        return plain(model, hidden)

    monkeypatch.setattr(module, "predict", watched)
    assert score_all(loaded(), "wordpiece", items(), budget=100_000) == expected
    assert max(widest) == 3


def test_a_tokenizer_larger_than_the_model_is_refused() -> None:
    ready = replace(loaded(), tokenizer=tokenizer_of("bytes"))
    with pytest.raises(ModelError, match="pass the model's own tokenizer"):
        Scorer(ready, noun_table(), seq_len=128)


def test_a_noun_table_of_another_tokenizer_is_refused() -> None:
    with pytest.raises(ModelError, match="different tokenizers"):
        Scorer(loaded(), np.ones(10_000, np.bool_), seq_len=128)


def test_an_unknown_dtype_names_the_nearest() -> None:
    with pytest.raises(RecipeError, match="bfloat16"):
        Scorer(loaded(), noun_table(), seq_len=128, dtype="bfloat")


def test_half_precision_runs_the_encoder_alone() -> None:
    scores = score_all(loaded(), "wordpiece", items(), dtype="bfloat16")
    assert len(scores) == len(items())


def test_the_process_keeps_its_own_matmul_precision() -> None:
    torch.set_float32_matmul_precision("high")
    try:
        score_all(loaded(), "wordpiece", items()[:1])
        assert torch.get_float32_matmul_precision() == "high"
        assert not torch.is_inference_mode_enabled()
    finally:
        torch.set_float32_matmul_precision("highest")


@given(st.lists(st.lists(st.integers(-3, 3), min_size=6, max_size=6), min_size=1, max_size=4), st.data())
def test_rank_counts_those_before_and_ties_against(rows: list[list[int]], data: st.DataObject) -> None:
    chosen = [data.draw(st.lists(st.integers(0, 5), unique=True, max_size=3)) for _ in rows]
    ranks = rank_of(torch.tensor(rows).float(), [np.array(ids, np.int64) for ids in chosen])
    for rank, row, ids in zip(ranks, rows, chosen, strict=True):
        best = max((row[at] for at in ids), default=None)
        expected = 0 if best is None else 1 + sum(value >= best for at, value in enumerate(row) if at not in ids)
        assert rank == expected


def quoting(kind: str) -> PreTrainedTokenizerFast:
    """A tokenizer that does not split behind a quotation mark, with both forms of every noun."""
    both = ("도서관", "강변", "시민")
    letters = sorted({letter for word in (*both, '"은이을에 .') for letter in word if letter != " "})
    if kind == "wordpiece":
        entries = [*SPECIAL.values(), *both, *(f"##{word}" for word in both), *letters, *(f"##{letter}" for letter in letters)]
        inner = Tokenizer(models.WordPiece({entry: at for at, entry in enumerate(entries)}, unk_token="[UNK]"))
        inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    elif kind == "metaspace":
        scores = [(entry, 0.0) for entry in SPECIAL.values()]
        scores += [(entry, -1.0) for word in both for entry in (f"▁{word}", word)]
        scores += [(entry, -9.0) for letter in letters for entry in (f"▁{letter}", letter)] + [("▁", -9.0)]
        inner = Tokenizer(models.Unigram(scores, unk_id=list(SPECIAL.values()).index("[UNK]")))
        inner.pre_tokenizer = pre_tokenizers.Metaspace()
    else:
        inner = Tokenizer(models.BPE(unk_token="[UNK]"))
        inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        texts = [f'{word} {word} "{word}" ' for word in both] * 9
        options: dict[str, Any] = {"show_progress": False, "special_tokens": list(SPECIAL.values())}
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        inner.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, **options))
    return PreTrainedTokenizerFast(tokenizer_object=inner, **SPECIAL)


@pytest.mark.parametrize(
    ("kind", "behind_quote", "behind_break"),
    [("wordpiece", False, True), ("metaspace", False, False), ("bytes", False, False)],
)
def test_a_gap_is_asked_in_the_form_that_its_document_has_there(kind: str, behind_quote: bool, behind_break: bool) -> None:
    text = '강변에 도서관이 "도서관은 시민을\n도서관에 강변은.'
    tokenizer = quoting(kind)
    starts, inner = entry_words(tokenizer), entry_words(tokenizer, initial=False)
    nouns = np.array([word in ("도서관", "강변", "시민") for word in starts])
    assert {"도서관", "강변", "시민"} <= set(starts) & set(inner)
    built: Any = build_masked_lm("bert-tiny", tokenizer, seq_len=64, seed=0)
    ready = LoadedModel(built.eval(), tokenizer, "bert", 64, ())
    engine = Scorer(ready, nouns, seq_len=64)
    for occurrence, initial in ((0, True), (1, behind_quote), (2, behind_break)):
        case = item("q", "도서관", occurrence, text=text, candidates=(("도서관",), ("강변",), ("시민",)))
        prepared = engine.prepare(case, text, words=True)
        assert prepared.window.initial == initial
        assert prepared.candidates is not None
        own = (starts if initial else inner).index("도서관")
        assert prepared.candidates.words[0] == (own,)
        assert engine.table("real", initial).of("도서관")[0].tolist() == [own]
        (score,) = collect(engine.score([case], {"q": text}, words={case.id})).values()
        row = torch.from_numpy(prepared.window.filled([engine.mask_id])).long()[None]
        with torch.inference_mode():
            logits = ready.model(input_ids=row, attention_mask=torch.ones_like(row)).logits[0, prepared.window.gap]
        rivals = [(starts if initial else inner).index(word) for word in ("강변", "시민")]
        assert score.strict_rank == 1 + sum(bool(logits[rival] >= logits[own]) for rival in rivals)
        assert score.word_rank == score.strict_rank
