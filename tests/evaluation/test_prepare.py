"""Preparing sets: held-out documents alone, the same bytes every time, nothing done twice, and clear words for wrong requests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from coref_automl.base.errors import EvalSetError, FolderError, RecipeError, SourceError
from coref_automl.base.korean import Tagger
from coref_automl.cli.app import run as command
from coref_automl.corpus.prepare import prepare
from coref_automl.corpus.recipe import PrepareRecipe
from coref_automl.evaluation.evalset import EvalSet
from coref_automl.evaluation.prepare import prepare_eval
from coref_automl.evaluation.recipe import EvalRecipe, lines
from coref_automl.evaluation.tasks import TASKS
from tests.corpus.held import held_out
from tests.evaluation.tiny import tokenizer_of

PLACES = ("서울", "부산", "대구", "인천", "광주", "대전", "울산", "세종", "수원", "청주")


def text_of(number: int) -> str:
    """Three mentions each of five nouns; no neighbour of a noun is beside the same noun in another text."""
    city, other = PLACES[number % 10], PLACES[(number + 3) % 10]
    sentences = [f"{city} 시장은 아침 일찍 집을 나섰다. {other} 사람은 책을 {number}쪽 읽었다."]
    for at, noun in enumerate(("도서관", "합창단", "기차", "양조장", "강변")):
        sentences.append(f"그해 {number + 3 * at}일쯤에 {noun}에서는 {number}{at}명쯤이 모여 놀았다.")
        sentences.append(f"그러다 {number + 3 * at + 40}일쯤까지 {noun}에는 {at}{number}개쯤이 쌓여 있었다.")
        sentences.append(f"이듬해 {number + 3 * at + 70}일쯤부터 {noun}에도 {number}{at}{at}대쯤은 다녔다.")
    return " ".join(sentences)


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
    return f"local:{path}"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("model")
    tokenizer_of("wordpiece").save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("texts")
    rows = [{"id": f"n{number}", "source": "news", "text": text_of(number), "title": "x"} for number in range(12)]
    return write(folder / "news.jsonl", rows)


def recipe(model: str, source: str, **changes: Any) -> EvalRecipe:
    return EvalRecipe(**{"models": (model,), "sources": (source,), **changes})


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_only_held_out_documents_are_used(model: str, source: str, tmp_path: Path) -> None:
    built = prepare_eval(recipe(model, source, least=4), tmp_path / "set")
    kept_out = held_out([f"n{number}" for number in range(12)], least=4)
    assert len(kept_out) == 4
    assert set(built.documents) <= kept_out
    assert set(built.items) == {"real", "new", "real-far"}
    assert built.manifest["documents"]["news"] == {"documents": 12, "held out": 4, "kept": 4}
    for items in built.items.values():
        assert items
        for item in items:
            assert built.documents[item.document][item.start : item.end] == item.answer


def test_a_source_in_several_files_holds_out_over_all_of_them(model: str, tmp_path: Path) -> None:
    rows = [{"id": f"n{number}", "source": "news", "text": text_of(number)} for number in range(12)]
    write(tmp_path / "a.jsonl", rows[:5])
    write(tmp_path / "b.jsonl", rows[5:])
    whole = write(tmp_path / "whole.txt.jsonl", rows)
    apart = (f"local:{tmp_path}/a.jsonl", f"local:{tmp_path}/b.jsonl")
    first = prepare_eval(recipe(model, whole, least=4), tmp_path / "one")
    two = prepare_eval(recipe(model, "", sources=apart, least=4), tmp_path / "two")
    assert first.documents == two.documents


def test_the_same_inputs_give_the_same_bytes_and_another_seed_gives_others(model: str, source: str, tmp_path: Path) -> None:
    prepare_eval(recipe(model, source, least=4), tmp_path / "one")
    prepare_eval(recipe(model, source, least=4), tmp_path / "two")
    assert files_of(tmp_path / "one") == files_of(tmp_path / "two")
    other = prepare_eval(recipe(model, source, least=4, seed=1), tmp_path / "three")
    assert other.fingerprint != EvalSet.open(tmp_path / "one").fingerprint


def test_a_finished_set_is_not_built_again(model: str, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = recipe(model, source, least=4)
    before = prepare_eval(chosen, tmp_path / "set")

    def refuse(*_: object) -> None:
        raise AssertionError("tagged again")

    monkeypatch.setattr(Tagger, "tag", refuse)
    monkeypatch.setattr(Tagger, "are_nouns", refuse)
    assert prepare_eval(chosen, tmp_path / "set").fingerprint == before.fingerprint


def test_a_set_that_was_not_finished_is_built_anew(model: str, source: str, tmp_path: Path) -> None:
    chosen = recipe(model, source, least=4)
    whole = prepare_eval(chosen, tmp_path / "set")
    before = files_of(tmp_path / "set")
    (tmp_path / "set" / "DONE").unlink()
    (tmp_path / "set" / "items-real.jsonl").write_text("half", "utf-8")
    assert prepare_eval(chosen, tmp_path / "set").fingerprint == whole.fingerprint
    assert files_of(tmp_path / "set") == before


def test_other_settings_do_not_overwrite_a_frozen_set(model: str, source: str, tmp_path: Path) -> None:
    prepare_eval(recipe(model, source, least=4), tmp_path / "set")
    with pytest.raises(FolderError, match="frozen; it was made with seed 0, and this command has seed 5"):
        prepare_eval(recipe(model, source, least=4, seed=5), tmp_path / "set")


def test_other_bytes_under_the_same_name_are_other_inputs(model: str, tmp_path: Path) -> None:
    rows = [{"id": f"n{number}", "text": text_of(number)} for number in range(4)]
    chosen = recipe(model, write(tmp_path / "news.jsonl", rows), all_documents=True)
    prepare_eval(chosen, tmp_path / "set")
    write(tmp_path / "news.jsonl", rows[:3])
    with pytest.raises(
        FolderError, match=r"is frozen; it was made with other bytes of the input news\.jsonl than this command has; choose"
    ):
        prepare_eval(chosen, tmp_path / "set")


def test_of_two_inputs_of_one_name_both_are_known_by_their_bytes(model: str, tmp_path: Path) -> None:
    for number, folder in enumerate(("first", "second")):
        (tmp_path / folder).mkdir()
        write(tmp_path / folder / "news.jsonl", [{"id": f"{folder}{n}", "text": text_of(10 * number + n)} for n in range(4)])
    sources = tuple(f"local:{tmp_path}/{folder}/news.jsonl" for folder in ("first", "second"))
    chosen = EvalRecipe(models=(model,), sources=sources, all_documents=True)
    prepare_eval(chosen, tmp_path / "set")
    write(tmp_path / "first" / "news.jsonl", [{"id": "other", "text": text_of(5)}])
    with pytest.raises(FolderError, match=r"bytes of the input news\.jsonl"):
        prepare_eval(chosen, tmp_path / "set")


def test_a_second_model_adds_its_noun_table_and_leaves_the_items(
    model: str, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = prepare_eval(recipe(model, source, least=4), tmp_path / "set")
    other = tmp_path / "other"
    tokenizer_of("bytes").save_pretrained(other)
    after = prepare_eval(EvalRecipe(models=(str(other),)), tmp_path / "set")
    assert after.fingerprint == before.fingerprint
    assert len(list((tmp_path / "set").glob("nouns-*.npy"))) == 2


def test_all_tasks_live_in_one_set(model: str, source: str, tmp_path: Path) -> None:
    row = {"index": 1, "text": "사람은 강을 보았다. 강가의 사람은 _을 불렀다.", "answer": "노래", "title": "책"}
    cloze = write(tmp_path / "cloze.jsonl", [row, {**row, "index": 2, "text": "빈칸이 없다."}])
    chosen = recipe(model, source, all_documents=True, tasks=tuple(TASKS), lambada=(cloze,))
    built = prepare_eval(chosen, tmp_path / "set")
    assert {task: bool(items) for task, items in built.items.items()} == dict.fromkeys(chosen.tasks, True)
    assert built.manifest["tasks"]["lambada"]["drops"] == {"no blank": 1}
    ids = [item.id for items in built.items.values() for item in items]
    assert len(ids) == len(set(ids))
    shown = "\n".join(lines(built.manifest))
    assert "lambada: 1 items of 1 documents" in shown
    assert "no blank 1" in shown


def test_a_set_keeps_the_nouns_of_its_documents(model: str, source: str, tmp_path: Path) -> None:
    built = prepare_eval(recipe(model, source, least=4), tmp_path / "set")
    assert set(built.nouns) == set(built.documents)
    for item in (item for items in built.items.values() for item in items):
        assert item.answer in built.nouns[item.document]


def test_a_set_without_an_answer_of_one_token_is_refused_with_the_share(model: str, tmp_path: Path) -> None:
    source = write(tmp_path / "news.jsonl", [{"id": "a", "text": "천문대는 높다. 천문대에는 별이 뜬다."}])
    with pytest.raises(EvalSetError, match=r"\(0%\) is one token of .* --task real-choice"):
        prepare_eval(recipe(model, source, all_documents=True, tasks=("real",)), tmp_path / "set")
    assert prepare_eval(recipe(model, source, all_documents=True, tasks=("real", "real-choice")), tmp_path / "set").items


def test_limits_take_a_first_item_of_every_document_before_a_second_of_any(model: str, source: str, tmp_path: Path) -> None:
    built = prepare_eval(recipe(model, source, all_documents=True, per_source=14, per_bucket=13), tmp_path / "set")
    real = [item.document for item in built.items["real"]]
    assert len(real) == 14
    assert len(set(real)) == 12
    assert len({item.document for item in built.items["real-far"]}) == 12
    assert built.manifest["tasks"]["real"]["drops"]["the limit of its source"] > 0


def test_repeated_ids_and_texts_are_counted(model: str, tmp_path: Path) -> None:
    rows = [
        {"id": "a", "text": text_of(1)},
        {"id": "a", "text": text_of(2)},
        {"id": "b", "text": text_of(1)},
        {"id": "c", "text": ""},
    ]
    built = prepare_eval(recipe(model, write(tmp_path / "news.jsonl", rows), all_documents=True), tmp_path / "set")
    counts = built.manifest["documents"]["news"]
    assert counts == {
        "documents": 4,
        "kept": 1,
        "the id of an earlier document": 1,
        "the text of an earlier document": 1,
        "empty after cleaning": 1,
    }


def test_rows_that_are_no_documents_are_counted_by_reason(model: str, tmp_path: Path) -> None:
    source = write(tmp_path / "news.jsonl", [{"id": "a", "text": text_of(1)}, {"id": "b", "body": "x"}])
    path = Path(source.removeprefix("local:"))
    path.write_bytes(path.read_bytes() + b"{broken\n" + b'{"text": "\xff"}\n')
    built = prepare_eval(recipe(model, source, all_documents=True), tmp_path / "set")
    counts = built.manifest["documents"]["news"]
    assert counts == {"documents": 4, "kept": 1, "no field 'text'": 1, "not JSON": 1, "not UTF-8": 1}


def test_a_document_that_holds_a_literal_mask_keeps_its_offsets(model: str, tmp_path: Path) -> None:
    text = "빈칸은 [MASK] 이다. " + text_of(1)
    source = write(tmp_path / "news.jsonl", [{"id": "a", "text": text}])
    built = prepare_eval(recipe(model, source, all_documents=True), tmp_path / "set")
    assert built.documents == {"a": text}


def test_a_limit_holds_out_among_the_rows_that_are_read(model: str, source: str, tmp_path: Path) -> None:
    built = prepare_eval(recipe(model, source, least=2, limit=6), tmp_path / "set")
    assert set(built.documents) <= held_out([f"n{number}" for number in range(6)], least=2)
    assert built.manifest["documents"]["news"]["documents"] == 6


def passages(path: Path, first: int, count: int = 6) -> str:
    path.parent.mkdir(exist_ok=True)
    texts = [f"{PLACES[first + number]} 사람은 강을 보았다. 강가의 사람은 _을 불렀다." for number in range(count)]
    return write(path, [{"text": text, "answer": "기차"} for text in texts])


def test_two_annotated_files_of_one_name_are_both_used(model: str, tmp_path: Path) -> None:
    names = [passages(tmp_path / folder / "test.jsonl", first, 5) for folder, first in (("a", 0), ("b", 5))]
    words = ["prepare", "eval", "--model", model, "--task", "lambada"]
    for out, given in (("one", names[:1]), ("two", names)):
        files = [word for name in given for word in ("--lambada", name)]
        assert command([*words, *files, "--out", str(tmp_path / out)]) == 0
    first, two = EvalSet.open(tmp_path / "one"), EvalSet.open(tmp_path / "two")
    assert len(two.documents) == 2 * len(first.documents)
    assert len(two.items["lambada"]) == 2 * len(first.items["lambada"])
    assert list(two.documents)[: len(first.documents)] == list(first.documents)
    assert [name.rpartition("-")[0] for name in first.documents] == ["test"] * len(first.documents)
    assert list(two.manifest["documents"]) == ["test", "test (2)"]
    assert two.manifest["documents"]["test (2)"] == two.manifest["documents"]["test"] == first.manifest["documents"]["test"]


def test_a_file_given_twice_adds_nothing(model: str, tmp_path: Path) -> None:
    source = passages(tmp_path / "a" / "test.jsonl", 0)
    once = prepare_eval(EvalRecipe(models=(model,), tasks=("lambada",), lambada=(source,)), tmp_path / "once")
    twice = prepare_eval(EvalRecipe(models=(model,), tasks=("lambada",), lambada=(source, source)), tmp_path / "twice")
    assert twice.fingerprint == once.fingerprint
    assert twice.manifest["tasks"]["lambada"]["drops"] == {"repeats an earlier item": 6}


def test_a_file_and_a_source_may_share_a_name(model: str, tmp_path: Path) -> None:
    cloze = passages(tmp_path / "a" / "test.jsonl", 0)
    (tmp_path / "c").mkdir()
    source = write(tmp_path / "c" / "test.jsonl", [{"id": f"n{number}", "text": text_of(number)} for number in range(3)])
    built = prepare_eval(recipe(model, source, all_documents=True, lambada=(cloze,)), tmp_path / "set")
    assert len(built.items["lambada"]) == 6
    assert built.manifest["documents"]["test"] == {"documents": 3, "kept": 9, "rows": 6}


def test_text_is_normalised_before_offsets_are_taken(model: str, tmp_path: Path) -> None:
    import unicodedata

    raw = unicodedata.normalize("NFD", text_of(1)).replace(" ", "\u00a0  ")
    source = write(tmp_path / "news.jsonl", [{"id": "a", "text": raw}])
    built = prepare_eval(recipe(model, source, all_documents=True), tmp_path / "set")
    assert built.documents == {"a": text_of(1)}


def test_the_manifest_names_the_reference_and_no_folder_of_this_machine(model: str, source: str, tmp_path: Path) -> None:
    built = prepare_eval(recipe(model, source, least=4), tmp_path / "set")
    manifest = (tmp_path / "set" / "manifest.json").read_text("utf-8")
    assert built.manifest["reference"]["model"] == Path(model).name
    assert str(tmp_path) not in manifest
    assert source.removeprefix("local:") not in manifest


def test_no_items_is_an_error_that_gives_the_reasons(model: str, tmp_path: Path) -> None:
    source = write(tmp_path / "news.jsonl", [{"id": "a", "text": "짧다."}])
    with pytest.raises(EvalSetError, match="No real item in these inputs"):
        prepare_eval(recipe(model, source, all_documents=True), tmp_path / "set")
    assert not (tmp_path / "set" / "DONE").exists()


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"tasks": ("reel",)}, "Did you mean 'real'"),
     ({"tasks": ("real", "lambada")}, "--lambada"),
     ({"models": ()}, "--model"), ({"holdout": 0.8}, "holdout should be"), ({"per_bucket": 0}, "per_bucket should be 1")],
)  # fmt: skip
def test_a_wrong_request_is_refused_before_any_work(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(RecipeError, match=words):
        recipe("model", "local:texts", **changes)


def test_a_source_that_is_not_there_is_named(model: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="matches no readable file"):
        prepare_eval(recipe(model, f"local:{tmp_path}/none.jsonl"), tmp_path / "set")
    assert not (tmp_path / "set").exists()


def test_two_sources_that_count_from_one_both_keep_their_held_out_documents(model: str, tmp_path: Path) -> None:
    sources = [
        write(tmp_path / f"{name}.jsonl", [{"id": str(number), "text": text_of(first + number)} for number in range(8)])
        for name, first in (("court", 0), ("news", 50))
    ]
    chosen = EvalRecipe(models=(model,), sources=tuple(sources), tasks=("real",), least=2, holdout=0.3)
    built = prepare_eval(chosen, tmp_path / "set")
    kept = {name: counts["kept"] for name, counts in built.manifest["documents"].items()}
    assert kept["court"] == kept["news"] > 0
    assert len(built.documents) == 2 * kept["news"]
    assert {name.split("/")[0] for name in built.documents if "/" in name} == {"news"}
    training = PrepareRecipe(
        mode="mlm", sources=tuple(sources), model=model, seq_len=64, workers=1, holdout=0.0, eval_sets=(str(tmp_path / "set"),)
    )
    manifest = prepare(training, tmp_path / "data")
    left = {entry["name"]: entry["dropped"].get("in an evaluation set", 0) for entry in manifest["sources"]}
    assert left == kept
