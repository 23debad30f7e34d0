"""Every surface says one thing about a study: generated studies, and contradictions edited by hand into what surfaces print."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.agreement.__main__ import checked
from tests.agreement.checks import findings
from tests.agreement.reading import read
from tests.agreement.studies import Plan, draw, small, write
from tests.agreement.surfaces import Printed, printed

STUDIES = (5, 7, 9, 11, 14, 19, 23, 24)
"""A few of the generated ones; `python -m tests.agreement --count 2000` runs many."""


@pytest.mark.parametrize("seed", STUDIES)
def test_every_surface_says_the_same_of_a_generated_study(seed: int) -> None:
    assert checked(seed, light=True) == []


def test_a_seed_draws_one_study() -> None:
    plans = [draw(seed) for seed in range(300)]
    assert plans[:5] == [draw(seed) for seed in range(5)]
    assert {plan.base for plan in plans} == {"evaluated", "at one length", "missing"}
    assert {1, 2, 8} <= {plan.seeds for plan in plans}
    assert {len(plan.methods[0].skills) for plan in plans} >= {1, 2, 10}
    for name in ("gone", "copies", "other", "partial", "relation", "coreference"):
        assert {getattr(plan, name) for plan in plans} == {True, False}


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> tuple[Plan, list[Printed]]:
    """A study with a method to use, as all surfaces print it."""
    return _printed(tmp_path_factory.mktemp("used"), small(documents=90))


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Plan, list[Printed]]:
    """The same where nothing beats the base."""
    methods = tuple(replace(method, skills=(-1.0,)) for method in small().methods[:2])
    return _printed(tmp_path_factory.mktemp("kept"), small(methods=methods, documents=30, relation=False))


def _printed(root: Path, plan: Plan) -> tuple[Plan, list[Printed]]:
    return plan, printed(write(plan, root / "runs"), root / "out")


def test_what_is_read_is_what_is_printed(used: tuple[Plan, list[Printed]], kept: tuple[Plan, list[Printed]]) -> None:
    for plan, texts in (used, kept):
        assert findings(plan, texts) == []
        assert {one.kind for one in texts} == {"terminal", "json", "python", "report", "markdown", "html", "studio"}
    said = read(used[1][0])
    assert (said.action, said.use in used[0].names, bool(said.keep), said.next_time) == ("use", True, True, ("longer",))
    assert {"method", "training", "relation"} <= said.questions.keys()
    assert read(kept[1][0]).action == "keep"


WRONG = {
    "another method is named": ("terminal en", r"Use (entity|combined) 128", "Use mlm 128"),
    "a verdict beside an interval that holds 0": ("python en", r"\[\+[\d.]+, (.+?)\], better", r"[-0.4, \1], better"),
    "another gain": ("markdown ko", r"(베이스 모델: )\+\d+", r"\1+99"),
    "a badge that its sentence denies": ("html en", r'badge quiet">no gain shown<', 'badge good">yes<'),
    "worse beside a gain": ("html ko", r'badge good">예<', 'badge bad">아니요: 더 나쁨<'),
    "another checkpoint": ("markdown en", r"checkpoint-200`", "checkpoint-100`"),
    "a verdict after one seed": ("studio en", r"\(3 seeds", "(1 seed"),
    "held-back documents of fixed methods": ("terminal ko", r"모든 문서 (\d+)개", r"고르는 데 쓰지 않은 문서 \1개"),
    "train longer without a shown last step": ("python ko", r"아직 오르는 중", "향상 미확인"),
    "the objective instead of the name": ("json en", r'"(entity|combined) 128"', '"copy"'),
    "other relations": ("html en", r"(micro-F1.*?all )240", r"\g<1>120"),
    "a tie that the headline leaves out": ("terminal en", r"(Use \S+ 128)(?:,| or) .*?\.\n", r"\1.\n"),
    "a method counted twice": ("html en", r"(badge [a-z]+\">)((?:better than|tied with) )(\d)", r"\1\g<2>7"),
    "a gain above the measured one": ("markdown en", r"expected (to gain|gain) \+", r"expected \1 +9"),
    "a next step that trains no longer": ("python en", r"--max-tokens \d+", "--max-tokens 100000"),
    "a cell of another verdict": ("studio en", r'(said good">)better', r"\1not shown"),
    "a cell of another gain": ("studio ko", r'(title="[^"]*?: )\+\d', r"\1+9"),
    "a plain answer that its interval denies": ("terminal en", r"(relation extraction\?) .*?\. ", r"\1 Yes. "),
    "every source where one is not shown": ("markdown en", r"shown on (\d) of \d", r"shown on \1 of 7"),
    "a limit that is not the interval's": ("terminal ko", r"(관계 추출로 전이되는가\?) .*?\. ", r"\1 9.9점을 넘는 향상 없음. "),
    "weights that are there": ("studio ko", r"이 디스크에 있음", "이 디스크에 없음"),
}
_CHECKPOINT = r"\1Checkpoint: runs/entity-128-s0/checkpoint-100, 100k tokens, on this disk.\n"
KEPT_WRONG = {
    "a checkpoint to copy": ("terminal en", r"(Keep the base[^\n]*\n)", _CHECKPOINT),
    "a next time": ("markdown ko", r"(\n## )", r"\n\n다음에는 더 길게 학습해 보세요.\n\1"),
    "a page that uses": ("html en", r"Keep the base: [^<]*<", "Use entity 128<"),
}  # fmt: skip


@pytest.mark.parametrize("name", [*WRONG, *KEPT_WRONG])
def test_a_contradiction_edited_into_a_surface_is_found(
    used: tuple[Plan, list[Printed]], kept: tuple[Plan, list[Printed]], name: str
) -> None:
    plan, texts = used if name in WRONG else kept
    surface, pattern, instead = (WRONG | KEPT_WRONG)[name]
    edited = [_edited(one, pattern, instead) if one.name == surface else one for one in texts]
    assert edited != texts
    assert any(surface in told for told in findings(plan, edited))


def _edited(one: Printed, pattern: str, instead: str) -> Printed:
    return replace(one, text=re.sub(pattern, instead, one.text, count=1))
