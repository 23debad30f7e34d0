from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from coref_automl.base.errors import CoreferenceDataError
from coref_automl.cli.app import run as command
from coref_automl.extras.coreference.data import inspect_coref, read_coref
from coref_automl.extras.coreference.documents import CorefDocument, Mention, write_documents

TEXT = "민수는 노인을 만났다. 그는 웃었다."


def row(**changes: Any) -> dict[str, Any]:
    clusters = [
        [{"start": 0, "end": 2, "entity": "A"}, {"start": 13, "end": 14, "entity": "A"}],
        [{"start": 4, "end": 6, "entity": "B"}],
    ]
    return {"doc_id": "one", "text": TEXT, "clusters": clusters, **changes}


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(each, ensure_ascii=False) + "\n" for each in rows), "utf-8")
    return path


def test_chunks_of_a_novel_are_joined_and_share_their_entities(tmp_path: Path) -> None:
    second = row(doc_id="two", novel="n", clusters=[[{"start": 0, "end": 2, "text": "민수", "entity": "A"}]])
    data = read_coref(write(tmp_path / "a.jsonl", row(novel="n"), second))
    (document,) = data.documents
    assert document.text == TEXT + "\n" + TEXT
    assert document.chains == (((0, 2), (13, 14), (len(TEXT) + 1, len(TEXT) + 3)), ((4, 6),))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"clusters": [[{"start": 0, "end": 99, "entity": "A"}]]}, "lies outside the text of 20 characters"),
        ({"clusters": [[{"start": 3, "end": 3, "entity": "A"}]]}, "lies outside"),
        (
            {"clusters": [[{"start": 0, "end": 2, "text": "영희", "entity": "A"}]]},
            "1 of 1 mentions do not match the text",
        ),
        ({"clusters": [[{"start": 0, "end": 2}], [{"start": 0, "end": 2}]]}, "is in clusters 1 and 2"),
        (
            {"clusters": [[{"start": 0, "end": 2, "entity": "A"}], [{"start": 4, "end": 6, "entity": "A"}]]},
            "'A' has clusters 1 and 2",
        ),
        (
            {"clusters": [[{"start": 0, "end": 2, "entity": "A"}, {"start": 4, "end": 6, "entity": "B"}]]},
            "mixes the entities A, B",
        ),
        ({"clusters": [[{"start": 0}]]}, "without start and end"),
        ({"clusters": [[{"start": 0, "end": 2.5}]]}, "not a whole number"),
        ({"text": None}, "a row needs doc_id, text and clusters"),
    ],
)
def test_a_bad_row_is_named_with_its_reason_and_nothing_else_is_lost(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    path = write(tmp_path / "a.jsonl", row(doc_id="good"), row(**changes))
    with pytest.raises(CoreferenceDataError, match=r"row 2 .*--skip-bad"):
        read_coref(path)
    data = read_coref(path, skip_bad=True)
    assert [document.id for document in data.documents] == ["good"]
    assert reason in str(data.problems[0])


def test_of_two_rows_with_one_id_and_text_the_annotated_one_stays(tmp_path: Path) -> None:
    data = inspect_coref(write(tmp_path / "a.jsonl", row(clusters=[]), row()))
    assert data.mentions == 3
    assert str(data.problems[0]) == "row 1 (one): duplicate id of row 2"


def test_a_mention_that_stands_twice_in_its_cluster_counts_once_and_is_noted(tmp_path: Path) -> None:
    twice = [[{"start": 0, "end": 2, "entity": "A"}] * 2]
    data = read_coref(write(tmp_path / "a.jsonl", row(clusters=twice)))
    assert data.mentions == 1
    assert data.notes == ("1 mentions repeated in their cluster, counted once",)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.txt", "x", "is not a .jsonl, .conll or .conllu file"),
        ("a.jsonl", "{", "not JSON"),
        ("a.jsonl", json.dumps(row(clusters=[])) + "\n", "has no mentions"),
        ("a.conll", "#begin document (a);\na 0 0 x (1\n#end document\n", "the bracket of 1 does not close"),
        ("a.conll", "#begin document (a);\na 0 0 x 1)\n#end document\n", "closes 1, which is not open"),
        ("a.conll", "#begin document (a);\na 0 0 x -\n", "the file was cut off"),
        ("a.conll", "#begin document (a);\nx (1)\n#end document\n", "the word should be the fourth"),
        ("a.conllu", "1\tx\n", "2 columns instead of 10"),
        ("a.conllu", "x\tx\t_\t_\t_\t_\t0\t_\t_\t_\n", "the id 'x' is not a number"),
        ("a.conllu", "1\tx\t_\t_\t_\t_\t0\t_\t_\tEntity=(e1\n", "the bracket of e1 does not close"),
    ],
)
def test_a_file_that_cannot_be_used_says_why_in_one_sentence(tmp_path: Path, name: str, content: str, reason: str) -> None:
    (tmp_path / name).write_text(content, "utf-8")
    with pytest.raises(CoreferenceDataError) as raised:
        read_coref(tmp_path / name)
    assert reason in str(raised.value)


def test_a_file_without_a_usable_row_is_explored_to_its_problems_and_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong, out = write(tmp_path / "wrong.jsonl", {"text": "글"}), tmp_path / "out.jsonl"
    assert command(["coref", "explore", str(wrong), "--write", str(out)]) == 2
    shown = capsys.readouterr()
    assert "problem: row 1" in shown.out
    assert "Convention" not in shown.out
    assert str(wrong) in shown.err
    assert not out.exists()
    bare = write(tmp_path / "bare.jsonl", row(clusters=[]))
    assert command(["coref", "explore", str(bare)]) == 0
    assert "Convention" not in capsys.readouterr().out


def test_a_document_without_mentions_is_kept_beside_others(tmp_path: Path) -> None:
    data = read_coref(write(tmp_path / "a.jsonl", row(), row(doc_id="bare", clusters=[])))
    assert [len(document.mentions) for document in data.documents] == [3, 0]


def test_what_is_written_reads_back_with_text_and_chains(tmp_path: Path, tales: tuple[CorefDocument, ...]) -> None:
    nested = CorefDocument("nested", "그의 어머니가 왔다", (Mention(0, 7, "b", "noun"), Mention(0, 1, "a", "pronoun")))
    write_documents(tmp_path / "a.jsonl", [*tales, nested])
    back = read_coref(tmp_path / "a.jsonl").documents
    assert [(d.id, d.text, d.chains) for d in back] == [(d.id, d.text, d.chains) for d in (*tales, nested)]


def test_conll_2012_is_read_with_mentions_that_cross_and_parts(tmp_path: Path) -> None:
    words = ["0\tA\t(0", "1\tB\t0)|(1", "2\tC\t1)", "", "0\tG\t(0)"]
    lines = ["#begin document (a/b); part 007", *(word and f"a/b\t7\t{word}" for word in words), "", "#end document", ""]
    (tmp_path / "a.conll").write_text("\n".join(lines), "utf-8")
    (document,) = read_coref(tmp_path / "a.conll").documents
    forms = [[document.text[a:b] for a, b in chain] for chain in document.chains]
    assert (document.id, document.text, forms) == ("a/b part 007", "A B C\nG", [["A B", "G"], ["B C"]])
    assert command(["coref", "explore", str(tmp_path / "a.conll"), "--write", str(tmp_path / "b.jsonl")]) == 0
    assert read_coref(tmp_path / "b.jsonl").documents == (document,)
    assert command(["coref", "explore", str(tmp_path / "a.conll"), "--write", str(tmp_path / "b.conll")]) == 2


def test_conll_2012_comments_are_left_out(tmp_path: Path) -> None:
    lines = ["#begin document (a); part 000", "# a comment of many words", "a 0 0 the X (1)", "#end document", ""]
    (tmp_path / "a.conll").write_text("\n".join(lines), "utf-8")
    (document,) = read_coref(tmp_path / "a.conll").documents
    assert (document.id, document.text) == ("a part 000", "the")


def test_conll_2012_nested_brackets_and_parts_are_read(tmp_path: Path) -> None:
    lines = ["#begin document (a/b); part 000", "a 0 0 the X (1|(2)", "a 0 1 man X 1)", "", "a 0 0 he X (1)", "#end document"]
    lines[1], lines[2] = "a 0 0 the X (1|(2)", "a 0 1 man X 1)"
    lines += ["#begin document (a/b); part 001", "a 1 0 he X (1)", "#end document"]
    (tmp_path / "a.conll").write_text("\n".join(lines), "utf-8")
    first, second = read_coref(tmp_path / "a.conll").documents
    assert first.text == "the man\nhe"
    assert first.chains == (((0, 7), (8, 10)), ((0, 3),))
    assert second.id == "a/b part 001"


COREFUD = """# newdoc id = d
1\t민수\t_\tPROPN\t_\t_\t0\t_\t_\tEntity=(e1-person-1)|SpaceAfter=No
2\t는\t_\tADP\t_\t_\t0\t_\t_\t_
3\t큰\t_\tADJ\t_\t_\t0\t_\t_\tEntity=(e2[1/2]--1
4\t붉은\t_\tADJ\t_\t_\t0\t_\t_\tEntity=e2[1/2])
5\t옛\t_\tADJ\t_\t_\t0\t_\t_\t_
6\t책\t_\tNOUN\t_\t_\t0\t_\t_\tEntity=(e2[2/2]--1)
6.1\t_\t_\tPRON\t_\t_\t_\t_\t_\tEntity=(e1--1)

1\t그\t_\tPRON\t_\t_\t0\t_\t_\tEntity=(e1--1)
"""


def test_corefud_zeros_are_left_out_and_of_a_mention_in_parts_the_longest_stays(tmp_path: Path) -> None:
    (tmp_path / "a.conllu").write_text(COREFUD, "utf-8")
    (document,) = read_coref(tmp_path / "a.conllu").documents
    assert document.text == "민수는 큰 붉은 옛 책\n그"
    assert [document.text[m.start : m.end] for m in document.mentions] == ["민수", "큰 붉은", "그"]
    assert [mention.kind for mention in document.mentions] == ["name", "", "pronoun"]


def test_a_contracted_word_begins_where_it_was_written(tmp_path: Path) -> None:
    rows = [
        ("1", "parle", "_"),
        ("2", "(", "SpaceAfter=No"),
        ("3-4", "du", "_"),
        ("3", "de", "_"),
        ("4", "le", "Entity=(e1-x-2"),
        ("5", "chat", "Entity=e1)"),
        ("6", "Le", "Entity=(e1-x-1)"),
    ]
    lines = ["# newdoc id = a", *("\t".join([index, form, *"_____0_"[:7], misc]) for index, form, misc in rows), "", ""]
    path = tmp_path / "a.conllu"
    path.write_text("\n".join(lines), "utf-8")
    (document,) = read_coref(path).documents
    assert [document.text[mention.start : mention.end] for mention in document.mentions] == ["du chat", "Le"]


def corefud(*rows: tuple[str, str, str, str]) -> str:
    """Lines of CoNLL-U from (id, form, tag, misc)."""
    return "".join(f"{index}\t{form}\t_\t{tag}\t_\t_\t0\t_\t_\t{misc}\n" for index, form, tag, misc in rows)


def read_corefud(path: Path, text: str) -> list[list[tuple[str, str]]]:
    """The mentions of each document of a text in CorefUD, with their kinds."""
    path.write_text(text, "utf-8")
    documents = read_coref(path, skip_bad=True).documents
    return [[(document.text[m.start : m.end], m.kind) for m in document.mentions] for document in documents]


