from __future__ import annotations

import json
import random
import shutil
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from coref_automl.base.errors import CoreferenceDataError, FolderError, ModelError
from coref_automl.base.store import read_json, write_json
from coref_automl.extras.coreference import train as train_module
from coref_automl.extras.coreference.answers import DocumentAnswer
from coref_automl.extras.coreference.documents import CorefDocument, Mention, in_order, write_documents
from coref_automl.extras.coreference.evaluate import evaluate_coreference, models_of
from coref_automl.extras.coreference.metrics import conll, score_document, sum_scores
from coref_automl.extras.coreference.model import load_model
from coref_automl.extras.coreference.predict import coreference
from coref_automl.extras.coreference.resolve import encode_document, resolve_found, resolve_gold
from coref_automl.extras.coreference.results import CoreferenceResult
from coref_automl.extras.coreference.split import folds, named_split
from coref_automl.extras.coreference.tokens import tokenize_documents
from coref_automl.extras.coreference.train import _THRESHOLDS, train_coreference
from coref_automl.extras.tokenizer.recipe import train_unigrams
from coref_automl.models.build import build_masked_lm, train_tokenizer
from tests.extras.coreference.conftest import recipe


class Stop(Exception):
    pass


def weights(run: Path) -> dict[str, Any]:
    return load_file(run / "seed-0" / "model" / "head.safetensors")


def test_a_run_learns_the_tales_and_its_result_reads_back_from_disk(run: Path) -> None:
    result = CoreferenceResult.from_json(json.loads((run / "coref_results.json").read_text("utf-8")))
    assert (result.documents, result.split) == (2, "tales-test")
    assert result.estimates["found"]["mention"].value > 0.8
    assert result.estimates["gold"]["conll"].value > 0.6
    assert result.estimates["gold"]["mention"].value == 1
    answers = DocumentAnswer.read(run / "seed-0" / "answers" / "tales-test.jsonl")
    scores = sum_scores(answer.sums["gold"] for answer in answers)
    assert conll(scores) == pytest.approx(result.estimates["gold"]["conll"].value)
    assert result.seeds[0].peak_gigabytes > 0
    assert any("CoNLL" in line for line in result.lines())


def test_killed_and_resumed_training_ends_where_an_unbroken_one_does(
    tmp_path: Path, tales_file: Path, encoder_folder: Path, split_file: Path
) -> None:
    def stop(seed: int, epoch: int, score: float) -> None:
        if epoch == 2:
            raise Stop

    unbroken = recipe(tales_file, encoder_folder, tmp_path / "a", split=str(split_file), rank=4)
    train_coreference(unbroken)
    broken = replace(unbroken, out=str(tmp_path / "b"))
    with pytest.raises(Stop):
        train_coreference(broken, on_epoch=stop)
    assert (tmp_path / "b" / "seed-0" / "resume.pt").is_file()
    train_coreference(broken)
    a, b = weights(tmp_path / "a"), weights(tmp_path / "b")
    assert a.keys() == b.keys()
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert not (tmp_path / "b" / "seed-0" / "resume.pt").exists()


def test_a_finished_run_is_not_trained_again_and_another_recipe_is_refused(
    run: Path, tales_file: Path, encoder_folder: Path, split_file: Path
) -> None:
    settings = recipe(tales_file, encoder_folder, run, split=str(split_file), epochs=12)

    def never(*_: Any) -> None:
        raise AssertionError("trained again")

    train_coreference(settings, on_epoch=never)
    with pytest.raises(FolderError, match="was begun with epochs 12"):
        train_coreference(replace(settings, epochs=13))


def test_cross_fitting_tests_every_document_once(tmp_path: Path, tales_file: Path, encoder_folder: Path) -> None:
    result = train_coreference(recipe(tales_file, encoder_folder, tmp_path / "r", folds=3, epochs=1))
    assert result.documents == 12
    assert {folder.name for folder in (tmp_path / "r" / "seed-0").iterdir()} == {"fold-1", "fold-2", "fold-3"}
    with pytest.raises(ModelError, match="cross-fitted"):
        models_of(tmp_path / "r")


