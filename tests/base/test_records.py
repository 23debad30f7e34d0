"""Records come back from JSON as they were; what another version wrote is refused by name."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coref_automl.base.errors import InputError
from coref_automl.base.records import ClozeItem, Document, Estimate, Evaluation, Provenance, half_of, halves_of

words = st.text(min_size=1, max_size=8)


@given(
    words, words, st.integers(0, 500), st.none() | st.tuples(st.integers(0, 9), st.integers(10, 20)), st.lists(words, max_size=4)
)
def test_an_item_survives_json(name: str, answer: str, start: int, antecedent: tuple[int, int] | None, others: list[str]) -> None:
    item = ClozeItem(
        id=name,
        task="real",
        document="d",
        cluster=name,
        source="s",
        start=start,
        end=start + len(answer),
        answer=answer,
        tag="NNG",
        antecedent=antecedent,
    )
    assert ClozeItem.from_json(json.loads(json.dumps(item.to_json()))) == item


def test_nested_records_survive_json() -> None:
    evaluation = Evaluation(
        checkpoint="run/checkpoint-65",
        path="runs/run/checkpoint-65",
        evalset="set",
        seq_len=512,
        dtype="float32",
        scorer="1",
        evaluated_at="now",
        seconds=1.5,
        fingerprints={"weights": "a"},
        estimates={"real1": Estimate(0.5, 0.4, 0.6, 100)},
        baselines={"copy-nearest": {"real1": Estimate(0.1, 0.0, 0.2, 100)}},
        counted={"real": 0.6},
        counted_names=0.3,
        out_of_reach=0,
        provenance=Provenance("run", 65, 0.5, 1000, "entity", "base", 512, 0),
    )
    assert Evaluation.from_json(json.loads(json.dumps(evaluation.to_json()))) == evaluation


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"id": "a", "source": "b", "text": "c", "colour": "red"}, "colour"),
        ({"id": "a"}, "the keys .source., .text. are missing"),
        ([1, 2], "object"),
    ],
)
def test_another_shape_is_refused_by_name(data: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Document.from_json(data)  # type: ignore[arg-type]


def test_an_estimate_reads_as_percent_with_its_interval() -> None:
    assert str(Estimate(0.425, 0.407, 0.443, 3165)) == "42.50% [40.70, 44.30]"


def test_a_cluster_keeps_its_half_and_halves_are_near_equal() -> None:
    halves = [half_of(f"document-{number}") for number in range(4_000)]
    assert halves == [half_of(f"document-{number}") for number in range(4_000)]
    assert 1_850 < halves.count("select") < 2_150
    assert half_of("kowiki-1346160") == half_of("kowiki-1346160")


def test_a_small_set_is_split_evenly_and_a_shared_cluster_has_one_half() -> None:
    novels = [("gold", f"novel-{number}") for number in range(41)]
    result = halves_of(novels)
    assert sorted(result.values()).count("select") == 21
    assert sum(half_of(name) == "select" for _, name in novels) != 21  # the hash alone is uneven
    many = [("real", f"document-{number}") for number in range(200)]
    some = [("real-far", f"document-{number}") for number in range(30)]
    both = halves_of([*many, *some, *novels])
    assert both == {**{name: half_of(name) for _, name in many}, **result}
    few = halves_of([("real", f"d{n}") for n in range(40)] + [("real-far", f"d{n}") for n in range(20, 60)])
    assert sorted(few.values()).count("select") == 30
    assert halves_of([("real", "alone")]) == {"alone": "select"}
    assert halves_of([]) == {}
