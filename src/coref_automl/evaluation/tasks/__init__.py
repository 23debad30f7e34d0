"""The tasks. Each is one file in this folder and one line of this table; to add one, copy the file nearest to it.

`real` and `far` read the texts of `--source`; `lambada` and `gold` read annotated files of their own. Everything else follows
from the table: `prepare eval --task NAME` builds the items, `evaluate` scores them, and a task without metrics of its own in
`evaluation/metrics.py` gets NAME1, NAME1_strict and NAME_word.
"""

from __future__ import annotations

from coref_automl.evaluation.tasks import far, gold, lambada, real
from coref_automl.evaluation.tasks.task import ClozeTask

TASKS: dict[str, ClozeTask] = {
    "real": real.TASK,
    "real-far": far.TASK,
    "lambada": lambada.TASK,
    "gold": gold.TASK,
}
"""In the order of a set's files; texts of `--source` come before annotated files."""