def test_chains_do_not_depend_on_the_batch(run: Path, tales: tuple[CorefDocument, ...]) -> None:
    model = load_model(run / "seed-0" / "model")
    long = CorefDocument("long", "\n".join(tale.text for tale in tales), ())
    (doc,) = tokenize_documents(model.tokenizer, [long])
    answers = [resolve_found(model, encode_document(model, doc, tokens=tokens)) for tokens in (1, 100, 10_000)]
    assert len(answers[0].spans) > 30
    for answer in answers[1:]:
        assert answer.spans == answers[0].spans
        assert answer.chains == answers[0].chains
        assert np.allclose(answer.probabilities[-1], answers[0].probabilities[-1], atol=1e-4)


@pytest.mark.journey
def test_the_threshold_is_the_best_for_the_chains_that_are_answered(tmp_path: Path) -> None:
    """In data without singletons, a mention that is found but not linked is dropped from the answer."""
    names = [
        "민수",
        "영희",
        "철수",
        "순이",
        "길동",
        "정아",
        "보람",
        "하늘",
        "가람",
        "나래",
        "다솜",
        "라온",
        "마루",
        "바다",
        "사랑",
        "아름",
        "자람",
        "차돌",
        "노을",
        "누리",
    ]

    def written(number: int) -> CorefDocument:
        draw = random.Random(number)
        known, rare = draw.sample(names[:6], 3), draw.sample(names[6:], 12)
        twice = [*known[:2], rare[0]]
        order = [*twice, *twice, known[2], *rare[1:]]
        draw.shuffle(order)
        text, mentions = "", []
        for name in order:
            if name in twice:
                mentions.append(Mention(len(text), len(text) + len(name), name))
            text += f"{name}는 {draw.choice(['갔다', '왔다', '웃었다', '울었다', '먹었다'])}. "
        return CorefDocument(f"d{number}", text.strip(), in_order(mentions))

    documents = [written(number) for number in range(40)]
    data, encoder = tmp_path / "d.jsonl", tmp_path / "encoder"
    write_documents(data, documents)
    tokenizer = train_tokenizer([document.text for document in documents] * 2, vocab_size=160)
    for part in (build_masked_lm("tiny", tokenizer, seq_len=128), tokenizer):
        part.save_pretrained(encoder)
    run = tmp_path / "run"
    train_coreference(recipe(data, encoder, run, epochs=20, holdout=0.3))
    model = load_model(run / "seed-0" / "model")
    names = json.loads((run / "split.json").read_text("utf-8"))["dev"]
    dev = [document for document in documents if document.id in names]
    encoded = [encode_document(model, doc, tokens=4096) for doc in tokenize_documents(model.tokenizer, dev)]

    def conll_at(threshold: float) -> float:
        answers = [resolve_found(model, document, threshold=threshold).as_spans() for document in encoded]
        return conll(sum_scores(score_document(document.chains, found) for document, found in zip(dev, answers, strict=True)))

    (scheme,) = model.settings.schemes
    assert not scheme.singletons
    assert conll_at(scheme.threshold) == pytest.approx(max(map(conll_at, _THRESHOLDS)))


@pytest.mark.journey
def test_a_span_is_found_once_where_tokens_share_a_character(
    tmp_path: Path, tales: tuple[CorefDocument, ...], tales_file: Path
) -> None:
    tokenizer = train_unigrams(["가나다 hello world"] * 3, vocab_size=300)  # other Hangul is spelt byte by byte
    encoder, run = tmp_path / "encoder", tmp_path / "run"
    for part in (build_masked_lm("tiny", tokenizer, seq_len=256), tokenizer):
        part.save_pretrained(encoder)
    train_coreference(recipe(tales_file, encoder, run, epochs=40, window=200, segment=200, batch_tokens=200))
    for tale in tales:
        resolved = coreference(tale.text, run, device="cpu")
        spans = [*chain.from_iterable(resolved.chains), *resolved.singles]
        assert spans
        assert len(spans) == len(set(spans))


