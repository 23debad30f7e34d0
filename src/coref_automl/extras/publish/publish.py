"""A checkpoint on the hub. In: an evaluated checkpoint and a repository. Out: its weights, its tokenizer and a card there.

The card has the scores of these very weights and the verdict against the base. Nothing else of the folder is sent: no optimizer
state, and no path of this machine.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from logging import ERROR
from pathlib import Path
from typing import Any

from coref_automl.base.decoder import read_stored
from coref_automl.base.errors import ComparisonError, InputError, ModelError, WorkError
from coref_automl.base.folders import EXPERIMENT, kind_of_folder
from coref_automl.base.records import Evaluation, Record
from coref_automl.base.say import Say, speaking
from coref_automl.base.store import read_json
from coref_automl.comparison.claims import Answer
from coref_automl.evaluation.metrics import METRICS, PRIMARY
from coref_automl.evaluation.results import find_evaluations
from coref_automl.models.model_files import published_files, weights_fingerprint
from coref_automl.report.answer_wording import headline
from coref_automl.report.printout import compare
from coref_automl.report.wording import comparison_verdict
from coref_automl.training.folder import KIND as RUN
from coref_automl.training.folder import checkpoint_of_run
from coref_automl.training.masking import OBJECTIVES

_PATH_SETTINGS = {"_name_or_path", "name_or_path"}
"""Settings that would reveal the model's folder."""


@dataclass(frozen=True, slots=True)
class Published(Record):
    """What was sent; `url` is empty if nothing was."""

    repo: str
    url: str
    private: bool
    files: tuple[str, ...]
    megabytes: float
    card: str


def publish(
    checkpoint: str,
    repo: str,
    *,
    private: bool = False,
    dry_run: bool = False,
    evaluations: str | None = None,
    lang: str | None = None,
) -> Published:
    """Send a checkpoint to a model repository, which is created if missing; sending it again changes nothing there."""
    folder = Path(checkpoint_of_run(checkpoint, "checkpoint") or checkpoint)
    if not folder.is_dir():
        raise ModelError(f"{checkpoint} is not a folder; pass a checkpoint, or a run of coref-automl train.")
    owner, _, name = repo.partition("/")
    if not owner or not name or "/" in name:
        raise InputError(f"--repo {repo} is not OWNER/NAME; pass for example --repo my-name/my-encoder.")
    files = published_files(folder)
    with speaking(lang) as say:
        card = _card(folder, repo, evaluations, say)
    contents: dict[str, Any] = {"README.md": card.encode(), **{path.name: _without_path(path) for path in files}}
    size = sum(len(content) if isinstance(content, bytes) else content.stat().st_size for content in contents.values()) / 1e6
    url = "" if dry_run else _send(contents, repo, private)
    return Published(repo, url, private, tuple(sorted(contents)), round(size, 1), card)


def _without_path(path: Path) -> bytes | Path:
    """A file as it is sent: settings without the model's folder."""
    if path.name not in ("config.json", "tokenizer_config.json"):
        return path
    settings = {key: value for key, value in read_json(path).items() if key not in _PATH_SETTINGS}
    return (json.dumps(settings, ensure_ascii=False, indent=2) + "\n").encode()


def _send(contents: dict[str, Any], repo: str, private: bool) -> str:
    """Send file contents by name in one commit; return the address of the repository."""
    from huggingface_hub import CommitOperationAdd, HfApi
    from huggingface_hub.errors import HfHubHTTPError
    from huggingface_hub.utils import logging
    from huggingface_hub.utils.tqdm import disable_progress_bars

    if not sys.stderr.isatty():
        disable_progress_bars()
    logging.set_verbosity(ERROR)
    api = HfApi()
    sources = {name: str(content) if isinstance(content, Path) else content for name, content in contents.items()}
    added = [CommitOperationAdd(name, source) for name, source in sorted(sources.items())]
    try:
        api.create_repo(repo, private=private or None, exist_ok=True)
        api.create_commit(repo, added, commit_message="Add the model, its tokenizer and its measured card")
    except HfHubHTTPError as error:
        status = getattr(error.response, "status_code", 0)
        if status in (401, 403, 404):
            raise InputError(
                f"The hub does not let you write to {repo}; run `hf auth login`, set HF_TOKEN, or pass another --repo."
            ) from error
        raise WorkError(f"The hub refused {repo} (status {status}); run the same command again later.") from error
    except Exception as error:  # whatever the network throws; the stack stays behind --debug
        raise WorkError(
            f"The hub broke off while taking {repo} ({type(error).__name__}); run the same command again: what arrived is not "
            f"sent twice."
        ) from error
    return f"{api.endpoint}/{repo}"


