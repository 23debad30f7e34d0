"""Models on demand, in a process of their own. In: jobs. Out: messages while a job goes on, then its answer.

The server never imports torch: a slow model blocks no page, a model that does not fit takes its process with it and nothing else.
No code of a checkpoint is run (`models/load`), and nothing is asked of the network.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from coref_automl.errors import CorefError

Kind = Literal["fill", "chains", "relation"]
Tell = Callable[[str, Any], None]
"""Gets ("loading", model), ("running", model), and at last ("done", answer) or ("failed", sentence)."""
KEEP = 3
"""Masked language models that stay loaded; of coreference and relation models, two each."""
_WAITING = 8
_PATIENCE = 300.0


@dataclass(frozen=True, slots=True)
class Job:
    """What to run: models as (name for people, what to load), and the form's values."""

    kind: Kind
    models: tuple[tuple[str, str], ...]
    values: dict[str, Any]


class Player:
    """One process, started when it is first needed; jobs wait for each other."""

    def __init__(self, keep: int = KEEP) -> None:
        self._keep = keep
        self._jobs: queue.Queue[tuple[Job, Tell] | None] = queue.Queue(_WAITING)
        self._process: Any = None
        self._pipe: Any = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def ask(self, job: Job, tell: Tell) -> None:
        """Put a job in line; `tell` is called from a thread of the player's."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="studio-player", daemon=True)
                self._thread.start()
        try:
            self._jobs.put_nowait((job, tell))
        except queue.Full:
            tell("failed", f"{_WAITING} texts wait for the models already; try again in a moment.")

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
        if self._thread is not None:
            self._jobs.put(None)

    def _work(self) -> None:
        while (asked := self._jobs.get()) is not None:
            job, tell = asked
            try:
                self._run(job, tell)
            except (OSError, EOFError):
                tell("failed", "The process of the models ended (out of memory?); try again with a smaller model.")
                self._end()

    def _run(self, job: Job, tell: Tell) -> None:
        if self._process is None or not self._process.is_alive():
            context = multiprocessing.get_context("spawn")
            self._pipe, theirs = context.Pipe()
            self._process = context.Process(target=_serve, args=(theirs, self._keep), daemon=True)
            self._process.start()
            theirs.close()
        self._pipe.send(job)
        while self._pipe.poll(_PATIENCE):
            word, value = self._pipe.recv()
            tell(word, value)
            if word in ("done", "failed"):
                return
        self._end()
        tell("failed", f"No answer in {_PATIENCE:.0f} s; the process of the models was ended. Try a smaller model or text.")

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
        self._process = None


def _serve(pipe: Any, keep: int) -> None:
    """The process: answer jobs until the studio ends."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    held: OrderedDict[str, Any] = OrderedDict()
    while True:
        try:
            job: Job = pipe.recv()
        except (EOFError, KeyboardInterrupt):
            return

        def tell(word: str, value: Any) -> None:
            pipe.send((word, value))

        try:
            tell("done", _KINDS[job.kind](job, held, keep, tell))
        except CorefError as error:
            tell("failed", str(error))
        except Exception as error:  # a model or a text that the libraries cannot take; the next job may be fine
            tell("failed", f"{type(error).__name__}: {str(error)[:300]}")


def _fill(job: Job, held: OrderedDict[str, Any], keep: int, tell: Tell) -> list[dict[str, Any]]:
    from coref_automl.evaluation.fill import fill, find_gap
    from coref_automl.models.load import load_masked_lm

    text, nouns = job.values["text"], job.values["nouns"]
    find_gap(text)
    out = []
    for name, place in job.models:
        if place not in held:
            tell("loading", name)
            while len(held) >= keep:
                held.popitem(last=False)
            held[place] = load_masked_lm(place)
        held.move_to_end(place)
        tell("running", name)
        out.append(fill(held[place], text, name=name, nouns_only=nouns, top=10).to_json())
    return out


def _chains(job: Job, _held: Any, _keep: int, tell: Tell) -> dict[str, Any]:
    from coref_automl.coreference.predict import coreference

    name, place = job.models[0]
    tell("loading", name)
    found = coreference(job.values["text"], place, device="cpu")
    return {"text": found.text, "chains": found.chains, "note": found.note}


def _relation(job: Job, _held: Any, _keep: int, tell: Tell) -> dict[str, Any]:
    from coref_automl.relation.predict import predict_text

    name, place = job.models[0]
    tell("loading", name)
    values = job.values
    found = predict_text(
        Path(place),
        values["text"],
        values["subject"],
        values["object"],
        types=(values["subject_type"] or None, values["object_type"] or None),
        starts=(values["subject_start"], values["object_start"]),
        device="cpu",
    )
    return found.to_json()


_KINDS: dict[str, Callable[[Job, OrderedDict[str, Any], int, Tell], Any]] = {
    "fill": _fill,
    "chains": _chains,
    "relation": _relation,
}
