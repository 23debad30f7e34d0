"""The decoder accepts what was written and names the field, the expected type and the found value of everything else."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypedDict

import numpy as np
import pytest

from coref_automl.base.decoder import NOT_FINITE, DecodeError, decode, decode_stored, read_stored, read_stored_rows
from coref_automl.base.errors import EvalSetError, InputError
from coref_automl.base.guard import LARGEST, TooLarge


@dataclass(frozen=True)
class Part:
    name: str
    share: float = 1.0


@dataclass(frozen=True)
class Whole:
    kind: Literal["a", "b"]
    parts: tuple[Part, ...] = ()
    span: tuple[int, int] | None = None
    counts: dict[str, int] = field(default_factory=dict)
    loss: float = field(default=0.0, metadata=NOT_FINITE)
    done: bool = False


FINITE = "should be a finite number below 1.8e308"


class Open(TypedDict, total=False):
    count: int
    parts: list[Part]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"kind": "a", "parts": [{"name": "x"}, {"name": 3}]}, "f.json: parts[1].name should be text, not 3"),
        (
            {"kind": "a", "parts": [{"name": "x", "share": float("nan")}]},
            f"f.json: parts[0].share {FINITE}, not nan",
        ),
        ({"kind": "a", "parts": [{"name": "x", "share": "1"}]}, "f.json: parts[0].share should be a number, not '1'"),
        ({"kind": "a", "parts": {}}, "f.json: parts should be a list, not {}"),
        ({"kind": "a", "parts": [{"nam": "x"}]}, "f.json: parts[0]: unknown key 'nam'"),
        ({"kind": "a", "span": [1]}, "f.json: span should have 2 entries, not 1"),
        ({"kind": "a", "span": [1, 2**63]}, "f.json: span[1] should be between -2**63 and 2**63, not 9223372036854775808"),
        ({"kind": "a", "counts": {2: 1}}, "f.json: counts should have text as keys, not 2"),
        ({"kind": "a", "counts": {"x": 1.5}}, "f.json: counts.x should be a whole number, not 1.5"),
        ({"kind": "a", "done": 1}, "f.json: done should be true or false, not 1"),
        ({"kind": "c"}, "f.json: kind cannot be 'c'"),
        ({"kind": ["a"]}, "f.json: kind cannot be ['a']"),
        ({}, "f.json: the key 'kind' is missing"),
        ([], "f.json should be an object, not []"),
        ({"kind": "a", "loss": 10**400}, f"f.json: loss {FINITE}, not 1000"),
    ],
)
def test_an_error_names_the_field_what_is_expected_and_what_is_there(value: Any, said: str) -> None:
    with pytest.raises(EvalSetError) as caught:
        decode_stored(Whole, value, "f.json", error=EvalSetError, remedy="make it again")
    assert str(caught.value).startswith(said)
    assert str(caught.value).endswith("; make it again.")


def test_what_was_written_comes_back() -> None:
    whole = Whole("b", (Part("x", 2),), (1, 2), {"a": 1}, float("inf"), True)
    written = {
        "kind": "b", "parts": [{"name": "x", "share": 2}], "span": [1, 2], "counts": {"a": 1}, "loss": float("inf"), "done": True,
    }  # fmt: skip
    assert decode(Whole, json.loads(json.dumps(written))) == whole


def test_a_typed_dict_keeps_what_it_does_not_name() -> None:
    assert decode(Open, {"count": 1, "colour": "red"}) == {"count": 1, "colour": "red"}
    with pytest.raises(DecodeError):
        decode(Open, {"count": "1"})


def test_a_recipe_is_read_leniently() -> None:
    assert decode(Part, {"name": "x", "share": "5e-5"}, lenient=True) == Part("x", 5e-5)
    assert decode(Part, {"name": "x", "share": np.float32(0.5)}, lenient=True) == Part("x", 0.5)


@pytest.mark.parametrize("lenient", [False, True])
def test_numbers_have_the_same_range_in_records_and_recipes(lenient: bool) -> None:
    assert decode(float, 2**70, lenient=lenient) == 2**70
    for number in (2**63, -(2**63), 10**400):
        with pytest.raises(DecodeError, match=r"should be between -2\*\*63 and 2\*\*63, not"):
            decode(int, number, lenient=lenient)
    for number in (float("inf"), float("nan"), 10**400):
        with pytest.raises(DecodeError, match=r"should be a finite number below 1\.8e308, not"):
            decode(float, number, lenient=lenient)


def test_a_key_that_yaml_read_as_something_else_is_named_with_what_to_do() -> None:
    for key in (2024, True, None):
        with pytest.raises(DecodeError) as caught:
            decode(Whole, {"kind": "a", "counts": {key: 1}}, lenient=True)
        assert caught.value.at("r.yaml") == f"r.yaml: counts should have text as keys, not {key}"
        assert caught.value.advice == "Put it in quotation marks."


@pytest.mark.parametrize("lenient", [False, True])
@pytest.mark.parametrize("kind", [Sequence[str], set[str], set, object, bytes], ids=str)
def test_a_type_without_a_decoder_is_refused_before_anything_is_read(kind: Any, lenient: bool) -> None:
    with pytest.raises(TypeError, match="no decoder for"):
        decode(tuple[kind, ...], [], lenient=lenient)


def test_the_first_type_of_a_union_that_fits_is_taken_whatever_was_read_before() -> None:
    number_first: Any = float | str
    text_first: Any = str | float
    for _ in range(2):
        assert decode(number_first, "5e-5", lenient=True) == 5e-5
        assert decode(text_first, "5e-5", lenient=True) == "5e-5"
        assert decode(list[number_first], ["5e-5"], lenient=True) == [5e-5]
        assert decode(list[text_first], ["5e-5"], lenient=True) == ["5e-5"]


def test_a_newer_file_is_refused_before_its_fields_are_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    path.write_text('{"schema": 2, "colour": "red"}', "utf-8")
    with pytest.raises(InputError, match=r"written by a newer version \(schema 2, this one reads 1\); update coref-automl"):
        read_stored(path, Whole)


def test_a_row_is_named_by_its_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"name": "x"}\n{"name": []}\n', "utf-8")
    with pytest.raises(InputError, match=r"rows.jsonl, line 2: name should be text, not \[\]"):
        list(read_stored_rows(path, Part))


def test_a_file_that_is_too_large_is_told_as_that(tmp_path: Path) -> None:
    path = tmp_path / "whole.json"
    with path.open("wb") as handle:
        handle.truncate(LARGEST + 1)
    for read in (read_stored, lambda path, kind: list(read_stored_rows(path, kind))):
        with pytest.raises(TooLarge):
            read(path, Whole)


def test_numbers_as_keys_are_refused_before_anything_is_read() -> None:
    with pytest.raises(TypeError, match="text as keys"):
        decode(dict[int, str], {"1": "a"})
