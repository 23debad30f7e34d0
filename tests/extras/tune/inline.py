"""Trials in this process: the real work without the seconds that a new process takes to import it."""

from __future__ import annotations

from dataclasses import dataclass, field

from coref_automl.base.job import Job, run_job
from coref_automl.base.launch import FinishedJob


@dataclass
class InlineLauncher:
    slots: int = 1
    jobs: list[Job] = field(default_factory=list)

    def start(self, job: Job, _slot: int) -> FinishedJob:
        self.jobs.append(job)
        return FinishedJob(run_job(job.to_json()).status)


@dataclass
class DeadLauncher:
    """Processes that die before they come to their work."""

    slots: int = 1

    def start(self, _job: Job, _slot: int) -> FinishedJob:
        return FinishedJob(1)
