"""What to do next. In: an answer and its study. Out: how long to train next time, and one NextStep with its command.

A command runs as it is printed. If a run's recipe is here, the command reads it; otherwise it repeats what the run's record says.
Paths that have moved since are given as they are now.
"""

from __future__ import annotations

import math
import shlex
from pathlib import Path
from typing import Any

import numpy as np

from coref_automl.base.config import read_yaml
from coref_automl.base.errors import CorefError
from coref_automl.base.folders import AVERAGE, is_folder, is_there
from coref_automl.base.records import Provenance
from coref_automl.comparison.arms import Arm
from coref_automl.comparison.claims import Answer, Do, NextStep, NextTime, Training
from coref_automl.comparison.names import method_name
from coref_automl.comparison.runs import TaskRun
from coref_automl.comparison.scores import Entry, Group
from coref_automl.comparison.study_data import StudyData, choosing_columns
from coref_automl.evaluation.results import relocated
from coref_automl.statistics.intervals import simultaneous_bounds
from coref_automl.statistics.resampling import Part
from coref_automl.statistics.shrinkage import accepted_loss

_TIMES_LONGER = 2
_BUNDLED_ROWS = {"train": "bundled:relations", "dev": "bundled:relations-dev"}
"""Rows that everyone has, if no run names others."""
_RELATION_OUT = "runs/re"
_MARKER_FILES = {"model": "config.json", "dataset": "manifest.json", "eval_set": "manifest.json", "train": "", "dev": ""}
"""What recipes name by path, and the file that identifies such a folder; rows are files themselves."""


def next_time_of(
    group: Group, metric: str, arm: Arm, top: Entry, *, margin: float, seed: int, gain: float | None = None, rising: bool = False
) -> NextTime | None:
    """How long to train next time, by the mean curve of a method; None without a curve. `gain` is the shown gain over the base;
    `rising`: the last step of the curve is itself shown to gain."""
    points = [list(point.values()) for point in arm.with_curve().matched_checkpoints()]
    if len(points) < 2:
        return None
    entries = [entry for point in points for entry in point]
    columns, _ = choosing_columns(group, metric, entries)
    seeds = len(points[0])
    curves = [np.asarray(part.values).reshape(-1, len(points), seeds).mean(axis=2) for part in columns.parts]
    parts = [Part(curve, part.clusters) for curve, part in zip(curves, columns.parts, strict=True)]
    bounds = simultaneous_bounds(parts, seed=seed)
    loss = accepted_loss(margin, gain)
    highest = int(np.argmax(bounds.gaps[:, 0]))  # gaps are differences to the first point, so the largest marks the highest
    within = next((number for number in range(len(points)) if bounds.upper[number] <= loss), None)
    earliest = min(within, highest) if within is not None else None  # never after the highest
    how: Training = "less" if earliest is not None and earliest < len(points) - 1 else "longer" if rising else "as long"
    if earliest is None:
        return NextTime(how=how, loss=loss, points=len(points), seeds=seeds, tokens=None, share=None, checkpoint="", name="")
    tokens = [round(np.mean([entry.tokens for entry in point])) for point in points]
    recorded = all(entry.recorded_tokens is not None for entry in entries)
    chosen_run = next((run for run in arm.runs.values() if top in run), [])
    reached = next((entry for entry in points[earliest] if entry in chosen_run), points[earliest][0])
    return NextTime(
        how=how,
        loss=loss,
        points=len(points),
        seeds=seeds,
        tokens=tokens[earliest] if recorded else None,
        share=tokens[earliest] / tokens[-1],
        checkpoint=reached.evaluation.path,
        name=reached.name,
    )