def _card(folder: Path, repo: str, evaluations: str | None, say: Say) -> str:
    study = next((above for above in folder.resolve().parents if kind_of_folder(above) == EXPERIMENT), None)
    run = folder.resolve().parent
    root = study / "evaluations" if study else run if kind_of_folder(run) == RUN else folder
    root = Path(evaluations) if evaluations else root
    weights = weights_fingerprint(str(folder))
    every = [stored.evaluation for stored in find_evaluations([root], skip_damaged=True)]
    scored = [evaluation for evaluation in every if evaluation.fingerprints["weights"] == weights]
    if not scored:
        raise ComparisonError(
            f"{root} has no evaluation of these weights, so the card would have no numbers; run: coref-automl evaluate "
            f"{shlex.quote(str(folder))}"
        )
    provenance = scored[0].provenance
    lines = [*_card_header(provenance.base if provenance else ""), f"# {repo.partition('/')[2]}", ""]
    lines += _verdict(folder, study, root, scored, say)
    if provenance:
        place = Path(provenance.base)
        base = f"`{place.name if place.is_absolute() else provenance.base}`"
        about = {str(name): kind.about for name, kind in OBJECTIVES.items()}[provenance.objective]
        epochs, tokens = f"{provenance.epoch:.3g}", f"{provenance.tokens:,}"
        length, seed = f"{provenance.seq_len:,}", provenance.seed
        origin = say(
            f"시작: {base}. 목표: `{provenance.objective}`. {length}토큰 블록, {epochs}에폭, {tokens}토큰, 시드 {seed}.",
            f"Started from {base}; trained by {about} on blocks of {length} tokens for {epochs} epoch{'s' * (epochs != '1')} "
            f"({tokens} tokens, seed {seed}).",
        )
        lines += ["", origin]
    lines += ["", "```python", "from transformers import pipeline"]
    lines += [f'pipeline("fill-mask", model="{repo}")("경복궁은 [MASK] 종로구에 있다.")', "```", ""]
    for evaluation in scored:
        lines += _scores(evaluation, say)
    return "\n".join(lines)


def _card_header(base: str) -> list[str]:
    """The card's metadata for the hub; a base is named if the hub may know it."""
    header = ["---", "language: ko", "library_name: transformers", "pipeline_tag: fill-mask", "tags: [masked-lm, coref-automl]"]
    known = base and not Path(base).exists() and ":" not in base and base.count("/") < 2 and not base.startswith("/")
    return [*header, *([f"base_model: {base}"] if known else []), "---"]


def _scores(evaluation: Evaluation, say: Say) -> list[str]:
    base, evalset, length = evaluation.baselines.get("un-adapted", {}), evaluation.evalset, f"{evaluation.seq_len:,}"
    title = say(f"## {evalset} 평가, {length}토큰", f"## Measured on {evalset}, {length} tokens")
    head = (say("지표", "metric"), say("값 [95% 신뢰구간]", "value [95% interval]"), say("베이스", "base"), say("문항", "items"))
    rows = [
        (METRICS[name].label if name in METRICS else name, str(value), str(base.get(name, "")), f"{value.n:,}")
        for name, value in evaluation.estimates.items()
    ]
    lines = (head, ("---", "---", "---", "---:"), *rows)
    return [title, "", *(f"| {' | '.join(line)} |" for line in lines), ""]


def _verdict(folder: Path, study: Path | None, root: Path, scored: Sequence[Evaluation], say: Say) -> list[str]:
    """The study's own answer, which corrects for the choice among its checkpoints; else the comparison with the base."""
    if study and (study / "answer.json").is_file():
        answer = read_stored(study / "answer.json", Answer)
        lines = [headline(answer, say)]
        if Path(answer.highest_path).name != folder.name or Path(answer.highest_path).parent.name != folder.resolve().parent.name:
            highest = answer.highest
            lines.append(say(f"이 연구에서 가장 높은 것은 {highest}입니다.", f"The highest of its study is {highest}."))
        return lines
    evaluation = next((evaluation for evaluation in scored if PRIMARY in evaluation.estimates), scored[0])
    try:
        table = compare(str(root), eval_set=evaluation.evalset, lang=say.lang)
        row = next(row for row in table.rows if row.path == evaluation.path)
    except (ComparisonError, StopIteration):
        row = None
    if row is None or row.comparison is None:
        return [say("베이스 모델과 비교하지 않았습니다.", "Not compared with its base.")]
    change, label, family = row.comparison.difference, METRICS[table.metric].label, row.comparison.family
    difference = f"{label} {100 * change.value:+.1f} [{100 * change.low:+.1f}, {100 * change.high:+.1f}]"
    verdict = comparison_verdict(row.comparison, say)
    return [
        say(
            f"베이스 모델 {row.comparison.reference}와 비교: {difference}점, {verdict} (비교 {family}개 보정).",
            f"Against its base {row.comparison.reference}: {difference} points, {verdict} (corrected for {family} comparisons).",
        )
    ]
