"""Coreference runs compared by themselves. In: their paths. Out: tables for the terminal."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from coref_automl.comparison.copies import repeated
from coref_automl.comparison.coreference_methods import CoreferenceAnswer, CoreferenceComparison, compare_coreference
from coref_automl.comparison.coreference_runs import look_for_coreference
from coref_automl.config import as_paths
from coref_automl.errors import ComparisonError
from coref_automl.records import Estimate
from coref_automl.report.language import Say, language, p_text
from coref_automl.report.wording import side, verdict
from coref_automl.tabular import align


@dataclass(frozen=True, slots=True)
class PrintedCoreference(CoreferenceComparison):
    """A CoreferenceComparison that prints as two tables: methods, and verdicts between them."""

    def __str__(self) -> str:
        say = Say(language())
        head = say(
            f"CoNLL, 문서 {self.documents}개, 언급 {self.mentions:,}개. 신뢰구간은 실행과 문서를 교차해 구했습니다.",
            f"CoNLL over {self.documents} documents, {self.mentions:,} mentions; intervals over runs crossed with documents",
        )
        gold, found = say("정답 언급", "gold mentions"), say("찾은 언급", "found mentions")
        scores: list[tuple[str, ...]] = [(say("방법", "method"), say("실행", "runs"), gold, found)]
        scores += [(one.name, str(one.runs), *(f"{100 * value:.2f}" for value in one.conll.values())) for one in self.methods]
        lines = [head, "", *align(scores)]
        if self.answers:
            rows: list[tuple[str, ...]] = [(say("차이", "difference"), gold, "p (BH)", found, say("판정", "verdict"))]
            rows += [_cells(one, say) for one in self.answers]
            lines += ["", *align(rows)]
        return "\n".join([*lines, *([""] if self.notes else []), *self.notes])


def compare_runs(*paths: Any) -> PrintedCoreference:
    """Verdicts between the methods whose coreference runs are under the paths."""
    names = as_paths(paths, "paths")
    runs, unread = look_for_coreference(names)
    if not runs:
        none = f"No finished coreference run under {', '.join(names)}; make one with: coref-automl coref train"
        raise ComparisonError(unread[0] if unread else none)
    say = Say(language())
    left = [*unread, *repeated(runs)]
    found = compare_coreference(runs, notes=[say(f"제외: {wrong}", f"Left out: {wrong}") for wrong in left])
    return PrintedCoreference(**{part.name: getattr(found, part.name) for part in fields(found)})


def _cells(one: CoreferenceAnswer, say: Say) -> tuple[str, ...]:
    claim = one.claim
    about = say(" (이 체크포인트들)", " (these checkpoints)") if "checkpoint" in claim.against else ""
    return (
        f"{claim.a} - {side(claim.b, say)}",
        _change(claim.difference),
        p_text(claim.p),
        _change(one.found),
        verdict(claim, say) + about,
    )


def _change(interval: Estimate) -> str:
    return f"{100 * interval.value:+.2f} [{100 * interval.low:+.2f}, {100 * interval.high:+.2f}]"
