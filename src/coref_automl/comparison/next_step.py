"""What to do next. In: an answer and its study. Out: a NextStep: one thing to do, and the command that does it.

A printed command runs as it is printed. Where a run's recipe is here, the command reads it; else it repeats what the run's record
says. What moved since is named anew.
"""

from __future__ import annotations

import math
import shlex
from pathlib import Path
from typing import Any

from coref_automl.comparison.claims import Answer, Do, NextStep
from coref_automl.comparison.names import method_name
from coref_automl.comparison.runs import TaskRun
from coref_automl.comparison.scores import Entry, has_room
from coref_automl.comparison.study_data import StudyData
from coref_automl.config import read_yaml
from coref_automl.errors import CorefError
from coref_automl.evaluation.results import relocated
from coref_automl.folders import AVERAGE
from coref_automl.records import Provenance

_TIMES_LONGER = 2
_BUNDLED_ROWS = {"train": "bundled:relations", "dev": "bundled:relations-dev"}
"""Rows that everyone has, where no run names others."""
_RELATION_OUT = "runs/re"
_MARKER_FILES = {"model": "config.json", "dataset": "manifest.json", "eval_set": "manifest.json", "train": "", "dev": ""}
"""What recipes name by path, and the file by which such a folder is known; rows are files themselves."""


def next_step(study: StudyData, answer: Answer, top: Entry, *, unequal: tuple[Entry, int] | None) -> NextStep | None:
    """The first of these that applies; None where nothing says how its run was trained. `top` is the checkpoint to use, or the
    highest; `unequal` the last checkpoint of a method with less training than one beside it, and the tokens of that one.

    1. add seeds: a checkpoint is shown better, which says nothing about its method
    2. train longer: the last step of training gains, and its run says how it was trained
    3. train equally: unequal training leaves two methods without a verdict
    4. carry over: what is kept is on this disk, and was not tried on relation extraction
    5. tell apart: a method is tied with the one to use, which a larger study may change
    6. publish what is kept, or make it again where its weights are gone
    7. plan: the base is kept, and a larger study may show the gain that was seen
    8. evaluate base: without it no gain can be judged
    9. add seeds: nothing is decided, and the metric has room for a difference
    """
    made, keep, relation = top.evaluation.provenance, answer.keep, answer.question("relation")
    largest = answer.power.largest if answer.power else None
    if answer.action == "use checkpoint":
        return _train("add seeds", top, seed=made.seed + 1) if made else None
    rising = answer.next_time is not None and answer.next_time.how == "longer"
    if rising and made and (longer := _train("train longer", top, tokens=_TIMES_LONGER * study.choice.arm(top).tokens)):
        return longer
    if unequal is not None:
        less_trained, tokens = unequal
        return _train("train equally", less_trained, tokens=tokens)
    if keep is not None and keep.there and not (relation and relation.tested):
        return NextStep("carry over", _relation_command(study, keep.path))
    if any((claim := answer.beside(name)) and claim.verdict == "not shown" for name in answer.unbeaten):
        gain = min(study.margin, largest / 2 if largest else study.margin)  # below it two methods are equivalent
        return NextStep("tell apart", _power_command(study, top, gain))
    if keep is not None and keep.there:
        return NextStep("publish", f"coref-automl publish {shlex.quote(keep.path)} --repo OWNER/NAME --dry-run")
    if keep is not None:
        return NextStep("make again", keep.again) if keep.again else None
    if answer.action == "keep base":
        gain = largest if answer.power and answer.power.needed and largest else study.margin  # the margin where nothing gained
        return NextStep("plan", f"{_power_command(study, top, gain)} --against-base")
    if made and answer.action == "no base" and not top.scratch and (base := _base_now(made, top)):
        lacking = [top, *(entry for entry in study.entries if entry.trained and study.own_base(entry) is None)]
        lengths = dict.fromkeys(entry.evaluation.seq_len for entry in lacking)
        commands = [f"coref-automl evaluate {shlex.quote(base)} --seq-len {length}" for length in lengths]
        return NextStep("evaluate base", " && ".join(commands))
    return _train("add seeds", top, seed=made.seed + 1) if made and has_room(study.group, answer.metric) else None


def _train(do: Do, entry: Entry, *, seed: int | None = None, tokens: int | None = None) -> NextStep | None:
    command = train_command(entry, seed=seed, tokens=tokens)
    return NextStep(do, command) if command else None


