"""What to do next. In: a Subject, with or without targets. Out: the distance to each target, and experiments with their commands.

Entity training from the best mlm checkpoint, from the highest, and from the best at the longest length; relation extraction from
what is to be kept; a larger set or a search where nothing beats the base.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from pathlib import Path

from coref_automl.comparison.relation_runs import RelationRun
from coref_automl.comparison.scores import Entry
from coref_automl.config import read_yaml
from coref_automl.errors import CorefError
from coref_automl.evaluation.evalset import bundled_eval_set
from coref_automl.evaluation.metrics import METRICS
from coref_automl.models.model_files import model_place
from coref_automl.report.language import interval, rounded
from coref_automl.report.page import Block, Cell, Commands, Points, Section, Table, Text, row
from coref_automl.report.subject import Subject
from coref_automl.report.wording import next_time, power

_EPOCHS = 3
_STARTS = 3
_MANY = 10
"""A set this many times as large is not worth building to show a small difference."""
_DEFAULT = 1600
"""Items per source of `prepare eval` unless told."""
_RELATION = "runs/re"


def draw(study: Subject) -> Section:
    say, it = study.say, study.answer
    blocks: list[Block] = [_against_target(study, study.target)] if study.target else []
    told = [next_time(it.next_time, say)] if it.next_time is not None else []
    told += power(it, say) if it.action == "keep base" else []
    if told:
        blocks.append(Points(tuple(told)))
    blocks += _plan(study)
    return Section("next", say("다음 할 일", "Next actions"), tuple(blocks), part="next")


def next_command(study: Subject) -> str:
    """The one command of the first screen: relation extraction from what is kept, or its training again if its weights are gone;
    a larger set or a search where nothing is."""
    keep = study.answer.keep
    if keep is not None:
        return relation_command(study, keep.path) if keep.there or not keep.again else keep.again
    return _try_next(study) if study.answer.action == "keep base" else f"coref-automl evaluate {_base(study)}"


def relation_command(study: Subject, model: str) -> str:
    """Relation extraction from a checkpoint, on the rows of a run that was read, in a folder of its own."""
    held = next((rows for run in study.relation if (rows := _rows_of(run))), {"train": "klue-re-v1.1_train.json"})
    data = "".join(f" --{name} {shlex.quote(path)}" for name, path in held.items())
    names = [_RELATION, f"{_RELATION}-{Path(model).name}"]
    names += [f"{names[1]}-{number}" for number in range(2, len(study.relation) + 3)]
    read = {run.folder for run in study.relation}
    out = next((name for name in names if not Path(name).exists() and Path(name).resolve() not in read), names[-1])
    return f"coref-automl re train --model {shlex.quote(model)}{data} --out {shlex.quote(out)} --seeds 3"


def _rows_of(run: RelationRun) -> dict[str, str]:
    """The files of rows that a run names in its recipe; none in an archive."""
    recipe = run.folder / "recipe.yaml" if run.folder else None
    try:
        told = read_yaml(recipe) if recipe and recipe.is_file() else {}
    except CorefError:
        return {}
    held = {name: path for name in ("train", "dev") if isinstance(path := told.get(name), str)}
    return held if "train" in held else {}


def _base(study: Subject) -> str:
    made = study.chosen.evaluation.provenance
    return shlex.quote(study.answer.base_path or (made.base if made else "") or "MODEL")


def _try_next(study: Subject) -> str:
    """Where nothing beats the base: a larger set if one could tell, else a search for better training."""
    held, base = study.answer.power, _base(study)
    few = "few documents" in study.answer.against
    needed = held.needed or 0 if held is not None and (few or (held.needed or math.inf) <= _MANY * held.documents) else None
    if held is not None and needed is not None and "floor" not in study.answer.against:
        items = rounded(needed * study.group.columns(study.metric).items // max(1, held.documents))
        size = f" --per-source {items}" if items > _DEFAULT else ""
        runs = shlex.quote(str(Path(study.chosen.evaluation.path).parent.parent))
        return (
            f"coref-automl prepare eval {_inputs(study.metric, size)} --model {base} --out evalsets/larger && "
            f"coref-automl evaluate {base} {runs} --eval-set evalsets/larger"
        )
    made = study.chosen.evaluation.provenance
    data = f" --dataset {shlex.quote(made.dataset)}" if made and made.dataset else " --dataset DATASET"
    return f"coref-automl tune --model {base}{data} --out studies/next"


def _inputs(metric: str, size: str) -> str:
    """What `prepare eval` makes more items of a metric from: a source, or files of its task, which are not ours to name."""
    tasks = [METRICS[name].task for name, _ in METRICS[metric].parts or ((metric, 1.0),)]
    own = {"real": f"--source kowiki{size}", "real-far": "--source kowiki", "lambada": "--lambada FILE", "gold": "--gold FILE"}
    return " ".join(dict.fromkeys(own.get(str(task), f"--file {task}=FILE") for task in tasks))


def _plan(study: Subject) -> list[Block]:
    say, starts = study.say, _starts(study)
    if not starts:
        return []
    opening = say(
        f"실험 계획: entity 목표로 {_EPOCHS} 에폭, 같은 데이터와 시드 0·1·2. 명령은 시드 0입니다.",
        f"Experiment plan: the entity objective for {_EPOCHS} epochs, same data, seeds 0, 1, 2. The commands are for seed 0.",
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
    lines = [f"coref-automl evaluate {' '.join(runs)}{option}", f"coref-automl report {' '.join(runs)} --out report"]
    blocks.append(Commands(say("그다음", "then"), tuple(lines)))
    return [*blocks, *([Text((missing + told).strip(), "quiet")] if missing or told else [])]


def _starts(study: Subject) -> list[tuple[Entry, list[str]]]:
    """Starting points, each model once, with its reasons."""
    say, peak = study.say, study.choice.peak
    trained = [entry for entry in study.entries if entry.trained]
    if not trained:
        return []
    plain = [entry for entry in trained if _objective(entry) == "mlm"]
    longest = max(entry.evaluation.seq_len for entry in trained)
    at_longest = [entry for entry in trained if entry.evaluation.seq_len == longest]
    first = (
        ("가장 높은 MLM 체크포인트", "the highest mlm checkpoint")
        if plain
        else ("가장 높은 체크포인트", "the highest checkpoint")
    )
    wanted = (
        (peak(plain or trained), say(*first)),
        (study.chosen, say("위에서 고른 체크포인트", "the checkpoint named above")),
        (peak(at_longest), say(f"가장 긴 {longest} 토큰의 최고", f"the highest at the longest length, {longest} tokens")),
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


def _against_target(study: Subject, target: Mapping[str, float]) -> Table:
    say = study.say
    lines = []
    for name, goal in target.items():
        estimate = study.chosen.evaluation.estimates.get(name)
        if estimate is None:
            told = Cell(say("평가되지 않음", "not run"), "quiet")
        elif estimate.low >= goal:
            told = Cell(say("도달", "reached"), "good")
        elif estimate.high < goal:
            short = f"{100 * (goal - estimate.value):.1f}"
            told = Cell(say(f"{short}점 모자람", f"{short} points short"), "bad")
        else:
            told = Cell(say("구간 안: 아직 알 수 없음", "inside the interval: cannot tell yet"), "quiet")
        lines.append(row(METRICS[name].label, f"{100 * goal:.1f}", interval(estimate), told))
    head = (say("수치", "metric"), say("목표 %", "target %"), study.chosen.name, say("판정", "verdict"))
    return Table(head, tuple(lines), frozenset({1, 2}), shows="all")
