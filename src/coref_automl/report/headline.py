"""What the recommendation says first. In: a Subject and the verdict about the base. Out: headline, sentence, what to keep.

This is the one place that reads a Recommendation for the first screen. Its status drives the headline: where nothing beats the
base, the headline says so and the sentence what it would take.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from coref_automl.comparison.advice import Status
from coref_automl.comparison.differences import finding
from coref_automl.comparison.relation_runs import RelationRun
from coref_automl.config import read_yaml
from coref_automl.errors import CorefError
from coref_automl.evaluation.metrics import METRICS
from coref_automl.report.language import percent, points, rounded, tokens
from coref_automl.report.page import Badge, Keep, Verdict
from coref_automl.report.sentences import verdict
from coref_automl.report.subject import Subject

BADGES: dict[Status, Badge] = {"shown": "shown", "in part": "part", "open": "open", "not better than the base": "not"}


_FLOOR = 0.02
"""If no model scores more, differences cannot show."""
_FEW = 20
"""Fewer documents show nothing."""
_DEFAULT = 1600
"""Items per source of `prepare eval` unless told."""
_MANY = 10
"""A set this many times as large is not worth building to show a small difference."""
_RELATION = "runs/re"


@dataclass(frozen=True, slots=True)
class Advice:
    headline: str
    sentence: str
    keep: Keep


def advice(study: Subject, against_base: Verdict | None, reason: str = "") -> Advice:
    """`against_base` answers whether adapting beats the base; None if no base was evaluated. `reason` says why this method."""
    say, use = study.say, study.recommendation.use
    badge = BADGES[use.status]
    if against_base is not None and against_base.badge == "not":
        headline = say(
            "원래 모델을 그대로 쓰세요: 더 나은 것이 확인되지 않았습니다", "Keep the base: nothing here is shown to beat it"
        )
        base = study.base.evaluation.path if study.base else ""
        best = say(f"학습한 것 중 사후 평균 최고: {use.name}. ", f"Highest of what was trained: {use.name}. ")
        return Advice(headline, what_it_takes(study), Keep(base, None, best + _status(study), _try_next(study)))
    if use.seeds > 1:
        headline = say(f"{use.objective} · {use.length:,} 토큰을 쓰세요", f"Use {use.objective} at {use.length:,} tokens")
    elif against_base is not None:
        headline = say("적응한 모델이 원래 모델보다 낫습니다", "The adapted model beats the base")
    else:
        headline = use.name
    sentence = " ".join(filter(None, (_why(study), reason, next_time(study))))
    return Advice(headline, sentence, Keep(use.checkpoint, badge, _status(study), relation_command(study)))


def next_time(study: Subject) -> str:
    """How long to train next time, in one short sentence; empty if no run has a curve."""
    say, ahead = study.say, study.recommendation.next_time
    if ahead is None:
        return ""
    known, now = study.recommendation.use.tokens is not None, tokens(study.recommendation.use.tokens)
    ko, en = (f"({now} 토큰)", f" ({now} tokens)") if known else ("", "")
    if ahead.share is None:
        return say(f"다음에도 이만큼{ko} 학습하세요.", f"Next time, train as long{en}.")
    if ahead.share == 1:
        return say(
            f"마지막 체크포인트가 가장 높으므로 다음에는 이번{ko}보다 길게 학습해 보세요.",
            f"It was highest at its end: next time, try {f'more than {now} tokens' if known else 'longer'}.",
        )
    share, until = f"{100 * ahead.share:.0f}%", tokens(ahead.tokens)
    if ahead.tokens is None:
        return say(f"다음에는 이번의 {share}만 학습하면 됩니다.", f"Next time, {share} of this training will do.")
    return say(
        f"다음에는 {until} 토큰까지(이번의 {share}) 학습하면 됩니다.",
        f"Next time, {until} tokens will do ({share} of this training).",
    )


def _why(study: Subject) -> str:
    say, it = study.say, study.recommendation
    label, use = METRICS[it.metric].label, it.use
    where = {"all": "", "confirm": say(", 확인용 절반", ", confirm half"), "select": say(", 선택용 절반", ", select half")}[
        use.judged_on
    ]
    seeds = say(f" (시드 {use.seeds}개 평균{where})", f" (mean of {use.seeds} seeds{where})") if use.seeds > 1 else ""
    if use.over_base is None:
        return f"{label} {percent(use.value)}{seeds}."
    change = points(use.over_base)
    if use.seeds < 2:
        return say(f"{label}: 원래 모델 대비 {change}점{where}.", f"{label}: {change} points over the base{where}.")
    return say(
        f"시드 2개 이상인 방법 가운데 사후 평균이 가장 높습니다(선택용 절반). {label}: 원래 모델 대비 {change}점{seeds}.",
        f"Of the methods with several seeds it has the highest posterior mean (select half). {label}: {change} points over the "
        f"base{seeds}.",
    )


def what_it_takes(study: Subject) -> str:
    """What would show a gain over the base: a score off the floor, other training, or more documents."""
    say, it = study.say, study.recommendation
    best = max(it.over_bases, key=lambda one: one.difference.value, default=None)
    if best is None:
        return ""
    label, highest, told = METRICS[it.metric].label, _highest(study), []
    if _at_floor(study):
        told.append(
            say(
                f"바닥 효과: 가장 높은 {label}도 {100 * highest:.1f}%여서 차이가 드러날 수 없습니다.",
                f"Floor effect: the highest {label} is {100 * highest:.1f}%, too low for a difference to show.",
            )
        )
    elif it.documents < _FEW:
        return say(
            f"판정한 문서가 {it.documents}개뿐이어서 차이를 확인할 수 없습니다. 더 큰 평가 세트로 다시 평가하세요.",
            f"Documents that judge: {it.documents}, too few to show a difference. Evaluate on a larger set.",
        )
    again = say(
        "데이터, 목표, 학습률을 바꾸거나 더 오래 학습하세요.", "Train on other data, with another objective or rate, or longer."
    )
    if finding(best) == "same":
        same = say(
            "가장 높은 것도 맞고 틀린 문항이 원래 모델과 모두 같습니다.",
            "Even the highest is right and wrong on the same items as the base.",
        )
        return " ".join((*told, same, again))
    change = say(
        f"가장 큰 차이는 {points(best.difference)}점입니다", f"The largest difference is {points(best.difference)} points"
    )
    if (documents := _documents_needed(study)) is None:
        return " ".join((*told, f"{change}.", again))
    could = f"{100 * (best.detectable or 0):.1f}"
    half = ("확인용 절반에 ", " in the confirm half") if it.judged_on == "confirm" else ("", "")
    told.append(
        say(
            f"{change}(검출 가능 차이 {could}점, 검정력 80%). 이만한 차이를 확인하려면 {half[0]}문서가 약 {documents:,}개"
            f"(지금 {it.documents:,}개) 필요합니다. 아니면 더 크게 오르도록 학습을 바꾸세요.",
            f"{change}; this set detects {could} with 80% power. Detecting that one takes about {documents:,} documents{half[1]} "
            f"(now {it.documents:,}), or training that gains more.",
        )
    )
    return " ".join(told)


def _documents_needed(study: Subject) -> int | None:
    """As many as would detect the largest gain seen, among those that judge; None if there is none."""
    it = study.recommendation
    best = max(it.over_bases, key=lambda one: one.difference.value)
    if best.difference.value <= 0 or not best.detectable:
        return None
    return rounded(int(it.documents * (best.detectable / best.difference.value) ** 2) + 1)


def _status(study: Subject) -> str:
    """The recommended checkpoint in numbers; why its method may be shown to beat the base and it alone not; the other methods."""
    say, it = study.say, study.recommendation
    use, alone, told = it.use, it.over_base, [f"{METRICS[it.metric].label} {percent(it.value)}."]
    if alone is not None:
        change, family = points(alone.difference), alone.family
        if use.seeds > 1 and use.status != "not better than the base" and finding(alone) != "better":
            told.append(
                say(
                    f"확인된 것은 시드 {use.seeds}개로 본 방법의 향상입니다. 체크포인트 하나({change}점)는 시드 하나이고 비교 "
                    f"{family}개 중 하나라서 미확인입니다(max-T 보정).",
                    f"What is shown is the method's gain over {use.seeds} seeds; this checkpoint alone ({change} points) is one "
                    f"seed among {family} comparisons (max-T) and not shown.",
                )
            )
        else:
            told.append(
                say("원래 모델과의 차이: ", "Over the base: ")
                + (f"{change}, " if finding(alone) != "same" else "")
                + f"{verdict(alone, say.lang)}."
            )
    if use.seeds > 1 and (won := len(use.better_than)):
        others = won + len(use.open_against)
        among = "the other" if others == 1 else f"all {others} others" if won == others else f"{won} of the {others} others"
        told.append(
            say(
                f"시드 2개 이상인 다른 방법 {others}개 중 {won}개보다 나음 확인.",
                f"The method is shown better than {among} with several seeds.",
            )
        )
    return " ".join(told)


def relation_command(study: Subject) -> str:
    """Relation extraction from the recommended checkpoint, on the rows of a run that was read, in a folder of its own."""
    chosen = study.recommendation.chosen
    held = next((rows for run in study.relation if (rows := _rows_of(run))), {"train": "klue-re-v1.1_train.json"})
    data = "".join(f" --{name} {shlex.quote(path)}" for name, path in held.items())
    names = [_RELATION, f"{_RELATION}-{Path(chosen).name}"]
    names += [f"{names[1]}-{number}" for number in range(2, len(study.relation) + 3)]
    read = {run.folder for run in study.relation}
    out = next((name for name in names if not Path(name).exists() and Path(name).resolve() not in read), names[-1])
    return f"coref-automl re train --model {shlex.quote(chosen)}{data} --out {shlex.quote(out)} --seeds 3"


def _rows_of(run: RelationRun) -> dict[str, str]:
    """The files of rows that a run names in its recipe; none in an archive."""
    recipe = run.folder / "recipe.yaml" if run.folder else None
    try:
        told = read_yaml(recipe) if recipe and recipe.is_file() else {}
    except CorefError:
        return {}
    held = {name: path for name in ("train", "dev") if isinstance(path := told.get(name), str)}
    return held if "train" in held else {}


def _try_next(study: Subject) -> str:
    """The command to run where nothing beats the base: a larger set if one could tell, else a search for better training."""
    it, made = study.recommendation, study.chosen.evaluation.provenance
    base = shlex.quote(study.base.evaluation.path if study.base else "MODEL")
    needed = _documents_needed(study) if it.over_bases else None
    if not _at_floor(study) and (it.documents < _FEW or (needed is not None and needed <= _MANY * it.documents)):
        halves = 2 if it.judged_on == "confirm" else 1
        items = rounded(halves * (needed or 0) * it.over_bases[0].difference.n // it.documents) if it.over_bases else 0
        size = f" --per-source {items}" if items > _DEFAULT else ""
        runs = shlex.quote(str(Path(it.chosen).parent.parent))
        return (
            f"coref-automl prepare eval {_inputs(it.metric, size)} --model {base} --out evalsets/larger && "
            f"coref-automl evaluate {base} {runs} --eval-set evalsets/larger"
        )
    data = f" --dataset {shlex.quote(made.dataset)}" if made and made.dataset else ""
    return f"coref-automl tune --recipe recipes/tune.yaml --model {base}{data} --out studies/next"


def _inputs(metric: str, size: str) -> str:
    """What `prepare eval` makes more items of a metric from: a source, or files of its task, which are not ours to name."""
    tasks = [METRICS[name].task for name, _ in METRICS[metric].parts or ((metric, 1.0),)]
    own = {"real": f"--source kowiki{size}", "real-far": "--source kowiki", "lambada": "--lambada FILE", "gold": "--gold FILE"}
    return " ".join(dict.fromkeys(own.get(str(task), f"--file {task}=FILE") for task in tasks))


def _highest(study: Subject) -> float:
    """The highest value of the study's metric, base included."""
    return max((found.value for entry in study.entries if (found := entry.evaluation.estimates.get(study.metric))), default=1.0)


def _at_floor(study: Subject) -> bool:
    return _highest(study) < _FLOOR