def train_command(entry: Entry, *, seed: int | None = None, tokens: int | None = None) -> str:
    """Training that makes a checkpoint again, with another seed or until so many tokens; empty where nothing says how."""
    run, made = Path(entry.evaluation.path).parent, entry.evaluation.provenance
    run = run.parent if run.name == AVERAGE else run  # its recipe asks for the average
    out = shlex.quote(f"{run}-{'longer' if tokens else 'again' if seed is None else f'seed{seed}'}")
    recipe = run / "recipe.yaml"
    if recipe.is_file():
        known = {"model": made.base_bytes, "dataset": made.dataset_bytes} if made else {}
        known["eval_set"] = entry.evaluation.fingerprints.get("items", "")
        changed = _options({name: now for name, (stored, now) in _paths_in(recipe, known).items() if now != stored})
        changed += f" --seed {seed}" if seed is not None else ""
        if made is not None and tokens:
            times = tokens / max(1, made.tokens)
            changed += f" --epochs {math.ceil(times * made.epoch)} --max-tokens {tokens}"
            if minutes := _fields_of(recipe).get("max_minutes"):  # twice what it takes: the tokens are to end it
                changed += f" --max-minutes {math.ceil(2 * times * float(minutes))}"
        return f"coref-automl train --recipe {shlex.quote(str(recipe))}{changed} --out {out}"
    if made is None:
        return ""
    seed = made.seed if seed is None else seed
    if method_name(made) not in ("", made.objective):  # its settings are in the recipe of its study, not in its record
        if tokens is not None:
            return ""  # how long a study trains stands in its recipe, too
        one_run = f"--method {shlex.quote(method_name(made))} --length {made.seq_len} --first-seed {seed} --seeds 1"
        return f"coref-automl study --recipe STUDY.yaml {one_run} --only train --out {shlex.quote(f'{run}-study')}"
    base = _base_now(made, entry)
    dataset = relocated(made.dataset, entry.folder, _MARKER_FILES["dataset"], made.dataset_bytes) or "DATASET"
    settings = f"--objective {shlex.quote(made.objective)} --seq-len {made.seq_len} --seed {seed}"
    settings += f" --max-tokens {tokens or made.tokens}"
    return f"coref-automl train --model {shlex.quote(base)} --dataset {shlex.quote(dataset)} {settings} --out {out}"


def _base_now(made: Provenance, entry: Entry) -> str:
    return relocated(made.base, entry.folder, _MARKER_FILES["model"], made.base_bytes)


def _relation_command(study: StudyData, model: str) -> str:
    """Relation extraction from a checkpoint, on the rows of a run that was read, in a folder of its own."""
    runs = study.checks.get("relation", ())
    rows = next((rows for run in runs if (rows := _rows_of(run))), _BUNDLED_ROWS)
    of_model = f"{_RELATION_OUT}-{Path(model).name}"
    places = [_RELATION_OUT, of_model, *(f"{of_model}-{number}" for number in range(2, len(runs) + 3))]
    read = {run.folder for run in runs}
    out = next((place for place in places if not Path(place).exists() and Path(place).resolve() not in read), places[-1])
    return f"coref-automl re train --model {shlex.quote(model)}{_options(rows)} --out {shlex.quote(out)} --seeds 3"


def _rows_of(run: TaskRun) -> dict[str, str]:
    """The files of rows that a run names in its recipe; none in an archive."""
    paths = _paths_in(run.folder / "recipe.yaml", {}) if run.folder else {}
    return {name: paths[name][1] for name in ("train", "dev") if name in paths} if "train" in paths else {}


def _paths_in(recipe: Path, known: dict[str, str]) -> dict[str, tuple[str, str]]:
    """What the recipe of a run names by path: as it was stored, and where it lies now. Of some the fingerprint is `known`."""
    fields = _fields_of(recipe)
    paths = {name: fields[name] for name in _MARKER_FILES if isinstance(fields.get(name), str)}
    return {name: (path, relocated(path, recipe, _MARKER_FILES[name], known.get(name, ""))) for name, path in paths.items()}


def _fields_of(recipe: Path) -> dict[str, Any]:
    try:
        return read_yaml(recipe) if recipe.is_file() else {}
    except CorefError:
        return {}


def _options(values: dict[str, str]) -> str:
    return "".join(f" --{name.replace('_', '-')} {shlex.quote(value)}" for name, value in values.items())


def _power_command(study: StudyData, top: Entry, gain: float) -> str:
    """What it takes to show such a gain; by the spreads of these runs if they have seeds."""
    runs, replicated = Path(top.evaluation.path).parent.parent, any(arm.seeds > 1 for arm in study.arms)
    where = f" {shlex.quote(str(runs))}" if replicated and runs.is_dir() else ""
    return f"coref-automl power{where} --difference {max(0.1, 100 * gain):.1f} --metric {study.metric}"
