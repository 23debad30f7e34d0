"""The exceptions a user can meet. Each message is one sentence: what is wrong, and what to do next.

CorefError
├── InputError            exit 2: the command, or a file it names, is wrong
│   ├── RecipeError           a recipe or an option has an unknown name or an impossible value
│   ├── SourceError           a text source cannot be read
│   ├── DatasetError          a prepared dataset is missing, damaged, or made for another tokenizer
│   ├── EvalSetError          an evaluation set is missing, edited, or lacks a noun table
│   ├── ModelError            a model or checkpoint cannot be loaded as what was asked for
│   ├── RelationDataError     a relation-extraction row is wrong
│   ├── CoreferenceDataError  an annotated text is wrong
│   ├── ComparisonError       evaluations that cannot be compared
│   ├── FolderError           an output folder holds something else
│   │   └── InputsChanged         it was begun with other settings, data or model files
│   └── MissingExtra          an optional package is not installed
└── WorkError             exit 1: the work itself failed
    ├── TrainingError         training cannot continue
    │   ├── NotFinite             the loss is NaN or infinite
    │   └── OutOfMemory           not even the smallest batch fits
    ├── EvaluationError       one or more checkpoints could not be scored
    ├── TuningError           a study cannot continue
    ├── StorageError          the disk is full or a folder cannot be written
    └── WorkerDied            a worker process was killed at every attempt
"""

from __future__ import annotations


class CorefError(Exception):
    """Anything this package raises on purpose."""

    exit_status = 1


class InputError(CorefError):
    exit_status = 2


class RecipeError(InputError): ...


class SourceError(InputError): ...


class DatasetError(InputError): ...


class EvalSetError(InputError): ...


class ModelError(InputError): ...


class RelationDataError(InputError): ...


class CoreferenceDataError(InputError): ...


class ComparisonError(InputError): ...


class FolderError(InputError): ...


class InputsChanged(FolderError): ...


class MissingExtra(InputError):
    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(package, extra, purpose)  # unchanged, so that the error can be pickled

    def __str__(self) -> str:
        package, extra, purpose = self.args
        return f"{purpose} needs {package}, which is not installed. Run: pip install 'coref-automl[{extra}]'"


class WorkError(CorefError): ...


class TrainingError(WorkError): ...


class NotFinite(TrainingError): ...


class OutOfMemory(TrainingError): ...


class EvaluationError(WorkError): ...


class TuningError(WorkError): ...


class StorageError(WorkError): ...


class WorkerDied(WorkError): ...


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its class name if it has none."""
    return (str(error).splitlines() or [""])[0] or type(error).__name__