def next_step(study: StudyData, answer: Answer, top: Entry) -> NextStep | None:
    """The first of these that applies; None if no record says how the run was trained.

    `top` is the checkpoint to use, or the highest.

    1. add seeds: a checkpoint is shown better, which says nothing about its method
    2. train longer: the last step of training gains, and its run says how it was trained
    3. train equally: unequal training leaves two methods without a verdict
    4. carry over: the checkpoint to keep is on this disk, and was not tried on relation extraction
    5. tell apart: a method is tied with the one to use, which a larger study may change
    6. publish the checkpoint to keep, or make it again if its weights are gone
    7. plan: the base is kept, and a larger study may show the gain that was seen
    8. evaluate base: without it no gain can be judged
    9. add seeds: nothing is decided, and the metric has room for a difference
    """
    provenance, keep = top.evaluation.provenance, answer.keep
    largest = answer.power.largest if answer.power else None
    new_seed = max(study.choice.arm(top).runs) + 1
    if answer.action == "use checkpoint":
        return _train("add seeds", top, seed=new_seed) if provenance else None
    rising = answer.next_time is not None and answer.next_time.how == "longer"
    if rising and provenance and (longer := _train("train longer", top, tokens=_TIMES_LONGER * study.choice.arm(top).tokens)):
        return longer
    if unequal := _trained_unequally(study, answer):
        shortest = min((end for arm in unequal for end in arm.ends), key=lambda end: end.tokens)
        return _train("train equally", shortest, tokens=max(arm.tokens for arm in unequal))
    if keep is not None and keep.there and "relation" in answer.untested:
        return NextStep("carry over", _relation_command(study, keep.path))
    if any((claim := answer.beside(name)) and claim.verdict == "not shown" for name in answer.unbeaten):
        gain = min(study.margin, largest / 2 if largest else study.margin)  # below it two methods are equivalent
        return NextStep("tell apart", _power_command(study, top, gain))
    if keep is not None and keep.there:
        return NextStep("publish", f"coref-automl publish {shlex.quote(keep.path)} --repo OWNER/NAME --dry-run")
    if keep is not None:
        return NextStep("make again", keep.again) if keep.again else None
    if answer.action == "keep base":
        gain = largest if largest and largest > 0 else study.margin
        return NextStep("plan", f"{_power_command(study, top, gain)} --against-base")
    if provenance and answer.action == "no base" and not top.scratch and (base := _base_now(provenance, top)):
        lacking = [top, *(entry for entry in study.entries if entry.trained and study.own_base(entry) is None)]
        lengths = dict.fromkeys(entry.evaluation.seq_len for entry in lacking)
        commands = [f"coref-automl evaluate {shlex.quote(base)} --seq-len {length}" for length in lengths]
        return NextStep("evaluate base", " && ".join(commands))
    return _train("add seeds", top, seed=new_seed) if provenance else None


def _trained_unequally(study: StudyData, answer: Answer) -> tuple[Arm, ...]:
    """The method to use and one that unequal training left unjudged; empty if there is none."""
    unequal = [pair for pair in study.same_setting if pair not in study.equal_training]
    unjudged = [{answer.method, name} for name in answer.unjudged]
    return next((pair for pair in unequal if {arm.name for arm in pair} in unjudged), ())


def _train(do: Do, entry: Entry, *, seed: int | None = None, tokens: int | None = None) -> NextStep | None:
    """Train like this, and evaluate that run as the checkpoint was, if its set is known and still lies there."""
    command, of = train_command(entry, seed=seed, tokens=tokens), entry.evaluation
    if command.startswith("coref-automl train ") and not of.half and of.evalset_path and is_folder(Path(of.evalset_path)):
        run = command.rpartition(" --out ")[2]
        command += f" && coref-automl evaluate {run} --eval-set {shlex.quote(of.evalset_path)} --seq-len {of.seq_len}"
    return NextStep(do, command) if command else None


