"""The study in its storage. In: a recipe, and a binding of what trials depend on. Out: an Optuna study that is bound to it.

By default a journal file in the study's folder; `--storage postgresql://...` is shared by many machines. A trial that a dead
process left RUNNING is closed as interrupted, and its settings are queued again: it is neither lost nor counted twice.
"""

from __future__ import annotations

import json
import re
import time
import warnings
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from coref_automl.base.binding import SAME, check_binding
from coref_automl.base.errors import InputError, MissingExtra
from coref_automl.base.fingerprints import fingerprint
from coref_automl.base.store import JsonlAppender
from coref_automl.extras.tune.problem import Start
from coref_automl.extras.tune.recipe import TuneRecipe

JOURNAL = "study.journal"
SILENT_SECONDS = 300.0
"""Without a heartbeat for so long, another machine's trial counts as orphaned."""
HEARTBEAT_SECONDS = 30.0
"""Between two heartbeats of a trial, and between two searches for orphaned trials."""
_QUEUE_SECONDS = 30.0
"""How long to wait for the machine that creates a study to fill its queue; it may have died."""


def open_study(recipe: TuneRecipe, out: Path, binding: Mapping[str, Any], *, starts: Sequence[Start] = ()) -> Any:
    """Create the study with `starts` in its queue, or resume it. One begun with another space, data or budget is refused.

    The storage lets one of several machines create the study; the others wait until it has filled the queue.
    """
    optuna = _optuna()
    storage, pruner = storage_of(recipe.storage, out), optuna.pruners.NopPruner()
    try:
        study = optuna.create_study(storage=storage, study_name=recipe.study, direction="maximize", pruner=pruner)
    except optuna.exceptions.DuplicatedStudyError:
        study = optuna.load_study(storage=storage, study_name=recipe.study, pruner=pruner)
        deadline = time.monotonic() + (0.0 if recipe.storage is None else _QUEUE_SECONDS)
        while not study.user_attrs.get("queued") and time.monotonic() < deadline:
            time.sleep(0.1)
    if (begun := study.user_attrs.get("binding")) is None:
        study.set_user_attr("binding", json.loads(json.dumps(binding)))
    else:
        check_binding(f"The study {recipe.study!r}", begun, binding, f"{SAME}, and with a shared --storage another --study name")
    if not study.user_attrs.get("queued"):
        for start in starts:
            study.enqueue_trial(start.params, user_attrs={"origin": start.origin, "name": start.name}, skip_if_exists=True)
        study.set_user_attr("queued", True)
    return study


def counts(trial: Any) -> bool:
    """Does it count towards the trials of the recipe? Interrupted ones run again under another number."""
    return not trial.user_attrs.get("interrupted") and not trial.user_attrs.get("surplus")


def heartbeat(trial: Any, last: float) -> float:
    """Write to the storage that this trial is alive, if the `last` heartbeat is too long ago; return the time of the latest."""
    now = time.time()
    if now - last < HEARTBEAT_SECONDS:
        return last
    trial.set_user_attr("alive", now)
    return now


def recover(study: Any, owner: str, *, private: bool, ours: Collection[int] = ()) -> list[int]:
    """Close and requeue trials that a dead process left RUNNING; return their numbers.

    In a `private` storage every running trial is dead, because we hold the folder's lock; in a shared one those of our own folder
    are, and those without a heartbeat for too long. `ours` are the numbers of trials that this process runs.
    """
    optuna = _optuna()
    closed = []
    for trial in study.get_trials(deepcopy=False, states=[optuna.trial.TrialState.RUNNING]):
        last = float(trial.user_attrs.get("alive") or trial.datetime_start.timestamp())
        dead = private or trial.user_attrs.get("owner") == owner or time.time() - last > SILENT_SECONDS
        if trial.number not in ours and dead and queue_again(study, trial, "the process of the study ended while it ran"):
            closed.append(trial.number)
    return closed


def queue_again(study: Any, trial: Any, reason: str, **attributes: Any) -> bool:
    """Close a trial as interrupted and put its settings at the head of the queue; False if another process did so first."""
    optuna = _optuna()
    storage = study._storage
    trial = storage.get_trial(trial._trial_id)  # that of a running process is not frozen
    settings = trial.params or trial.system_attrs.get("fixed_params")
    with suppress(optuna.exceptions.UpdateFinishedTrialError, RuntimeError):
        storage.set_trial_user_attr(trial._trial_id, "interrupted", True)
        storage.set_trial_user_attr(trial._trial_id, "reason", reason)
        if not storage.set_trial_state_values(trial._trial_id, optuna.trial.TrialState.FAIL):
            return False
        if settings:  # else it had drawn nothing yet
            inherited = {key: value for key, value in trial.user_attrs.items() if key in ("origin", "name", "attempt", "died")}
            study.enqueue_trial(settings, user_attrs={**inherited, **attributes, "again": trial.number})
        return True
    return False


def storage_of(url: str | None, out: Path) -> Any:
    """Open the storage of a study, or refuse one that cannot be used."""
    optuna = _optuna()
    if url is None:
        path = out / JOURNAL
        JsonlAppender(path).close()  # a kill may have cut the last line in two
        with suppress(FileNotFoundError):
            (path.parent / f"{JOURNAL}.lock").unlink()  # left by a killed process: we hold the folder's own lock
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            return optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(path)))
    return _database(url)


def _database(url: str) -> Any:
    optuna = _optuna()
    try:
        import sqlalchemy
    except ImportError as missing:
        raise MissingExtra("SQLAlchemy", "scale", "--storage") from missing
    driver = re.sub(r"^postgres(ql)?://", "postgresql+psycopg://", url)
    try:
        # one connection per query: a study makes a few per second, and none stays open in a process that is killed or forked
        return optuna.storages.RDBStorage(driver, engine_kwargs={"poolclass": sqlalchemy.pool.NullPool})
    except ModuleNotFoundError as missing:
        raise MissingExtra(str(missing.name), "scale", "--storage") from missing
    except (sqlalchemy.exc.SQLAlchemyError, optuna.exceptions.StorageInternalError, ImportError, ValueError) as error:
        why = " ".join(str(error.__cause__ or error).split())[:160]
        remedy = "start the server, correct the address, or leave out --storage for a file"
        raise InputError(f"The storage {without_password(url)} cannot be used ({why}); {remedy}.") from error


def without_password(url: str) -> str:
    return re.sub(r"(//[^:/@]+):[^@]*@", r"\1:***@", url)


def sampler_of(recipe: TuneRecipe, already: int, owner: str) -> Any:
    """Return the sampler of the next trial: the same for a resumed study, another one for a second machine."""
    optuna = _optuna()
    seed = int(fingerprint(recipe.seed, already, owner if recipe.storage else "")[:8], 16)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        startup = max(4, min(10, recipe.trials // 4))
        return optuna.samplers.TPESampler(seed=seed, n_startup_trials=startup, multivariate=True, group=True, constant_liar=True)


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as missing:
        raise MissingExtra("optuna", "tune", "tune") from missing
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna
