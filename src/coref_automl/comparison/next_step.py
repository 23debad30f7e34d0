"""The one next step. In: a study, and what its answer says. Out: a NextStep with the command that takes it.

What is shown decides: more seeds after one, more tokens where the last step gains, a plan of documents and seeds where nothing is
shown, training again where weights are gone, and relation extraction from what is kept.
"""

from __future__ import annotations

import math
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coref_automl.comparison.arms import method_name
from coref_automl.comparison.claims import Action, Keep, NextStep, NextTime, Power
from coref_automl.comparison.runs import TaskRun
from coref_automl.comparison.scores import Entry
from coref_automl.config import read_yaml
from coref_automl.errors import CorefError

if TYPE_CHECKING:
    from coref_automl.comparison.study import Study

BUNDLED_ROWS = {"train": "bundled:relations", "dev": "bundled:relations-dev"}
"""Rows that everyone has, where no run names others: a printed command runs as it is printed."""
_RELATION = "runs/re"
_LONGER = 2


def next_step(
    study: Study, action: Action, top: Entry, keep: Keep | None, ahead: NextTime | None, power: Power | None, *, replicated: bool
) -> NextStep | None:
    if action == "use checkpoint":
        made = top.evaluation.provenance
        return _step("add seeds", train_command(top, seed=made.seed + 1) if made else "")
    if ahead is not None and ahead.how == "longer" and (longer := train_command(top, times=_LONGER)):
        return _step("train longer", longer)
    if keep is not None:
        return _step("carry over", relation_command(study, keep.path)) if keep.there else _step("make again", keep.again)
    if action == "keep base":
        return _step("plan", _power_command(study, top, power, replicated=replicated))
    made = top.evaluation.provenance
    base = shlex.quote(made.base) if made and action == "no base" else ""
    return _step("evaluate base", f"coref-automl evaluate {base} --seq-len {top.evaluation.seq_len}" if base else "")


def _step(do: str, command: str) -> NextStep | None:
    return NextStep(do, command) if command else None  # type: ignore[arg-type]


def train_command(entry: Entry, *, seed: int | None = None, times: int = 1) -> str:
    """Training that makes a checkpoint again, with another seed or so many times as long: from its run's recipe, or from what its
    record says."""
    run, made = Path(entry.evaluation.path).parent, entry.evaluation.provenance
    out = shlex.quote(f"{run}-{'longer' if times > 1 else 'again' if seed is None else f'seed{seed}'}")
    other = f" --seed {seed}" if seed is not None else ""
    if made is not None and times > 1:
        other += f" --epochs {math.ceil(times * made.epoch)} --max-tokens {times * made.tokens}"
    if (run / "recipe.yaml").is_file():
        return f"coref-automl train --recipe {shlex.quote(str(run / 'recipe.yaml'))}{other} --out {out}"
    if made is None:
        return ""
    seed = made.seed if seed is None else seed
    if method_name(made) not in ("", made.objective):  # its settings are in the recipe of its study, not in its record
        told = f"--method {shlex.quote(method_name(made))} --length {made.seq_len} --first-seed {seed} --seeds 1"
        again = f"coref-automl study --recipe STUDY.yaml {told} --only train --out {shlex.quote(f'{run}-study')}"
        return again if times == 1 else ""  # how long a study trains stands in its recipe
    told = f"--objective {shlex.quote(made.objective)} --seq-len {made.seq_len} --seed {seed} --max-tokens {times * made.tokens}"
    data = f"--dataset {shlex.quote(made.dataset)}" if made.dataset else "--dataset DATASET"
    return f"coref-automl train --model {shlex.quote(made.base)} {data} {told} --out {out}"


def relation_command(study: Study, model: str) -> str:
    """Relation extraction from a checkpoint, on the rows of a run that was read, in a folder of its own."""
    runs = study.checks.get("relation", ())
    held = next((rows for run in runs if (rows := _rows_of(run))), BUNDLED_ROWS)
    data = "".join(f" --{name} {shlex.quote(path)}" for name, path in held.items())
    names = [_RELATION, f"{_RELATION}-{Path(model).name}"]
    names += [f"{names[1]}-{number}" for number in range(2, len(runs) + 3)]
    read = {run.folder for run in runs}
    out = next((name for name in names if not Path(name).exists() and Path(name).resolve() not in read), names[-1])
    return f"coref-automl re train --model {shlex.quote(model)}{data} --out {shlex.quote(out)} --seeds 3"


def _rows_of(run: TaskRun[Any, Any]) -> dict[str, str]:
    """The files of rows that a run names in its recipe; none in an archive."""
    recipe = run.folder / "recipe.yaml" if run.folder else None
    try:
        told = read_yaml(recipe) if recipe and recipe.is_file() else {}
    except CorefError:
        return {}
    held = {name: path for name in ("train", "dev") if isinstance(path := told.get(name), str)}
    return held if "train" in held else {}


def _power_command(study: Study, top: Entry, power: Power | None, *, replicated: bool) -> str:
    """What it takes to show the largest gain, or the margin where nothing gained; by these runs' spreads if they have seeds."""
    gain = power.largest if power and power.needed and power.largest else study.margin
    runs = Path(top.evaluation.path).parent.parent
    where = f" {shlex.quote(str(runs))}" if replicated and runs.is_dir() else ""
    return f"coref-automl power{where} --difference {max(0.1, 100 * gain):.1f} --metric {study.metric} --against-base"
