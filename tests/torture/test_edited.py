"""JSON files that the product wrote, edited by hand: each is refused, or passed over, in a sentence."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest

from coref_automl.cli.app import run
from tests.torture.attempt import Ended, fault
from tests.torture.world import LINES, OUT

pytestmark = pytest.mark.journey

AGAIN = {
    "train": "train --model new:bert-tiny --tokenizer tokenizer --dataset data --epochs 1 --batch 8 --device cpu --out runs/a",
    "prepare": "prepare combined --source local:texts.jsonl --model tokenizer --seq-len 64 --exact-only --holdout 0 --workers 1 "
    "--out data",
    "re train": "re train --model model --train relations.json --seeds 1 --epochs 1 --batch-size 16 --device cpu --out relation",
    "coref train": "coref train --model model --data chains.jsonl --holdout 0.3 --epochs 1 --size 16 --window 64 --device cpu "
    "--out coreference",
    "compare relation": "compare runs/a relation",
}
"""Commands that made the world: the second time they read what they wrote."""

READ_BY = {
    "set/manifest.json": "evaluate runs",
    "data/manifest.json": "plan",
    "data/manifest.json ": "prepare",
    "runs/a/manifest.json": "train",
    "runs/a/checkpoint-*/training.json": "evaluate runs",
    "runs/a/checkpoint-*/clock.json": "train",
    "runs/a/checkpoint-*_eval_results.json": "evaluate runs",
    "runs/a/evaluations/*/*/result.json": "compare",
    "kept/a/evaluations/*/*/result.json": "compare kept",
    "relation/manifest.json": "re evaluate",
    "relation/manifest.json ": "re train",
    "relation/re_results.json": "compare relation",
    "relation/seed-0/result.json": "re train",
    "relation/seed-0/model/relation.json": "re predict",
    "relation/seed-0/predictions/*.json": "re train",
    "coreference/manifest.json": "coref train",
    "coreference/seed-0/result.json": "coref train",
    "coreference/seed-0/model/coreference.json": "coref predict",
}
SLOW = {
    "relation/manifest.json",
    "relation/seed-0/result.json",
    "kept/a/evaluations/*/*/result.json",
    "runs/a/checkpoint-*_eval_results.json",
    "relation/manifest.json ",
    "coreference/seed-0/result.json",
}
"""Read by the same code as others of the list, through commands that take longer."""
WRONG: tuple[Any, ...] = (None, [], {"a": [1]}, "x", 10**400, float("nan"), [[[[1]]]], True)
WHOLE = ("[]", '"text"', "{}", "[" * 100_000, '{"schema": ' + "9" * 5_000 + "}", "")


def damages(text: str) -> Iterator[tuple[str, str]]:
    """What was done, and the file's text after it: another shape, each key with another type, a key missing."""
    for whole in WHOLE:
        yield whole[:20], whole
    held = json.loads(text)
    for number, key in enumerate(held):
        value = WRONG[number % len(WRONG)]
        yield f"{key} = {str(value)[:20]}", json.dumps({**held, key: value})
    yield "without its first key", json.dumps({name: held[name] for name in list(held)[1:]})


def ended(line: str, folder: Path, capfd: pytest.CaptureFixture[str]) -> Ended:
    words = LINES[line].words if line not in AGAIN else AGAIN[line].split()
    capfd.readouterr()
    with chdir(folder):
        shutil.rmtree(OUT, ignore_errors=True)
        status = run(words)
    out, err = capfd.readouterr()
    return Ended(tuple(words), status, out, err, 0.0, 0.0)


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.journey) if name in SLOW else name for name in READ_BY])
def test_an_edited_file_gives_a_sentence(name: str, world: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = shutil.copytree(world, tmp_path / "copy")
    path = next(folder.glob(name.strip()))
    text = path.read_text("utf-8")
    sound = ended(READ_BY[name], folder, capfd)
    assert sound.status == 0, sound.err
    wrong = []
    for told, after in damages(text):
        path.write_text(after, "utf-8")
        end = ended(READ_BY[name], folder, capfd)
        if found := fault(end):
            wrong.append(f"{told}: {found}")
    assert not wrong, "\n".join(wrong)


def test_a_folder_of_a_newer_version_is_refused(world: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = shutil.copytree(world, tmp_path / "copy")
    for name, line in (("runs/a/evaluations/*/*/result.json", "evaluate runs"), ("set/manifest.json", "evaluate runs")):
        path = next(folder.glob(name))
        path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), "schema": 2, "colour": "red"}), "utf-8")
        end = ended(line, folder, capfd)
        assert end.status, end.err
        assert "was written by a newer version (schema 2, this one reads 1); update coref-automl." in end.err
    path = folder / "set" / "manifest.json"
    held = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps({**held, "schema": 1, "tasks": {**held["tasks"], "far-east": held["tasks"]["real"]}}), "utf-8")
    assert "the task 'far-east', which is newer; update coref-automl." in ended("evaluate runs", folder, capfd).err
