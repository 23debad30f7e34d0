"""The whole line: what is in the files comes out in the blocks, and what must not train does not."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coref_automl.base.errors import EvalSetError, FolderError, RecipeError, SourceError, WorkError
from coref_automl.base.progress import Progress, read_events
from coref_automl.corpus.dataset import PackedDataset
from coref_automl.corpus.prepare import prepare
from coref_automl.corpus.recipe import PrepareRecipe
from tests.corpus.conftest import WriteRows, korean_text, rows
from tests.corpus.held import held_out


def recipe(folder: Path, *sources: Path, mode: Any = "mlm", **changes: Any) -> PrepareRecipe:
    names = tuple(f"local:{source}" for source in sources)
    return PrepareRecipe(**{"mode": mode, "sources": names, "model": str(folder), "seq_len": 64, "workers": 1, **changes})


def names(out: Path) -> list[str]:
    return [json.loads(line)["id"] for line in (out / "documents.jsonl").read_text("utf-8").splitlines()]


def files(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}


def test_every_token_of_every_document_is_in_the_blocks_in_order(
    tokenizer_folder: Path, write_rows: WriteRows, tmp_path: Path
) -> None:
    from coref_automl.corpus.clean import normalise
    from coref_automl.models.load import load_tokenizer
    from coref_automl.models.vocabulary import tokenize

    path = write_rows("a.jsonl", rows(12))
    prepare(recipe(tokenizer_folder, path, holdout=0.0), tmp_path / "out")
    dataset = PackedDataset.open(tmp_path / "out")
    tokenizer = load_tokenizer(str(tokenizer_folder))
    tokens: dict[int, list[int]] = {}
    order = np.lexsort((dataset.pieces[:, 1], dataset.pieces[:, 0]))
    for block, start, length, document in dataset.pieces[order]:
        ids = dataset.tokens[block, start : start + length].tolist()
        assert (ids[0], ids[-1]) == (tokenizer.cls_token_id, tokenizer.sep_token_id)
        tokens.setdefault(int(document), []).extend(ids[1:-1])
    for number, identity in enumerate(names(tmp_path / "out")):
        text = normalise(korean_text(int(identity[1:])))
        assert tokens[number] == tokenize(tokenizer, text).ids.tolist()


def test_the_bar_of_the_long_stages_ends_full_where_documents_are_left_out(
    tokenizer_folder: Path, write_rows: WriteRows, tmp_path: Path
) -> None:
    """A document that was dropped is not encoded; of how long those were the bar knows the mean alone."""
    path, events = (
        write_rows("a.jsonl", [*rows(12), *({**row, "id": f"copy {row['id']}"} for row in rows(12))]),
        tmp_path / "events",
    )
    prepare(recipe(tokenizer_folder, path, holdout=0.0), tmp_path / "out", progress=Progress(shown=False, events=events))
    encoded = [event for event in read_events(events) if event.get("stage") == "encode"]
    assert encoded[0]["total"] == pytest.approx(encoded[-1]["done"], rel=0.1)


def test_pieces_of_a_document_stand_in_order_in_the_corpus(tokenizer_folder: Path, write_rows: WriteRows, tmp_path: Path) -> None:
    manifest = prepare(recipe(tokenizer_folder, write_rows("a.jsonl", rows(6)), holdout=0.0), tmp_path / "out")
    dataset = PackedDataset.open(tmp_path / "out")
    assert manifest["tokens"] == dataset.pieces[:, 2].sum()
    assert manifest["padding_share"] == pytest.approx(1 - dataset.pieces[:, 2].sum() / dataset.tokens.size)
    real = np.stack([dataset.row(index).segments > 0 for index in range(len(dataset))])
    assert (dataset.tokens[~real] == manifest["pad_id"]).all()


def test_mentions_cover_whole_words_and_chains_stay_within_a_piece(
    tokenizer_folder: Path, write_rows: WriteRows, tmp_path: Path
) -> None:
    from coref_automl.models.load import load_tokenizer

    prepare(recipe(tokenizer_folder, write_rows("a.jsonl", rows(8)), mode="combined", holdout=0.0), tmp_path / "out")
    dataset = PackedDataset.open(tmp_path / "out")
    tokenizer = load_tokenizer(str(tokenizer_folder))
    seen = set()
    for index in range(len(dataset)):
        row = dataset.row(index)
        chains: dict[int, list[tuple[str, int]]] = {}
        for start, end, chain in row.mentions:
            assert row.segments[start] == row.segments[end - 1] > 0
            form = "".join(tokenizer.convert_ids_to_tokens(row.tokens[start:end].tolist())).replace("##", "")
            chains.setdefault(int(chain), []).append((form, int(row.segments[start])))
        for members in chains.values():
            assert len(members) >= 2
            assert len(set(members)) == 1  # one form, one piece
        seen |= {form for members in chains.values() for form, _ in members}
    assert {"서울", "도서관"} & seen


def test_a_particle_after_a_mention_is_a_continuation(tokenizer_folder: Path, write_rows: WriteRows, tmp_path: Path) -> None:
    from coref_automl.models.load import load_tokenizer

    prepare(recipe(tokenizer_folder, write_rows("a.jsonl", rows(8)), mode="combined", holdout=0.0), tmp_path / "out")
    dataset = PackedDataset.open(tmp_path / "out")
    tokenizer = load_tokenizer(str(tokenizer_folder))
    after = [tokenizer.convert_ids_to_tokens(int(dataset.tokens[b, end])) for b, _, end, _ in dataset.mentions]
    assert sum(entry.startswith("##") for entry in after) > len(after) / 2


def test_entity_keeps_only_documents_with_a_chain(tokenizer_folder: Path, write_rows: WriteRows, tmp_path: Path) -> None:
    lone = {"id": "lone", "text": "하늘이 맑고 바람이 불었다. 우리는 그저 걷고 또 걸었다."}
    path = write_rows("a.jsonl", [*rows(3), lone])
    manifest = prepare(recipe(tokenizer_folder, path, mode="entity", holdout=0.0, min_characters=10), tmp_path / "entity")
    assert names(tmp_path / "entity") == ["d0", "d1", "d2"]
    assert manifest["sources"][0]["dropped"] == {"no noun chain": 1}
    prepare(recipe(tokenizer_folder, path, mode="combined", holdout=0.0, min_characters=10), tmp_path / "combined")
    assert names(tmp_path / "combined") == ["d0", "d1", "d2", "lone"]


def test_held_out_documents_and_their_copies_do_not_train(tokenizer_folder: Path, write_rows: WriteRows, tmp_path: Path) -> None:
    entries = rows(20)
    ids = held_out([row["id"] for row in entries])
    copied = next(row for row in entries if row["id"] in ids)
    near = {"id": "near", "source": "b", "text": copied["text"] + " 끝."}
    first = write_rows("a.jsonl", entries)
    second = write_rows("b.jsonl", [{**copied, "id": "copy", "source": "b"}, near, *rows(9, first=50, source="b")])
    manifest = prepare(recipe(tokenizer_folder, first, second), tmp_path / "out")
    trained = set(names(tmp_path / "out"))
    assert len(ids) == 6
    assert not trained & ids
    others = {"copy", "near", *(row["id"] for row in rows(9, first=50))}
    assert {"copy", "near"} & trained <= set()
    dropped = manifest["sources"][1]["dropped"]
    kept_apart = held_out(sorted(others))
    expected = {
        "repeats a held-out document": "copy" not in kept_apart,
        "nearly repeats a held-out document": "near" not in kept_apart,
    }
    assert {reason: reason in dropped for reason in expected} == expected


def test_documents_of_an_evaluation_set_go_by_id_text_and_near_text(
    tokenizer_folder: Path, write_rows: WriteRows, tmp_path: Path
) -> None:
    entries = rows(12, source="s", sentences=40)
    near = entries[2]["text"].split()
    near[7] = "딴말"
    folder = tmp_path / "evalset"
    folder.mkdir()
    (folder / "manifest.json").write_text('{"fingerprint": "f"}', "utf-8")
    quoted = "어떤 글이 있다. " + " ".join(entries[5]["text"].split()[:20])
    documents = [
        {"id": "d0", "source": "s", "text": "이름만 같은 글이다."},
        {"id": "x1", "source": "other", "text": entries[1]["text"]},
        {"id": "x2", "source": "other", "text": " ".join(near)},
        {"id": "x3", "source": "other", "text": quoted},
    ]
    (folder / "documents.jsonl").write_text("".join(json.dumps(d, ensure_ascii=False) + "\n" for d in documents), "utf-8")
    options = {"holdout": 0.0, "eval_sets": (str(folder),)}
    manifest = prepare(recipe(tokenizer_folder, write_rows("a.jsonl", entries), **options), tmp_path / "out")
    assert manifest["sources"][0]["dropped"] == {
        "in an evaluation set": 1,
        "nearly repeats an evaluation document": 1,
        "repeats an evaluation document": 1,
    }
    assert names(tmp_path / "out") == [f"d{number}" for number in range(3, 12)]
    assert manifest["overlap"]["documents_touched"] == 1
    assert {example["training_document"] for example in manifest["overlap"]["examples"]} == {"d5"}
    assert "d5" in (tmp_path / "out" / "card.md").read_text("utf-8")


def test_an_evaluation_set_without_documents_excludes_nothing(
    tokenizer_folder: Path, write_rows: WriteRows, tmp_path: Path
) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "manifest.json").write_text('{"fingerprint": "f"}', "utf-8")
    (tmp_path / "set" / "documents.jsonl").touch()
    wanted = recipe(tokenizer_folder, write_rows("a.jsonl", rows(4)), holdout=0.0, eval_sets=(str(tmp_path / "set"),))
    assert prepare(wanted, tmp_path / "out")["documents"] == 4


def test_duplicates_are_kept_once(tokenizer_folder: Path, write_rows: WriteRows, tmp_path: Path) -> None:
    entries = rows(5, sentences=40)
    near = {**entries[0], "id": "near", "text": entries[0]["text"].replace("제", "재", 1) + " 덧붙임."}
    path = write_rows("a.jsonl", [*entries, {**entries[1], "id": "copy"}, near])
    manifest = prepare(recipe(tokenizer_folder, path, holdout=0.0), tmp_path / "near")
    assert manifest["sources"][0]["dropped"] == {"exact duplicate": 1, "near duplicate": 1}
    manifest = prepare(recipe(tokenizer_folder, path, holdout=0.0, near_duplicates=False), tmp_path / "exact")
    assert manifest["sources"][0]["dropped"] == {"exact duplicate": 1}


@pytest.mark.journey
@pytest.mark.slow
def test_one_worker_and_two_give_the_same_bytes(tokenizer_folder: Path, write_rows: WriteRows, tmp_path: Path) -> None:
    sources = [write_rows(f"{name}.jsonl", rows(15, first=100 * n)) for n, name in enumerate("abc")]
    for workers in (1, 2):
        small = recipe(tokenizer_folder, *sources, mode="combined", workers=workers, portion=3000)
        prepare(small, tmp_path / str(workers))
    assert files(tmp_path / "1") == files(tmp_path / "2")


def test_the_size_of_a_portion_changes_no_byte(tokenizer_folder: Path, write_rows: WriteRows, tmp_path: Path) -> None:
    path = write_rows("a.jsonl", rows(15))
    for portion in (2_000, 4_000_000):
        prepare(recipe(tokenizer_folder, path, portion=portion), tmp_path / str(portion))
    assert files(tmp_path / "2000") == files(tmp_path / "4000000")


def test_a_source_that_gives_nothing_ends_the_command_and_is_named(
    tokenizer_folder: Path, write_rows: WriteRows, tmp_path: Path
) -> None:
    good = write_rows("good.jsonl", rows(6))
    short = write_rows("short.jsonl", [{"text": "짧다"}, {"text": "더 짧다"}])
    empty = write_rows("empty.jsonl", [])
    with pytest.raises(
        WorkError, match=r"empty \(an empty file\), short \(under 200 characters\).*prepare also takes --allow-empty"
    ):
        prepare(recipe(tokenizer_folder, good, short, empty), tmp_path / "out")
    manifest = prepare(recipe(tokenizer_folder, good, short, empty, allow_empty=True), tmp_path / "out")
    assert {source["name"]: source["kept"] for source in manifest["sources"]} == {"good": 4, "short": 0, "empty": 0}


def test_what_cannot_be_read_ends_the_command_before_any_work(
    tokenizer_folder: Path, write_rows: WriteRows, tmp_path: Path
) -> None:
    good, wrong = write_rows("good.jsonl", rows(6)), write_rows("wrong.jsonl", [{"body": "글"}])
    with pytest.raises(SourceError, match=r"no field 'text'(.|\n)*--allow-missing"):
        prepare(recipe(tokenizer_folder, good, wrong), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    manifest = prepare(recipe(tokenizer_folder, good, wrong, allow_missing=True), tmp_path / "out")
    assert len(manifest["missing"]) == 1
    assert "Could not be read" in (tmp_path / "out" / "card.md").read_text("utf-8")


def test_a_finished_dataset_is_returned_and_other_settings_are_refused(
    tokenizer_folder: Path, write_rows: WriteRows, tmp_path: Path
) -> None:
    path = write_rows("a.jsonl", rows(6))
    first = prepare(recipe(tokenizer_folder, path), tmp_path / "out")
    before = {p.name: p.stat().st_mtime_ns for p in (tmp_path / "out").iterdir()}
    assert prepare(recipe(tokenizer_folder, path, workers=2), tmp_path / "out") == first
    assert {p.name: p.stat().st_mtime_ns for p in (tmp_path / "out").iterdir()} == before
    with pytest.raises(FolderError, match="begun with seq_len 64, and this command has seq_len 128"):
        prepare(recipe(tokenizer_folder, path, seq_len=128), tmp_path / "out")


def test_the_card_states_sources_reasons_and_fingerprints(tokenizer_folder: Path, write_rows: WriteRows, tmp_path: Path) -> None:
    path = write_rows("a.jsonl", [*rows(6), {"text": "짧다"}])
    manifest = prepare(recipe(tokenizer_folder, path), tmp_path / "out")
    card = (tmp_path / "out" / "card.md").read_text("utf-8")
    for part in (manifest["fingerprint"], manifest["inputs"][0]["bytes"], "under 200 characters", "held out", "transformers"):
        assert part in card
    source = manifest["sources"][0]
    assert source["in"] == source["kept"] + sum(source["dropped"].values()) == 7


def test_the_card_claims_only_what_was_done(tokenizer_folder: Path, write_rows: WriteRows, tmp_path: Path) -> None:
    write_rows("documents.jsonl", [{"id": "e", "text": korean_text(90)}])
    (tmp_path / "manifest.json").write_text("{}", "utf-8")
    options = {"holdout": 0.0, "near_duplicates": False, "eval_sets": (str(tmp_path),)}
    prepare(recipe(tokenizer_folder, write_rows("a.jsonl", rows(6)), **options), tmp_path / "out")
    card = (tmp_path / "out" / "card.md").read_text("utf-8")
    assert "Held out of every source" not in card
    assert "near text" not in card


@pytest.mark.parametrize(
    "change", [{"seq_len": 4}, {"holdout": 0.9}, {"sources": ()}, {"similarity": 1.5}, {"similarity": 0.0}, {"chain_cap": 1}]
)
def test_impossible_settings_are_refused(tokenizer_folder: Path, change: dict[str, Any]) -> None:
    with pytest.raises(RecipeError, match=next(iter(change))):
        recipe(tokenizer_folder, Path("a.jsonl"), **change)


def test_an_evaluation_set_is_known_by_its_bytes(
    tokenizer_folder: Path, write_rows: WriteRows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in (("a/set", "가나다라 마바사."), ("b/set", "다른 글이다.")):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "manifest.json").write_text('{"fingerprint": "f"}', "utf-8")
        (tmp_path / name / "documents.jsonl").write_text(json.dumps({"id": "e", "text": text}) + "\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    wanted = recipe(tokenizer_folder, write_rows("a.jsonl", rows(6)), eval_sets=("a/set",))
    first = prepare(wanted, tmp_path / "out")
    Path("a").rename("c")
    assert prepare(dataclasses.replace(wanted, eval_sets=("c/set",)), tmp_path / "out") == first
    for other in (("b/set",), ("c/set", "b/set"), ()):
        with pytest.raises(FolderError, match="begun with eval_sets a/set, and this command has "):
            prepare(dataclasses.replace(wanted, eval_sets=other), tmp_path / "out")
    with pytest.raises(EvalSetError, match="a/set"):
        prepare(wanted, tmp_path / "out")
    with pytest.raises(EvalSetError, match="no/set"):
        prepare(dataclasses.replace(wanted, eval_sets=("no/set",)), tmp_path / "out")