def test_a_mention_that_begins_or_ends_with_a_zero_has_the_words_beside_it(tmp_path: Path) -> None:
    behind = [("1.1", "_", "PRON", "Entity=(e1--2"), ("2", "친구", "NOUN", "_"), ("3", "들", "NOUN", "Entity=e1)")]
    before = [("4", "그", "PRON", "Entity=(e1--1"), ("4.1", "_", "PRON", "Entity=e1)"), ("5", "는", "ADP", "_")]
    alone = [("5.1", "_", "PRON", "Entity=(e1--1"), ("5.2", "_", "PRON", "Entity=e1)")]
    text = corefud(("1", "온", "VERB", "_"), *behind, *before, *alone)
    assert read_corefud(tmp_path / "a.conllu", text) == [[("친구 들", "noun"), ("그", "pronoun")]]


def test_the_parts_of_a_mention_are_read_together(tmp_path: Path) -> None:
    def parts(*forms: tuple[str, str, str], entity: str = "e1", head: int = 1) -> list[tuple[str, str, str, str]]:
        rows = []
        for number, (index, form, tag) in enumerate(forms, 1):
            rows.append((index, form, tag, f"Entity=({entity}[{number}/{len(forms)}]--{head})"))
            rows.append((f"{int(float(index)) + 1}", "또", "ADV", "_"))
        return rows

    # a last part that is a zero; then another mention of the entity, whose parts are its own; its head is in the second part
    zero = parts(("1", "새빨간", "ADJ"), ("3.1", "_", "NOUN"))
    second = parts(("5", "큰", "ADJ"), ("7", "책", "NOUN"), head=2)
    assert read_corefud(tmp_path / "a.conllu", corefud(*zero, *second)) == [[("새빨간", ""), ("큰", "noun")]]
    # one in the gap of another
    outer, inner = parts(("1", "가나", "NOUN"), ("9", "다", "NOUN")), parts(("3", "라마바", "NOUN"), ("5", "사", "NOUN"))
    nested = corefud(*outer[:2], *inner, *outer[2:])
    assert read_corefud(tmp_path / "b.conllu", nested) == [[("가나", "noun"), ("라마바", "noun")]]
    # a part whose next one is missing
    assert read_corefud(tmp_path / "c.conllu", corefud(*zero[:2], *second)) == [[("새빨간", ""), ("큰", "noun")]]


def test_a_document_is_read_as_if_none_came_before_it(tmp_path: Path) -> None:
    bad = corefud(("1-3", "du", "_", "_"), ("1", "de", "ADP", "_"), ("2", "le", "DET", "Entity=e9)"), ("3", "x", "X", "_"))
    good = corefud(("1", "민수", "PROPN", "Entity=(e1--1)"), ("2", "그", "PRON", "Entity=(e1--1)"))
    read = read_corefud(tmp_path / "a.conllu", f"# newdoc id = a\n{bad}\n# newdoc id = b\n{good}\n")
    assert read == [[("민수", "name"), ("그", "pronoun")]]


def test_null_is_nothing_and_half_a_character_is_told(tmp_path: Path) -> None:
    mention = {"start": 0, "end": 2, "entity": None, "kind": None}
    row = {"doc_id": None, "text": "민수는 왔다. 영희는 갔다.", "clusters": [[mention], [{**mention, "start": 8, "end": 10}]]}
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(row) + "\n", "utf-8")
    (document,) = read_coref(path).documents
    assert [(mention.entity, mention.kind) for mention in document.mentions] == [("1#1", ""), ("1#2", "")]
    path.write_text(json.dumps({**row, "text": "\ud83d" + row["text"]}) + "\n", "utf-8")
    with pytest.raises(CoreferenceDataError, match="half of a surrogate pair"):
        read_coref(path)
