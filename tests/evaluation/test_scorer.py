"""Ranks, tops, bonuses and choices are those of the model's full logits, whatever the family, the vocabulary and the batch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from coref_automl.base.errors import EvaluationError, ModelError, RecipeError
from coref_automl.base.records import ClozeItem, ItemScore
from coref_automl.evaluation import scorer as module
from coref_automl.evaluation.metrics import COPY_BONUSES
from coref_automl.evaluation.scorer import Scorer
from coref_automl.evaluation.windows import Lengths, Window, WindowMaker
from coref_automl.models.build import SPECIAL, build_masked_lm
from coref_automl.models.load import LoadedModel
from coref_automl.models.vocabulary import entry_words, word_ids
from tests.evaluation.tiny import NOUNS, TEXTS, collect, documents, item, items, loaded, noun_table, tokenizer_of

FAMILIES = ("bert-tiny", "roberta-tiny", "electra-tiny", "deberta-tiny", "tiny")
KINDS = ("wordpiece", "pairs", "bytes", "unigram")


def window_of(ready: LoadedModel, case: ClozeItem) -> tuple[Window, int]:
    maker = WindowMaker(ready.tokenizer, Lengths.fixed(ready.seq_len))
    return maker.window(case, TEXTS[int(case.document)]), maker.mask_id


def full_logits(ready: LoadedModel, window: Window, gap_ids: list[int]) -> torch.Tensor:
    """The plain way: the whole model on the whole row."""
    row = torch.from_numpy(window.filled(gap_ids)).long()[None]
    with torch.inference_mode():
        logits: torch.Tensor = ready.model(input_ids=row, attention_mask=torch.ones_like(row)).logits
    return logits[0, window.gap : window.gap + len(gap_ids)].float()


def slow_score(ready: LoadedModel, case: ClozeItem, allowed: np.ndarray[Any, Any]) -> ItemScore:
    """Rank, top, bonus hits and nouns ahead by a loop over the vocabulary; the rest of the score as it should be."""
    window, mask = window_of(ready, case)
    words = entry_words(ready.tokenizer)
    rank, top, hits, ahead = 0, (), (), ()
    if window.entry is not None:
        logits = full_logits(ready, window, [mask])[0].numpy()
        known = [at for at in range(len(words)) if allowed[at] and at != window.entry]
        order = sorted(known, key=lambda at: -logits[at])
        ahead = tuple(words[at] or "" for at in order if logits[at] >= logits[window.entry])
        rank = len(ahead) + 1
        top = (*ahead, case.answer, *(words[at] or "" for at in order[rank - 1 :]))[:5]
        seen = {*window.before.tolist(), mask, *window.after.tolist()}
        raised = [{at: logits[at] + bonus * (at in seen) for at in (*known, window.entry)} for bonus in COPY_BONUSES]
        hits = tuple(all(by[window.entry] > by[at] for at in known) for by in raised)
    return ItemScore(
        case.id, case.task, case.cluster, case.source, case.answer, case.tag, case.distance, rank, top, len(window.pieces),
        window.own_distance, window.out_of_reach, hits if case.task in ("real", "new") else (), ahead,
    )  # fmt: skip


def score_all(ready: LoadedModel, kind: str, cases: list[ClozeItem], **settings: Any) -> dict[str, ItemScore]:
    engine = Scorer(ready, noun_table(kind), seq_len=ready.seq_len, **settings)
    nouns = {name: [noun for noun in NOUNS if noun in text] for name, text in documents().items()}
    return collect(engine.score(cases, documents(), nouns))


@pytest.mark.parametrize("shape", FAMILIES)
def test_scores_equal_the_full_logits_of_every_family(shape: str) -> None:
    ready = loaded(shape)
    scores = score_all(ready, "wordpiece", items())
    assert scores == {case.id: slow_score(ready, case, noun_table()) for case in items()}
    assert {score.rank > 0 for score in scores.values()} == {True, False}


@pytest.mark.parametrize("kind", KINDS)
def test_scores_equal_the_full_logits_for_every_vocabulary(kind: str) -> None:
    ready = loaded("bert-tiny", kind, seed=3)
    scores = score_all(ready, kind, items())
    if kind == "wordpiece" or kind == "pairs":  # in the others no noun of the texts is one entry
        assert scores == {case.id: slow_score(ready, case, noun_table(kind)) for case in items()}
    for case in items():
        window, _ = window_of(ready, case)
        assert (scores[case.id].rank > 0) == (window.entry is not None)


def test_deberta_with_its_other_head() -> None:
    ready = loaded("deberta-tiny")
    config = type(ready.model.config)(**{**ready.model.config.to_dict(), "legacy": False, "tie_word_embeddings": False})
    other = replace(ready, model=type(ready.model)(config).eval())
    scores = score_all(other, "wordpiece", items())
    assert {case.id: slow_score(other, case, noun_table()).rank for case in items()} == {
        name: score.rank for name, score in scores.items()
    }


def test_the_batch_does_not_change_a_score() -> None:
    ready = loaded("deberta-tiny")
    one_by_one = score_all(ready, "wordpiece", items(), budget=1)
    together = score_all(ready, "wordpiece", items(), budget=100_000)
    backwards = score_all(ready, "wordpiece", items()[::-1])
    assert one_by_one == together == backwards


def test_an_answer_of_several_pieces_is_not_counted_and_costs_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[int] = []
    plain = module.encode_at
    monkeypatch.setattr(module, "encode_at", lambda model, ids, *rest: rows.append(len(ids)) or plain(model, ids, *rest))
    cases = items()
    scores = score_all(loaded(), "wordpiece", cases)
    several = {case.id for case in cases if case.answer in ("김서연", "한빛전자")}
    assert {name for name, score in scores.items() if score.rank == 0} == several
    assert all(scores[name].pieces == 2 and scores[name].top == () for name in several)
    assert sum(rows) == len(cases) - len(several)


def test_an_answer_inside_a_longer_token_is_not_counted() -> None:
    tokenizer = quoting("wordpiece")
    text = "도서관은 강변도서관 도서관은"
    inner: Any = build_masked_lm("bert-tiny", tokenizer, seq_len=64, seed=0)
    ready = LoadedModel(inner.eval(), tokenizer, "bert", 64, ())
    engine = Scorer(ready, np.array([word == "도서관" for word in entry_words(tokenizer)]), seq_len=64)
    whole = item("0", "도서관", 2, text=text)
    part = replace(whole, id="part", end=whole.end - 1, answer="도서")
    scores = collect(engine.score([whole, part], {"0": text}))
    assert scores[whole.id].rank > 0
    assert scores["part"].rank == 0


def test_a_choice_is_made_left_to_right_among_nouns_of_as_many_pieces() -> None:
    ready = loaded(seed=5)
    case = replace(item("1", "김서연"), task="real-choice")
    nouns = {"1": ["김서연", "한빛전자", "도서관", "강변", "김서전자", "한빛연"]}
    engine = Scorer(ready, noun_table(), seq_len=ready.seq_len)
    (score,) = collect(engine.score([case], documents(), nouns)).values()
    window, mask = window_of(ready, replace(case, task="real"))
    sums = {}
    for word in ("김서연", "한빛전자", "김서전자", "한빛연"):
        first, second = word_ids(ready.tokenizer, word)
        sums[word] = full_logits(ready, window, [mask, mask])[0].log_softmax(-1)[first]
        sums[word] += full_logits(ready, window, [first, mask])[1].log_softmax(-1)[second]
    ranked = sorted(sums, key=lambda word: -float(sums[word]))
    assert score.top == tuple(ranked)
    assert score.rank == 1 + ranked.index("김서연")
    few = collect(engine.score([case], documents(), {"1": ["김서연", "한빛전자", "도서관"]}))
    single = replace(item("1", "도서관"), task="real-choice")
    assert few[case.id].rank == collect(engine.score([single], documents(), nouns))[single.id].rank == 0


def test_lambada_is_ranked_among_all_words_and_real_among_nouns() -> None:
    real, lambada = item("1", "도서관"), item("1", "도서관", task="lambada")
    scores = score_all(loaded(), "wordpiece", [real, lambada])
    words = entry_words(tokenizer_of("wordpiece"))
    assert set(scores[real.id].top) <= {word for word, noun in zip(words, noun_table(), strict=True) if noun}
    every_word = np.array([bool(word) for word in words])
    assert scores[lambada.id] == slow_score(loaded(), lambada, every_word)
    assert "은" in {*scores[lambada.id].top, *scores[lambada.id].ahead}


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
        case = item("q", "도서관", occurrence, text=text)
        prepared = engine.prepare(case, text)
        assert prepared.window.initial == initial
        own = (starts if initial else inner).index("도서관")
        assert prepared.window.entry == own
        assert set(engine.form(any_word=False, initial=initial).words) == {"도서관", "강변", "시민"}
        (score,) = collect(engine.score([case], {"q": text})).values()
        row = torch.from_numpy(prepared.window.filled([engine.mask_id])).long()[None]
        with torch.inference_mode():
            logits = ready.model(input_ids=row, attention_mask=torch.ones_like(row)).logits[0, prepared.window.gap]
        rivals = [(starts if initial else inner).index(word) for word in ("강변", "시민")]
        assert score.rank == 1 + sum(bool(logits[rival] >= logits[own]) for rival in rivals)
