"""The next experiments. In: a Subject. Out: up to three training runs with the commands that start and compare them."""

from __future__ import annotations

import shlex
from pathlib import Path

from coref_automl.comparison.scores import Entry
from coref_automl.evaluation.evalset import bundled_eval_set
from coref_automl.models.model_files import model_place
from coref_automl.report.headline import relation_command
from coref_automl.report.page import Block, Commands, Section, Text
from coref_automl.report.subject import Subject

_EPOCHS = 3
_STARTS = 3


def draw(study: Subject) -> Section | None:
    """Entity training from the best mlm checkpoint, the recommended one, the best at the longest length; no duplicates."""
    say = study.say
    starts = _starts(study)
    if not starts:
        return None
    count = len(starts)
    opening = say(
        f"entity 목표로 {_EPOCHS} 에폭을 같은 데이터와 시드 0·1·2에서 돌려 시드끼리 짝지어 비교하세요. 명령은 시드 0입니다.",
        f"Train the entity objective for {_EPOCHS} epochs on the same data with seeds 0, 1, 2, and compare paired by seed. The "
        "commands are for seed 0.",
    )
    if count < _STARTS:
        opening += say(
            f" 출발점 {_STARTS}가지 중 겹치는 것이 있어 실험은 {count}개입니다.",
            f" The {_STARTS} starting points are {count} different checkpoint{'s' * (count > 1)}, so there "
            f"{'are' if count > 1 else 'is'} {count} plan{'s' * (count > 1)}.",
        )
    blocks: list[Block] = [Text(opening)]
    runs, missing = [], ""
    for letter, (entry, reasons) in zip("ABC", starts, strict=False):
        out = f"runs/plan_{letter.lower()}_entity_{_length(entry)}"
        runs.append(out)
        dataset, told = _dataset(study, entry)
        missing += told if told not in missing else ""
        line = (
            f"coref-automl train --model {shlex.quote(entry.evaluation.path)} --dataset {dataset} "
            f"--objective entity --epochs {_EPOCHS} --seed 0 --out {out}"
        )
        blocks.append(Commands(f"{letter}: {say(' · ', '; ').join(reasons)} ({entry.name})", (line,)))
    option, told = _eval_set(study)
    lines = (
        f"coref-automl evaluate {' '.join(runs)}{option}",
        f"coref-automl report {' '.join(runs)} --out report",
        relation_command(study),
    )
    blocks.append(Commands(say("그다음", "then"), lines))
    if missing or told:
        blocks.append(Text((missing + told).strip(), "quiet"))
    return Section("plan", say("실험 계획", "Experiment plan"), tuple(blocks), part="next")


def _starts(study: Subject) -> list[tuple[Entry, list[str]]]:
    """Starting points, each model once, with its reasons."""
    say = study.say
    trained = [entry for entry in study.entries if entry.trained]
    if not trained:
        return []
    plain = [entry for entry in trained if _objective(entry) == "mlm"]
    longest = max(entry.evaluation.seq_len for entry in trained)
    at_longest = [entry for entry in trained if entry.evaluation.seq_len == longest]
    chosen = say("추천된 체크포인트에서", "from the recommended checkpoint")
    if study.recommendation.use.status == "not better than the base":
        chosen = say("사후 평균이 가장 높은 체크포인트에서", "from the checkpoint of the highest posterior mean")
    wanted = (
        (study.peak(plain), say("가장 좋은 MLM 체크포인트에서", "from the best mlm checkpoint"))
        if plain
        else (study.peak(trained), say("가장 좋은 체크포인트에서", "from the best checkpoint")),
        (study.chosen, chosen),
        (
            study.peak(at_longest),
            say(f"가장 긴 {longest} 토큰의 최고에서", f"from the best at the longest length, {longest} tokens"),
        ),
    )
    out: dict[str, tuple[Entry, list[str]]] = {}
    for entry, reason in wanted:
        out.setdefault(model_place(entry.evaluation.path), (entry, []))[1].append(reason)
    return list(out.values())


def _dataset(study: Subject, entry: Entry) -> tuple[str, str]:
    """The dataset of an entity run of the same length, or of one whose rows can be cut to it; else a placeholder and its
    explanation."""
    length = _length(entry)
    made = (one.evaluation.provenance for one in study.entries)
    held = [one for one in made if one and one.objective == "entity" and one.dataset and one.seq_len % length == 0]
    if held:
        return f"{shlex.quote(min(held, key=lambda one: one.seq_len).dataset)} --seq-len {length}", ""
    return "DATASET", study.say(
        f"DATASET: {length} 토큰으로 준비한 entity 데이터셋의 폴더입니다. ",
        f"DATASET is the folder of an entity dataset prepared at {length} tokens. ",
    )


def _eval_set(study: Subject) -> tuple[str, str]:
    """The option that names this report's set (none for the bundled one), or a placeholder and its explanation."""
    held = study.chosen.evaluation
    _, folder = study.sets()[held.fingerprints.get("items", "")]
    if folder == bundled_eval_set():
        return "", ""
    if folder is not None:
        return f" --eval-set {shlex.quote(str(folder))}", ""
    return " --eval-set EVALSET", study.say(
        f"EVALSET: 평가 세트 {held.evalset}의 폴더입니다.", f"EVALSET is the folder of the evaluation set {held.evalset}."
    )


def _objective(entry: Entry) -> str:
    return entry.evaluation.provenance.objective if entry.evaluation.provenance else Path(entry.run).name.split("_")[0]


def _length(entry: Entry) -> int:
    return entry.evaluation.provenance.seq_len if entry.evaluation.provenance else entry.evaluation.seq_len
