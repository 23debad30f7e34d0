"""The item explorer. In: a Subject. Out: the most informative items as plain values, cropped around gap and antecedent."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from coref_automl.comparison.scores import Entry
from coref_automl.errors import CorefError
from coref_automl.evaluation.columns import holds_text, read_columns
from coref_automl.evaluation.evalset import EvalSet
from coref_automl.evaluation.metrics import METRICS
from coref_automl.evaluation.results import CHECKPOINT
from coref_automl.records import ClozeItem, Evaluation
from coref_automl.report.subject import Subject

MOST_ITEMS = 300
MOST_MODELS = 20
_QUOTAS = (120, 80)
"""Items that only the chosen model, and only the base, gets right; the rest are the most disputed."""
_FACTS = ("task", "source", "answer", "distance", "tag")
_AROUND_GAP = 150
_AROUND_ANTECEDENT = 70


def explorer(study: Subject) -> dict[str, Any]:
    """What the page's explorer shows. Words are stored once and referred to by number, because there are thousands of answers.

    `fault` explains missing passages, or missing items in an archive.
    """
    models = _models(study)
    if not all(holds_text(model.folder) for model in models):
        return {"items": [], "fault": _archived(study)}
    rows = telling_items(study, models)
    chosen = {item: number for number, item in enumerate(rows)}
    passages, fault = _passages(study, chosen)
    words: dict[str, int] = {}
    answers: list[list[Any]] = [[None] * len(models) for _ in rows]
    facts: list[dict[str, Any]] = [{} for _ in rows]
    for column, model in enumerate(models):
        held = read_columns(model.folder, (*_FACTS, "strict_rank", "lenient_rank", "word_rank", "top"))
        for values in zip(*held.values(), strict=True):
            score = dict(zip(held, values, strict=True))
            if (number := chosen.get(score["item"])) is None:
                continue
            top = [words.setdefault(word, len(words)) for word in score["top"]]
            answers[number][column] = [score["strict_rank"], score["lenient_rank"], score["word_rank"], top]
            if not facts[number]:
                facts[number] = {key: score[key] for key in _FACTS}
    items = [
        {**fact, "hits": _hits(study, str(fact["task"]), score), "scores": score, **passages.get(item, {})}
        for item, fact, score in zip(rows, facts, answers, strict=True)
    ]
    return {
        "models": [model.name for model in models],
        "words": list(words),
        "items": items,
        "a": models.index(study.chosen),
        "b": _second(study, models),
        "metric": METRICS[study.metric].label,
        "fault": fault,
        "total": len(study.group.items),
    }


def telling_items(study: Subject, models: Sequence[Entry]) -> list[str]:
    """At most 300 ids: chosen model right and base wrong, the reverse, and the largest disagreements."""
    items = study.group.items
    a, b = models.index(study.chosen), _second(study, models)
    score, side = np.zeros(len(items)), np.zeros(len(items), int)
    turn = np.zeros(len(items), int)
    for task in dict.fromkeys(items.facts["task"].tolist()):
        rows = np.flatnonzero(items.facts["task"] == task)
        right = np.stack([model.ranks[METRICS[_metric_for(study, str(task))].rule][rows] == 1 for model in models], axis=1)
        share = right.mean(axis=1)
        score[rows] = share * (1 - share)
        side[rows] = right[:, a].astype(int) - right[:, b].astype(int)
        turn[rows[np.argsort(-score[rows], kind="stable")]] = np.arange(len(rows))
    order = np.argsort(turn, kind="stable")  # the most disputed item of each task, then the next one of each
    kept: list[int] = []
    for wanted, most in ((1, _QUOTAS[0]), (-1, _QUOTAS[1])):
        kept += [int(number) for number in order if side[number] == wanted][:most]
    held = set(kept)
    kept += [int(number) for number in order if int(number) not in held][: MOST_ITEMS - len(kept)]
    ids = list(items.index)
    return [ids[number] for number in kept]


def crop(text: str, item: ClozeItem) -> list[list[str]]:
    """Pieces of the passage: ["text" | "gap" | "antecedent" | "cut", characters]. Text between distant windows is cut."""
    marks = [(item.start, item.end, "gap", _AROUND_GAP)]
    if item.antecedent is not None:
        marks.append((*item.antecedent, "antecedent", _AROUND_ANTECEDENT))
    marks.sort()
    pieces: list[list[str]] = []
    at = max(0, marks[0][0] - marks[0][3])
    if at > 0:
        pieces.append(["cut", "…"])
    for number, (start, end, kind, around) in enumerate(marks):
        pieces += [["text", text[at:start]], [kind, text[start:end]]]
        at = end
        if number + 1 < len(marks) and marks[1][0] - end > around + marks[1][3]:
            pieces += [["text", text[end : end + around]], ["cut", " … "]]
            at = marks[1][0] - marks[1][3]
    last = min(len(text), at + marks[-1][3])
    pieces.append(["text", text[at:last]])
    if last < len(text):
        pieces.append(["cut", "…"])
    return [piece for piece in pieces if piece[1]]


def _models(study: Subject) -> list[Entry]:
    """Chosen, best, base, peak and last of each run, then the best of the rest; at most twenty, in table order."""
    values = {entry: one.value for entry, one in study.choice.candidates.items()}
    wanted = [study.chosen, study.best, *(entry for entry in (study.base,) if entry)]
    for entries in study.runs().values():
        wanted += [study.choice.peak(entries), entries[-1]]
    wanted += sorted(study.entries, key=lambda entry: -values[entry].value if entry in values else 0.0)
    kept = set(list(dict.fromkeys(wanted))[:MOST_MODELS])
    return [entry for entry in study.entries if entry in kept]


def _second(study: Subject, models: Sequence[Entry]) -> int:
    other = study.base or study.best
    number = models.index(other)
    return number if other is not study.chosen else (number + 1) % len(models)


def _passages(study: Subject, chosen: Mapping[str, int]) -> tuple[dict[str, dict[str, Any]], str]:
    """The passages of the chosen items, and a sentence about each set that is missing."""
    out: dict[str, dict[str, Any]] = {}
    faults: dict[str, None] = {}
    for entry, folder in study.sets().values():
        try:
            held = EvalSet.open(folder) if folder else None
        except CorefError as error:  # the manifest matches, other files are damaged
            faults[str(error)] = None
            continue
        if held is None:
            faults[_gone(study, entry.evaluation)] = None
            continue
        for items in held.items.values():
            out.update({item.id: {"text": crop(held.documents[item.document], item)} for item in items if item.id in chosen})
    return out, " ".join(faults)


def _gone(study: Subject, evaluation: Evaluation) -> str:
    """What to do about a set that has moved."""
    name, path, model = evaluation.evalset, evaluation.evalset_path, Path(evaluation.path)
    run = str(model.parent) if CHECKPOINT.fullmatch(model.name) else evaluation.path
    command = f"coref-automl evaluate {shlex.quote(run)} --eval-set DIR"
    where = study.say(
        f"평가 세트 {name}이(가) {path}에 더 이상 없어" if path else f"평가 세트 {name}의 위치가 기록되어 있지 않아",
        f"The evaluation set {name} is no longer at {path}"
        if path
        else f"The place of the evaluation set {name} is not recorded",
    )
    return study.say(
        f"{where} 본문을 보여 줄 수 없습니다. 지금 있는 폴더로 {command} 명령을 실행한 뒤 보고서를 다시 만드세요 "
        "(다시 채점하지 않습니다).",
        f"{where}, so passages are missing; name its folder with {command} (nothing is scored again), then make the report anew.",
    )


def _archived(study: Subject) -> str:
    return study.say(
        "보관본에는 글이 없어 문항을 살펴볼 수 없습니다. 원래 평가 폴더에서 보고서를 만들면 볼 수 있습니다.",
        "An archive holds no text, so there are no items to explore; make the report from the evaluations themselves.",
    )


def _hits(study: Subject, task: str, scores: Sequence[Any]) -> list[int]:
    """1 right, 0 wrong, -1 not run, under the rule of the report's metric."""
    column = {"strict": 0, "lenient": 1, "word": 2}[METRICS[_metric_for(study, task)].rule]
    return [-1 if score is None or score[column] is None else int(score[column] == 1) for score in scores]


def _metric_for(study: Subject, task: str) -> str:
    """Gold has only `word`; a composite counts by its first part."""
    if task == "gold":
        return "gold_word"
    parts = METRICS[study.metric].parts
    return parts[0][0] if parts else study.metric
