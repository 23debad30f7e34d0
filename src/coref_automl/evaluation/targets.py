"""Models to evaluate. In: paths of checkpoints, runs, or folders of runs. Out: each model once, with a unique name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from coref_automl.errors import CorefError, ModelError
from coref_automl.evaluation import results
from coref_automl.evaluation.windows import WordMode
from coref_automl.models.load import load_tokenizer, tokenizer_fingerprint
from coref_automl.models.model_files import is_here, model_place, model_prints, refuse_foreign, resolve
from coref_automl.paths import natural_order
from coref_automl.progress import Progress

_DEEPEST = 3


def find_targets(paths: Sequence[str | Path], out: Path | None = None, unread: list[str] | None = None) -> list[results.Target]:
    """The models behind the paths, each once: checkpoints of a run in natural order, runs of a folder in natural order.

    `unread` gets a sentence for each folder under them that cannot be looked into.
    """
    targets: dict[str, results.Target] = {}
    for path in paths:
        for model in _models(str(path), [] if unread is None else unread):
            targets.setdefault(model_place(model), results.target_of(model, out))
    return _unique(list(targets.values()))


def base_targets(models: Sequence[str], beside: Sequence[results.Target], out: Path | None = None) -> dict[str, results.Target]:
    """The targets of models that checkpoints began from; none shares a folder with another, nor with one of those `beside` it."""
    held = {model_place(target.model): target for target in beside}
    for model in models:
        held.setdefault(model_place(model), results.target_of(model, out))
    apart = dict(zip(held, _unique(list(held.values())), strict=True))
    return {model: apart[model_place(model)] for model in models}


def _models(path: str, unread: list[str]) -> list[str]:
    """The models a path means; what is not a folder is left to the loader, which knows hub ids and bundled names."""
    folder = Path(path)
    if not path:
        raise ModelError("A path is empty; pass a checkpoint, a run, runs, or . for this folder.")
    if not folder.is_dir():
        resolve(path)
        return [path]
    if checkpoints := results.checkpoint_folders(folder):
        return [str(checkpoint) for checkpoint in checkpoints]
    if results.is_model_folder(folder) or results.CHECKPOINT.fullmatch(folder.resolve().name):
        return [path]
    inside = [model for run in _run_folders(folder, _DEEPEST, unread) for model in _models(str(run), unread)]
    if not inside and unread:
        raise ModelError(unread[0])
    if not inside:
        refuse_foreign(folder)
        raise ModelError(
            f"{path} holds no checkpoint (no checkpoint-N folder and no config.json); pass a checkpoint, a run, or runs."
        )
    return inside


def _run_folders(folder: Path, depth: int, unread: list[str]) -> Iterator[Path]:
    for path in sorted((entry for entry in folder.iterdir() if entry.is_dir()), key=lambda entry: natural_order(entry.name)):
        if path.name in (results.EVALUATIONS, results.BASES) or path.name.startswith("."):
            continue
        try:
            own = bool(results.checkpoint_folders(path)) or results.is_model_folder(path)
        except PermissionError as error:
            unread.append(f"{path} cannot be read ({error.strerror}); make it readable, or move it away.")
            continue
        if own:
            yield path
        elif depth > 1:
            yield from _run_folders(path, depth - 1, unread)


def _unique(targets: list[results.Target]) -> list[results.Target]:
    """Of models with one name from different places, the later ones get a mark, so that none overwrites another."""
    owners: dict[Path, str] = {}
    out = []
    for target in targets:
        if owners.setdefault(target.base, target.owner() or target.home) != target.home:
            target = results.marked(target)
        out.append(target)
    names = [target.name for target in out]
    return [replace(entry, name=Path(entry.model).as_posix()) if names.count(entry.name) > 1 else entry for entry in out]


def words_to_compare(targets: Sequence[results.Target], words: WordMode, progress: Progress) -> WordMode:
    """`words` as asked, or a sample of them where tokenizers differ: word ranks are all that such models can be compared by."""
    if words not in ("none", "gold"):
        return words
    by_bytes: dict[str, str] = {}
    for target in targets:
        try:
            made = target.provenance()
            for model in (target.model, *([made.base] if made and is_here(made.base) else [])):
                by_bytes.setdefault(model_prints(model, weights=False)["tokenizer_files"], model)
        except CorefError:
            continue  # the target's own evaluation will report it
    if len(by_bytes) < 2 or len({tokenizer_fingerprint(load_tokenizer(model)) for model in by_bytes.values()}) < 2:
        return words
    progress.note(
        "토크나이저가 서로 달라, 비교에 쓸 단어 순위를 표본으로 함께 채점합니다(--words sample).",
        "Tokenizers differ, so word ranks are scored on a sample, by which such models are compared (--words sample).",
    )
    return "sample"
