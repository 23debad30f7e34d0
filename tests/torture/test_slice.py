"""A short, fixed slice of `make torture` in the ordinary suite, and the tool itself: it covers every command and sees a fault."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from random import Random
from zipfile import ZipFile

import numpy as np
import pytest

from coref_automl.cli.app import run
from tests.torture.attempt import Ended, fault
from tests.torture.damage import damage
from tests.torture.inputs import case
from tests.torture.options import command_of, commands, worsened
from tests.torture.world import LINES

SEED = 17
CASES = 30


def ended(words: list[str], folder: Path, capfd: pytest.CaptureFixture[str]) -> Ended:
    capfd.readouterr()
    with chdir(folder):
        status = run(words)
    out, err = capfd.readouterr()
    return Ended(tuple(words), status, out, err, 0.0, 0.0)


def test_every_command_is_tortured() -> None:
    covered = {command_of(line.words) for line in LINES.values()}
    left = set(commands()) - covered - {("studio",)}  # it serves until it is stopped
    assert left == {("prepare", "combined"), ("prepare", "status")}, "one is mlm and entity together, the other only reads"


def test_bad_inputs_are_refused_in_a_sentence_and_lose_nothing(
    world: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Quick commands alone, in this process; `make torture` takes all of them, real processes, kills and full disks."""
    monkeypatch.setattr("tests.torture.inputs.LINES", {name: line for name, line in LINES.items() if line.seconds < 2})
    wrong = []
    for number in range(CASES):
        made = case(SEED, number, world, tmp_path / str(number))
        end = ended(made.words, made.folder, capfd)
        if found := fault(end) or next((f"{path} was lost" for path in made.lost()), None):
            wrong.append(f"inputs:{number} {end.line()}\n  {made.changes}\n  {found}")
    assert not wrong, "\n".join(wrong)


def _without(path: Path, key: str) -> None:
    held = json.loads(path.read_text("utf-8"))
    del held[key]
    path.write_text(json.dumps(held), "utf-8")


def _with(path: Path, **values: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **values}), "utf-8")


def _first_score(folder: Path, **values: object) -> None:
    path = next((folder / "runs").glob("*/evaluations/*/*/items.jsonl"))
    first, *others = path.read_text("utf-8").splitlines()
    path.write_text("\n".join([json.dumps({**json.loads(first), **values}), *others]) + "\n", "utf-8")


def _score_bytes(folder: Path, start: bytes) -> None:
    path = next((folder / "runs").glob("*/evaluations/*/*/items.jsonl"))
    path.write_bytes(start + path.read_bytes())


def _unpacked(folder: Path) -> None:
    path = next((folder / "kept").rglob("ranks.npz"))
    raw = bytearray(path.read_bytes())
    with ZipFile(path) as packed:
        first = packed.infolist()[0]
    data = first.header_offset + 30 + len(first.filename) + int.from_bytes(raw[first.header_offset + 28 :][:2], "little")
    raw[data] = 0xFF  # no kind of block
    path.write_bytes(bytes(raw))


def _ranks(folder: Path) -> None:
    path = next((folder / "kept").rglob("ranks.npz"))
    with np.load(path) as held:
        np.savez(path, **{name: held[name] for name in held.files if name != "rank"})


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