def test_gold_mentions_are_all_in_the_chains_even_unreachable_ones(run: Path, tales: tuple[CorefDocument, ...]) -> None:
    model = load_model(run / "seed-0" / "model")
    (doc,) = tokenize_documents(model.tokenizer, tales[:1])
    answer = resolve_gold(model, encode_document(model, doc, tokens=1000))
    assert sorted(span for chain in answer.as_spans() for span in chain) == sorted(m.span for m in tales[0].mentions)


def test_evaluate_leaves_out_what_the_run_learned_from(run: Path, tales_file: Path) -> None:
    result = evaluate_coreference(run, str(tales_file))
    assert result.documents == 2
    assert result.notes[-1] == f"10 documents that {run} learned from were left out."


def test_evaluate_says_when_nothing_is_left(run: Path, tales_file: Path, split_file: Path) -> None:
    with pytest.raises(CoreferenceDataError, match="learned from all of them"):
        evaluate_coreference(run, str(tales_file), split=str(split_file), side="train")


def test_a_low_rank_run_reports_what_its_saved_model_answers(
    tmp_path: Path, tales_file: Path, encoder_folder: Path, split_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []

    def answer_documents(model: Any, documents: Any, **options: Any) -> Any:
        calls.append((model, documents))
        return plain(model, documents, **options)

    plain = train_module.answer_documents
    monkeypatch.setattr(train_module, "answer_documents", answer_documents)
    out = tmp_path / "r"
    reported = train_coreference(recipe(tales_file, encoder_folder, out, split=str(split_file), rank=4))
    ((model, documents),) = calls
    saved = load_model(out / "seed-0" / "model")
    for doc in tokenize_documents(saved.tokenizer, documents):
        answered, reloaded = (encode_document(each, doc) for each in (model, saved))
        assert np.array_equal(answered.logits, reloaded.logits)
        assert torch.equal(answered.inputs, reloaded.inputs)
    assert model.settings == saved.settings
    evaluated = evaluate_coreference(out, str(tales_file), split=str(split_file), device="cpu")
    assert evaluated.estimates == reported.estimates


def test_a_head_that_is_trained_further_names_the_encoder_where_it_lies_now(
    tmp_path: Path, tales_file: Path, encoder_folder: Path, split_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = shutil.copytree(encoder_folder, tmp_path / "before")
    options = {"split": str(split_file), "rank": 4, "epochs": 1}
    train_coreference(recipe(tales_file, original, tmp_path / "r", **options))
    moved = original.rename(tmp_path / "now")
    monkeypatch.chdir(tmp_path)
    further = recipe(tales_file, Path("now"), tmp_path / "further", start=str(tmp_path / "r"), split=str(split_file), epochs=1)
    train_coreference(further)
    assert load_model(tmp_path / "further" / "seed-0" / "model").settings.base == str(moved)


def test_a_head_of_another_encoder_is_refused(tmp_path: Path, tales_file: Path, encoder_folder: Path, split_file: Path) -> None:
    train_coreference(recipe(tales_file, encoder_folder, tmp_path / "r", split=str(split_file), rank=4, epochs=1))
    model = tmp_path / "r" / "seed-0" / "model"
    assert {path.name for path in model.iterdir()} == {"coreference.json", "head.safetensors", "learned_from.json"}
    load_model(model)
    with pytest.raises(ModelError, match="bundled:ko-mini has different weights; pass that encoder with --base"):
        load_model(model, base="bundled:ko-mini")


@pytest.mark.parametrize("size", [3, 10**15])
def test_a_head_of_another_size_than_its_settings_say_is_named(run: Path, tmp_path: Path, size: int) -> None:
    model = shutil.copytree(run / "seed-0" / "model", tmp_path / "model")
    write_json(model / "coreference.json", read_json(model / "coreference.json") | {"size": size})
    with pytest.raises(ModelError, match=r"head\.safetensors is damaged, or coreference\.json was edited"):
        load_model(model)


def test_an_encoder_that_would_not_be_read_is_refused(run: Path, tales_file: Path, encoder_folder: Path) -> None:
    with pytest.raises(ModelError, match=r"holds its whole encoder.*leave --base out"):
        evaluate_coreference(run, str(tales_file), base=str(encoder_folder))


def test_a_whole_head_is_trained_further_with_no_other_encoder(
    run: Path, tmp_path: Path, tales_file: Path, encoder_folder: Path, split_file: Path
) -> None:
    further = recipe(tales_file, encoder_folder, tmp_path / "further", start=str(run), split=str(split_file), epochs=1)
    with pytest.raises(ModelError, match=r"holds its whole encoder, and bundled:ko-mini would not be read; leave --model out"):
        train_coreference(replace(further, model="bundled:ko-mini"))
    assert not (tmp_path / "further").exists()
    moved = shutil.copytree(encoder_folder, tmp_path / "moved")
    assert train_coreference(replace(further, model=str(moved))).model == str(moved)


def test_an_encoder_without_offsets_is_refused_before_training(tmp_path: Path, tales_file: Path, encoder_folder: Path) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    for path in encoder_folder.iterdir():
        if not path.name.startswith("tokenizer"):
            (bare / path.name).write_bytes(path.read_bytes())
    with pytest.raises(ModelError, match="has no tokenizer"):
        train_coreference(recipe(tales_file, bare, tmp_path / "r"))


def test_splits_are_disjoint_and_of_these_documents(tmp_path: Path, tales: tuple[CorefDocument, ...]) -> None:
    split = named_split("koconovel")
    assert [len(split.train), len(split.dev), len(split.test)] == [28, 4, 8]
    assert len({*split.train, *split.dev, *split.test}) == 40
    parts = folds(tales, 5)
    assert sorted(name for part in parts for name in part.test) == sorted(tale.id for tale in tales)
    assert all(not set(part.train) & set(part.test) for part in parts)
    twice = tmp_path / "split.json"
    twice.write_text(json.dumps({"train": ["a"], "dev": ["a"], "test": []}), "utf-8")
    with pytest.raises(CoreferenceDataError, match="on two sides"):
        named_split(str(twice))


def test_copies_of_a_text_and_parts_of_one_origin_are_in_one_fold(tales: tuple[CorefDocument, ...]) -> None:
    copies = [replace(tale, id=f"copy-{tale.id}", text=tale.text + "\n") for tale in tales[:4]]
    parts = [replace(tale, origin=f"book-{number % 2}") for number, tale in enumerate(tales[4:])]
    split = folds([*tales[:4], *copies, *parts], 3)
    assert sorted(name for part in split for name in part.test) == sorted(tale.id for tale in (*tales, *copies))
    fold_of = {name: number for number, part in enumerate(split) for name in part.test}
    assert all(fold_of[copy.id] == fold_of[tale.id] for copy, tale in zip(copies, tales, strict=False))
    assert len({(part.origin, fold_of[part.id]) for part in parts}) == 2
    assert all(part.test and not set(part.train) & set(part.test) for part in folds(parts, 2))
    with pytest.raises(CoreferenceDataError, match="8 documents of 2 different texts and origins cannot make 3 folds"):
        folds(parts, 3)


def test_a_split_of_other_data_is_refused(tmp_path: Path, tales_file: Path, encoder_folder: Path) -> None:
    with pytest.raises(CoreferenceDataError, match="which is not in the data"):
        train_coreference(recipe(tales_file, encoder_folder, tmp_path / "r", split="koconovel"))


def test_a_split_with_nothing_to_score_is_refused(
    tmp_path: Path, tales: tuple[CorefDocument, ...], tales_file: Path, encoder_folder: Path
) -> None:
    split = tmp_path / "split.json"
    split.write_text(json.dumps({"train": [tale.id for tale in tales]}), "utf-8")
    with pytest.raises(CoreferenceDataError, match="leaves no document to score; name some under test or dev"):
        train_coreference(recipe(tales_file, encoder_folder, tmp_path / "r", split=str(split)))
