"""Train, interrupt, evaluate at two lengths and on two sets, keep the best, compare, report, archive."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.journeys.foreign import write_foreign
from tests.journeys.shell import Screen, Shell

TRAIN = (
    "coref-automl train --model bert --dataset data --objective entity --epochs 24 --save-every 6 --batch 4 "
    "--learning-rate 2e-3 --log-every 1 --out {out}"
)
LEFTOVERS = (".part", ".tmp", ".lock")


@pytest.fixture(scope="module")
def prepared(shell: Shell, texts: list[str]) -> Shell:
    """A model from elsewhere, a dataset, and two evaluation sets that have one name."""
    write_foreign("bert", texts, shell.folder / "bert")
    shell("coref-automl prepare eval --source local:articles.jsonl --task real --model bert --out sets/real")
    shell(
        "coref-automl prepare eval --source bundled:synthetic-short --limit 12 --task real --model bert --all-documents "
        "--out elsewhere/real"
    )
    shell(
        "coref-automl prepare entity --source local:articles.jsonl --model bert --seq-len 128 --exact-only "
        "--eval-set sets/real --out data"
    )
    return shell


def checkpoints(run: Path) -> list[Path]:
    """Finished checkpoints, the earliest first."""
    found = [path.parent for path in run.glob("checkpoint-*/training.json")]
    return sorted(found, key=lambda path: int(path.name.rpartition("-")[2]))


def interrupt(shell: Shell, line: str, run: Path, by: signal.Signals) -> Screen:
    """Once one more checkpoint stands than before."""
    before = len(checkpoints(run))
    return shell.interrupted(line, lambda: len(checkpoints(run)) > before, by)


def results(folder: Path) -> dict[tuple[str, str, int], Path]:
    """Every finished evaluation by checkpoint, items and length."""
    out: dict[tuple[str, str, int], Path] = {}
    for mark in folder.rglob("DONE"):
        path = mark.parent / "result.json"
        if path.is_file():
            held: dict[str, Any] = json.loads(path.read_text("utf-8"))
            out[held["checkpoint"], held["fingerprints"]["items"], held["seq_len"]] = path
    return out


def fingerprint(evalset: Path) -> str:
    return str(json.loads((evalset / "manifest.json").read_text("utf-8"))["fingerprint"])


@pytest.fixture(scope="module")
def trained(prepared: Shell) -> Shell:
    """A run that was interrupted by hand."""
    shell, run = prepared, prepared.folder / "runs/entity"
    said = interrupt(shell, TRAIN.format(out="runs/entity"), run, signal.SIGINT)
    assert said.status == 130
    assert "The same command resumes" in said.err
    assert "Traceback" not in said.err
    done = shell(TRAIN.format(out="runs/entity"))
    assert "Resuming from checkpoint-" in done.err
    assert len(checkpoints(run)) == 4
    return shell


@pytest.mark.journey
def test_an_interrupted_run_goes_on_is_evaluated_and_compared(trained: Shell) -> None:
    shell = trained
    shell("coref-automl evaluate runs/entity --eval-set sets/real --seq-len 128")
    names = [path.name for path in checkpoints(shell.folder / "runs/entity")]
    told = shell("coref-automl compare runs/entity").out
    assert all(name in told for name in names)
    assert "confirm half" in told  # four checkpoints: one of them will be chosen
    summary = shell.folder / "runs/entity" / f"{names[-1]}_eval_results.json"
    assert json.loads(summary.read_text("utf-8"))["seq_len"] == 128


@pytest.mark.journey
def test_a_killed_run_ends_with_the_weights_of_one_that_was_not(trained: Shell) -> None:
    shell, killed, whole = trained, trained.folder / "runs/killed", trained.folder / "runs/whole"
    for _ in range(2):
        assert interrupt(shell, TRAIN.format(out="runs/killed"), killed, signal.SIGKILL).status == -signal.SIGKILL
    shell(TRAIN.format(out="runs/killed"))
    shell(TRAIN.format(out="runs/whole"))
    assert [path.name for path in checkpoints(killed)] == [path.name for path in checkpoints(whole)]
    for one, other in zip(checkpoints(killed), checkpoints(whole), strict=True):
        assert (one / "model.safetensors").read_bytes() == (other / "model.safetensors").read_bytes()
    assert [path for path in killed.rglob("*") if path.name.endswith(LEFTOVERS)] == []


@pytest.mark.journey
def test_two_lengths_and_two_sets_of_one_name_stand_beside_each_other(trained: Shell) -> None:
    shell, run = trained, trained.folder / "runs/entity"
    for evalset, length in (("sets/real", 128), ("sets/real", 64), ("elsewhere/real", 128)):
        shell(f"coref-automl evaluate runs/entity --eval-set {evalset} --seq-len {length}")
    found = results(run)
    first, second = fingerprint(shell.folder / "sets/real"), fingerprint(shell.folder / "elsewhere/real")
    names = [f"entity/{path.name}" for path in checkpoints(run)]
    wanted = {(name, items, length) for name in names for items, length in ((first, 128), (first, 64), (second, 128))}
    assert wanted <= set(found)
    stamps = {path: path.stat().st_mtime_ns for path in found.values()}
    shell("coref-automl evaluate runs/entity --eval-set sets/real --seq-len 128")
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps  # nothing is computed twice


@pytest.mark.journey
def test_the_report_and_the_archive_say_what_compare_says(trained: Shell, browser: Any) -> None:
    from tests.browser import console, show

    shell = trained
    shell("coref-automl evaluate runs/entity --eval-set sets/real --seq-len 128")
    items = fingerprint(shell.folder / "sets/real")
    told = json.loads(shell(f"coref-automl compare runs/entity --eval-set {items} --json").out)
    said = shell(f"coref-automl report runs/entity --eval-set {items} --out report --lang en").out
    assert told["answer"]["highest"] in said
    page = show(browser, shell.folder / "report" / "report.html")
    kept = page.execute_script("return document.querySelector('.keep').textContent")
    assert told["answer"]["highest"] in kept  # beside the base, where nothing is shown to beat it
    assert console(page) == []
    shell("coref-automl archive runs/entity --out kept")
    again = json.loads(shell(f"coref-automl compare kept --eval-set {items} --json").out)
    assert [(row["name"], row["value"], row["comparison"]) for row in again["rows"]] == [
        (row["name"], row["value"], row["comparison"]) for row in told["rows"]
    ]
    words = [text[:30] for text in (shell.folder / "articles.jsonl").read_text("utf-8").split('"text": "')[1:]]
    stored = [path.read_bytes() for path in (shell.folder / "kept").rglob("*") if path.is_file()]
    assert not any(word.encode() in content for word in words for content in stored)