FOUND: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "a rank that is a list": (
        "archive",
        lambda at: _first_score(at, rank=[1]),
        "line 1: rank should be a whole number, not [1]; the file was edited",
    ),
    "a rank of forty digits": (
        "compare",
        lambda at: _first_score(at, rank=10**40),
        "line 1: rank should be between -2**63 and 2**63, not 1000",
    ),
    "scores that are not UTF-8": (
        "compare",
        lambda at: _score_bytes(at, b'"\xe3('),
        "items.jsonl, line 1, is not JSON",
    ),
    "an archive whose ranks do not unpack": ("compare kept", _unpacked, "ranks.npz cannot be read (ranks.npz: Error -3"),
    "an archive without ranks": ("compare kept", _ranks, "ranks.npz is damaged ('rank'); make the archive again."),
    "a model that reads infinitely many tokens": (
        "re check",
        lambda at: _with(at / "model/config.json", max_position_embeddings=float("inf")),
        "config.json has a max_position_embeddings of inf, which is not a whole number; correct it.",
    ),
    "a model that reads a list of tokens": (
        "re check",
        lambda at: _with(at / "model/config.json", max_position_embeddings=[64], model_type="roberta"),
        "config.json has a max_position_embeddings of [64], which is not a whole number; correct it.",
    ),
    "a tokenizer without a length": (
        "re predict text",
        lambda at: _with(at / "relation/seed-0/model/tokenizer_config.json", model_max_length="long"),
        "The tokenizer of relation/seed-0/model cannot be read (",
    ),
    "a run whose manifest holds a list for a sentence": (
        "re evaluate",
        lambda at: _with(at / "relation/manifest.json", train_sentences=[[]]),
        "train_sentences[0] should be text, not []",
    ),
    "a label mask without numbers": (
        "re predict",
        lambda at: _with(at / "relation/seed-0/model/relation.json", label_mask="hard"),
        "relation.json has a damaged label mask; train that seed again.",
    ),
    "chains in a pipe": ("coref explore", lambda at: _pipe(at / "chains.jsonl"), "chains.jsonl is a pipe, a socket or a device"),
    "a model that learned from what is no document": (
        "coref evaluate",
        lambda at: (at / "coreference/seed-0/model/learned_from.json").write_text("[[]]"),
        "learned_from.json: [0] should be text, not []; the file was edited: train it again.",
    ),
    "chains that are nested too deeply": (
        "coref explore",
        lambda at: (at / "chains.jsonl").write_text("[" * 20_000),
        "No row of chains.jsonl can be used",
    ),
    "a mark that is no text": ("compare", lambda at: (at / "runs/a/.coref-automl").write_bytes(b"run\xea\n"), ""),
}
"""What longer runs found, once each: the line, the damage, and what is said now."""


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_stays_mended(name: str, world: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    line, harm, said = FOUND[name]
    folder = shutil.copytree(world, tmp_path / "copy")
    harm(folder)
    end = ended(LINES[line].words, folder, capfd)
    assert fault(end) is None, end.err
    assert said in end.err
    assert end.status == (2 if said else 0)


def test_a_case_is_the_same_for_the_same_seed(world: Path, tmp_path: Path) -> None:
    one, same, other = (case(seed, 5, world, tmp_path / name) for seed, name in ((1, "a"), (1, "b"), (2, "c")))
    assert (one.words, one.changes) == (same.words, same.changes)
    assert (one.words, one.changes) != (other.words, other.changes)
    changed = [path for path in one.folder.rglob("*") if path.is_file() and path.stat().st_size]
    for path in changed:
        assert path.read_bytes() == (same.folder / path.relative_to(one.folder)).read_bytes()


def test_what_is_wrong_is_seen() -> None:
    def of(status: int, err: str, **more: bool) -> str | None:
        return fault(Ended(("evaluate",), status, "", err, 1.0, 100.0, **more))

    assert of(0, "") is None
    assert of(2, "coref-automl: no such folder; check the path.") is None
    assert "unforeseen" in str(of(1, "coref-automl: KeyError: 'a' (run it again with --debug for the whole stack)"))
    assert "traceback" in str(of(1, "Traceback (most recent call last):\n  ...\nKeyError: 'a'"))
    assert "status -11" in str(of(-11, ""))
    assert "no word" in str(of(2, ""))
    assert "hung" in str(of(-9, "", cut=True))
    assert "MB" in str(fault(Ended(("evaluate",), 0, "", "", 1.0, 5_000.0)))


def test_lost_files_are_seen(world: Path, tmp_path: Path) -> None:
    made = case(SEED, 0, world, tmp_path / "copy")
    assert not made.lost()
    gone = next(path for path in made.finished if path.name == "DONE")
    gone.unlink()
    assert made.lost() == [gone]


@pytest.mark.parametrize("place", ["texts.jsonl", "train.yaml", "table.csv", "data", "model", "runs"])
def test_damage_is_damage(place: str, world: Path, tmp_path: Path) -> None:
    for seed in range(5):
        folder = tmp_path / str(seed)
        shutil.copytree(world, folder)
        told = damage(Random(seed), folder / place)
        path = Path(told.split(" ")[0])
        original = world / path.relative_to(folder)
        same = path.is_file() and path.read_bytes() == original.read_bytes()
        assert not same or "wrong value" in told or "beside" in told or "changed bytes" in told, told


def test_options_are_those_of_the_command() -> None:
    random = Random(1)
    given = {word for _ in range(60) for word in worsened(random, LINES["evaluate"].words)[0] if word.startswith("--")}
    assert {"--dtype", "--metric", "--batch-tokens"} <= given
    assert "--trials" not in given
