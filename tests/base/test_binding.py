"""What differs between two bindings, in words, however a version wrote them down."""

from __future__ import annotations

import pytest

from coref_automl.base.binding import check_binding, difference
from coref_automl.base.errors import InputsChanged

PRINTS = {"weights": "a", "tokenizer_files": "b", "settings": "c"}


def test_the_same_settings_and_bytes_agree_flat_or_in_groups() -> None:
    grouped = {"settings": {"seed": 0, "kinds": ["x"]}, "fingerprints": PRINTS}
    flat = {"seed": 0, "kinds": ["x"], **{f"bytes of the {name}": value for name, value in PRINTS.items()}}
    assert difference(grouped, flat) == difference(flat, grouped) == ""
    assert difference({"kinds": ["x"]}, {"kinds": ("x",)}) == ""  # as JSON keeps them


@pytest.mark.parametrize("name", PRINTS)
def test_other_bytes_of_a_model_are_named_and_unrecorded_ones_are_not_held_against_it(name: str) -> None:
    stored = {"settings": {}, "fingerprints": PRINTS}
    now = {"settings": {}, "fingerprints": {**PRINTS, name: "other"}}
    assert difference(stored, now).startswith("other bytes of the ")
    earlier = {key: value for key, value in PRINTS.items() if key != name}
    assert difference({"settings": {}, "fingerprints": earlier}, now) == ""
    assert difference(now, {"settings": {}, "fingerprints": earlier})


def test_data_that_one_side_lacks_differ_and_settings_that_do_nothing_do_not() -> None:
    assert difference({"seed": 0}, {"seed": 0, "bytes of the words": "a"}) == "other bytes of the words than this command has"
    assert difference({"seed": 0, "focal": 0.0, "mask": "off"}, {"seed": 0, "ema": None}) == ""
    assert difference({"seed": 0, "focal": 2.0}, {"seed": 0}) == "focal 2.0, and this command has no focal"


def test_a_refusal_names_folder_difference_and_remedy() -> None:
    with pytest.raises(
        InputsChanged, match=r"^runs/a was begun with seed 0, and this command has seed 1; pass the same .*--out\.$"
    ):
        check_binding("runs/a", {"seed": 0}, {"seed": 1})