def train_command(entry: Entry, *, seed: int | None = None, tokens: int | None = None) -> str:
    """The command that trains a checkpoint again, with another seed or for so many tokens; empty if no record says how."""
    run, provenance = Path(entry.evaluation.path).parent, entry.evaluation.provenance
    run = run.parent if run.name == AVERAGE else run  # its recipe asks for the average
    out = shlex.quote(f"{run}-{'longer' if tokens else 'again' if seed is None else f'seed{seed}'}")
    recipe = run / "recipe.yaml"
    if is_there(recipe):
        known = {"model": provenance.base_bytes, "dataset": provenance.dataset_bytes} if provenance else {}
        known["eval_set"] = entry.evaluation.fingerprints.get("items", "")
        anywhere = _paths_in(recipe.resolve(), known)  # a relative path that is found is named, for it depends on the folder
        changed = _options({name: now for name, (stored, now) in _paths_in(recipe, known).items() if anywhere[name][1] != stored})
        changed += f" --seed {seed}" if seed is not None else ""
        if provenance is not None and tokens:
            times = tokens / max(1, provenance.tokens)
            changed += f" --epochs {math.ceil(times * provenance.epoch)} --max-tokens {tokens}"
            if minutes := _fields_of(recipe).get("max_minutes"):  # twice what it takes, so that the tokens end the run
                changed += f" --max-minutes {math.ceil(2 * times * float(minutes))}"
        return f"coref-automl train --recipe {shlex.quote(str(recipe))}{changed} --out {out}"
    if provenance is None:
        return ""
    seed = provenance.seed if seed is None else seed
    if (method := method_name(provenance)) not in ("", provenance.objective):
        if tokens is not None:
            return ""  # its settings, and how long it trains, are in the recipe of its study, not in its record
        one_run = f"--method {shlex.quote(method)} --length {provenance.seq_len} --first-seed {seed} --seeds 1"
        return f"coref-automl study --recipe STUDY.yaml {one_run} --only train --out {shlex.quote(f'{run}-study')}"
    base = _base_now(provenance, entry)
    dataset = relocated(provenance.dataset, entry.folder, _MARKER_FILES["dataset"], provenance.dataset_bytes) or "DATASET"
    settings = f"--objective {shlex.quote(provenance.objective)} --seq-len {provenance.seq_len} --seed {seed}"
    settings += f" --max-tokens {tokens or provenance.tokens}"
    return f"coref-automl train --model {shlex.quote(base)} --dataset {shlex.quote(dataset)} {settings} --out {out}"


def _base_now(provenance: Provenance, entry: Entry) -> str:
    """Where the base of a checkpoint lies now."""
    return relocated(provenance.base, entry.folder, _MARKER_FILES["model"], provenance.base_bytes)


def _relation_command(study: StudyData, model: str) -> str:
    """Relation extraction from a checkpoint, on the rows of a run that was read, in a folder of its own."""
    runs = study.checks.get("relation", ())
    rows = next((rows for run in runs if (rows := _rows_of(run))), _BUNDLED_ROWS)
    of_model = f"{_RELATION_OUT}-{Path(model).name}"
    folders = [_RELATION_OUT, of_model, *(f"{of_model}-{number}" for number in range(2, len(runs) + 3))]
    read = {run.folder for run in runs}
    free = (folder for folder in folders if not Path(folder).exists() and Path(folder).resolve() not in read)
    out = next(free, folders[-1])
    return f"coref-automl re train --model {shlex.quote(model)}{_options(rows)} --out {shlex.quote(out)} --seeds 3"


def _rows_of(run: TaskRun) -> dict[str, str]:
    """The files of rows that a run names in its recipe; none in an archive."""
    paths = _paths_in(run.folder / "recipe.yaml", {}) if run.folder else {}
    return {name: paths[name][1] for name in ("train", "dev") if name in paths} if "train" in paths else {}


def _paths_in(recipe: Path, known: dict[str, str]) -> dict[str, tuple[str, str]]:
    """The paths in a run's recipe: as stored, and where they lie now. `known` are fingerprints of some of them."""
    fields = _fields_of(recipe)
    paths = {name: fields[name] for name in _MARKER_FILES if isinstance(fields.get(name), str)}
    return {name: (path, relocated(path, recipe, _MARKER_FILES[name], known.get(name, ""))) for name, path in paths.items()}


def _fields_of(recipe: Path) -> dict[str, Any]:
    try:
        return read_yaml(recipe) if is_there(recipe) else {}
    except CorefError:
        return {}


def _options(values: dict[str, str]) -> str:
    return "".join(f" --{name.replace('_', '-')} {shlex.quote(value)}" for name, value in values.items())


def _power_command(study: StudyData, top: Entry, gain: float) -> str:
    """The command that says what it takes to show such a gain, by the spreads of these runs if they have several seeds."""
    runs = Path(top.evaluation.path).parent.parent
    where = f" {shlex.quote(str(runs))}" if study.replicated and is_folder(runs) else ""
    return f"coref-automl power{where} --difference {max(0.1, 100 * gain):.1f} --metric {study.metric}"
