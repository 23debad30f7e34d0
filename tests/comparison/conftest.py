"""Evaluation folders without models: ranks are drawn, records are written as the scorer writes them."""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Callable, Sequence
from contextlib import chdir
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from coref_automl.base.folders import mark_done
from coref_automl.base.records import Document, Estimate, Evaluation, ItemScore, Provenance, Task
from coref_automl.base.store import write_json, write_jsonl
from coref_automl.cli.app import run as command
from coref_automl.evaluation.answers import save_table
from coref_automl.evaluation.evalset import freeze
from coref_automl.evaluation.metrics import counted, counted_names, summarise_all
from coref_automl.extras.coreference.results import CONLL, MODES, CoreferenceResult, CoreferenceSeed
from coref_automl.extras.relation.results import RELATION_FILES, RelationResult, RelationSeed, RowFacts, Scores
from coref_automl.models.load import tokenizer_fingerprint
from tests.evaluation.tiny import TEXTS, item, noun_table, nouns_in, save_checkpoint, tokenizer_of

WORDS = ("서울", "대통령", "회사", "선수", "학교", "정부", "영화", "음악")


@dataclass(frozen=True)
class Model:
    """How good a model is, as a shift of its logits; and where it stands in its run."""

    run: str
    step: int
    skill: float
    tokens: int = 0
    objective: str = "entity"
    seq_len: int = 128
    seed: int = 0
    tokenizer: str = "tok"


def make_scores(
    model: Model,
    *,
    documents: int,
    seed: int = 0,
    tasks: Sequence[Task] = ("real", "lambada"),
    set_name: str = "a",
    own: int | None = None,
) -> list[ItemScore]:
    """Items are the same for every model of a set; a document's difficulty is shared by models, luck is the model's own."""
    shared = np.random.default_rng((seed, 1))
    drawn = zlib.crc32(f"{model.run} {model.step} {model.skill}".encode())  # the same in every process, as hash() of words is not
    luck = np.random.default_rng((seed, 2, own if own is not None else drawn))
    scores = []
    for task in tasks:
        for document in range(documents):
            ease = shared.normal()
            for number in range(int(shared.integers(1, 4))):
                item_ease = ease + shared.normal()
                distance = int(shared.integers(0, 1900)) if task == "real-far" else int(shared.integers(5, 390))
                logit = item_ease + 0.5 * luck.normal() + model.skill - 0.5
                rank = 1 if logit > 0 else int(2 + min(60, np.exp(-2 * logit)))
                answer = WORDS[(document + number) % len(WORDS)]
                others = [word for word in WORDS if word != answer]
                top = [*others[: rank - 1], answer, *others[rank - 1 :]][:5] if rank <= 5 else others[:5]
                scores.append(
                    ItemScore(
                        item=f"{set_name}-{task}-{document}-{number}",
                        task=task,
                        cluster=f"{'real' if task == 'new' else task}-문서-{document}",
                        source="wiki" if document % 3 else "news",
                        answer=answer,
                        tag="NNG" if number else "NNP",
                        distance=distance,
                        rank=rank,
                        top=tuple(top),
                        pieces=1,
                        out_of_reach=distance > model.seq_len,
                    )
                )
    return scores


def write_evaluation(root: Path, model: Model, scores: Sequence[ItemScore], *, set_name: str = "a", scorer: str = "1") -> Path:
    """As `evaluate` leaves it: a run's checkpoint, or for step 0 a model outside a run."""
    label = f"checkpoint-{model.step}" if model.step else model.run
    inside = f"{set_name}-{model.seq_len}"
    folder = root / model.run / "evaluations" / inside / label if model.step else root / "evaluations" / label / inside
    checkpoint = root / model.run / label if model.step else root / label
    checkpoint.mkdir(parents=True, exist_ok=True)
    provenance = Provenance(
        model.run,
        model.step,
        model.step / 100,
        model.tokens or model.step * 1000,
        model.objective,
        "base",
        model.seq_len,
        model.seed,
    )
    evaluation = Evaluation(
        checkpoint=f"{model.run}/{label}" if model.step else model.run,
        path=str(checkpoint),
        evalset=set_name,
        seq_len=model.seq_len,
        dtype="float32",
        scorer=scorer,
        evaluated_at="2026-01-01T00:00:00+00:00",
        seconds=1.0,
        fingerprints={"items": f"items-{set_name}", "weights": f"w{model.run}{model.step}", "tokenizer": model.tokenizer},
        estimates=summarise_all([scores], draws=20)[0],
        baselines={"copy-most-frequent": summarise_all([scores[:40]], draws=20)[0]},
        counted=counted(scores),
        counted_names=counted_names(scores),
        out_of_reach=sum(score.out_of_reach for score in scores),
        provenance=provenance if model.step else None,
    )
    write_jsonl(folder / "items.jsonl", [score.to_json() for score in scores])
    write_json(folder / "result.json", evaluation.to_json())
    mark_done(folder)
    return folder


def relation_result(model: str, seeds: Sequence[int] = (0, 1, 2), **changed: Any) -> RelationResult:
    """What `re train` keeps of a run, with scores that say nothing."""
    scores = Scores(50.0, 50.0, 50.0, 400)
    result = RelationResult(
        run="re",
        split="dev",
        n=400,
        micro_f1=50.0,
        auprc=50.0,
        accuracy=50.0,
        spread=None,
        estimates={},
        seeds=tuple(RelationSeed(seed, 1, 1, 1, scores, 0.5, 1.0, 1.0) for seed in seeds),
        scheme="typed",
        head="both",
        model=model,
        train_rows=None,
        validation_rows=None,
    )
    result = replace(result, **changed)
    values = {name: getattr(result, name) / 100 for name in ("micro_f1", "auprc", "accuracy")}
    return replace(result, estimates={name: Estimate(value, value - 0.1, value + 0.1, 400) for name, value in values.items()})


def coreference_result(model: str, **changed: Any) -> CoreferenceResult:
    """What `coref train` keeps of a run of two seeds, with scores that say nothing."""
    estimates = dict.fromkeys(("conll", *CONLL), Estimate(0.5, 0.4, 0.6, 12))
    result = CoreferenceResult(
        run="coref",
        model=model,
        split="test",
        documents=12,
        mentions=400,
        seeds=tuple(CoreferenceSeed(number, 1, 1, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, "cpu") for number in range(2)),
        estimates=dict.fromkeys(MODES, estimates),
        recall={},
        precision={},
        fingerprints={},
        conditions={"documents": "same", "resolver": "1"},
    )
    return replace(result, **changed)


def mention_sums(mentions: NDArray[np.int64], skill: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """What CoNLL is made of in two runs of such a skill: [seed, document, metric, (hit, gold, right, given)]."""
    gold = np.broadcast_to(mentions[None, :, None], (2, len(mentions), len(CONLL))).astype(np.float64)
    hit = np.round(gold * np.clip(skill + 0.05 * rng.normal(size=gold.shape), 0, 1))
    return np.stack([hit, gold, hit, gold], axis=-1)


def write_relation_run(folder: Path, **changed: Any) -> None:
    """A relation run of three seeds that are right on every row."""
    rows = np.ones((4, 3), bool)
    RELATION_FILES.write(folder, relation_result("m", **changed), RowFacts(rows[:, 0], rows, rows, np.arange(4)))


Maker = Callable[..., Path]


@pytest.fixture
def evaluated(tmp_path: Path) -> Maker:
    """Write evaluations of some models on one set; returns the folder that holds them all."""

    def make(models: Sequence[Model], *, documents: int = 60, set_name: str = "a", **options: object) -> Path:
        for number, model in enumerate(models):
            scores = make_scores(model, documents=documents, set_name=set_name, own=number, **options)  # type: ignore[arg-type]
            write_evaluation(tmp_path, model, scores, set_name=set_name)
        return tmp_path

    return make


@pytest.fixture(scope="session")
def study_source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of two objectives and a longer one: what a whole report is made of, without passages. Read only."""
    models = [Model("base", 0, -1.0)]
    for run, objective, top in (("mlm_a", "mlm", -0.4), ("entity_a", "entity", 0.6)):
        models += [Model(run, step, top - 50 / step, objective=objective) for step in (65, 130, 195)]
    models.append(Model("entity_long", 130, 0.7, seq_len=256))
    tasks: tuple[Task, ...] = ("real", "new", "lambada", "real-far")
    root = tmp_path_factory.mktemp("study")
    for number, model in enumerate(models):
        write_evaluation(root, model, make_scores(model, documents=50, tasks=tasks, own=number))
    return root


@pytest.fixture
def study_folder(study_source: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return shutil.copytree(study_source, tmp_path / "study")


MARKUP = "<script>window.hacked = 1</script> 도서관은 크다. "
FAR = MARKUP + "그날 시민은 오래 걸었다. " * 30 + "다시 도서관에 대해 말했다."


@pytest.fixture(scope="session")
def scored_source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two checkpoints of a run and a model outside it, scored by the command on a frozen set. Read only.

    One passage would run as markup if it could, and its gap lies far from its antecedent.
    """
    root = tmp_path_factory.mktemp("scored")
    texts = [*TEXTS, FAR]
    items = [
        item(str(n), word, text=texts[n]) for n, word in ((0, "공장"), (1, "도서관"), (2, "기차"), (3, "나무"), (4, "도서관"))
    ]
    (root / "evalsets" / "mine").mkdir(parents=True)
    documents = [(Document(str(number), "tiny", text), nouns_in(text)) for number, text in enumerate(texts)]
    freeze(root / "evalsets/mine", documents, {"real": items}, {})
    save_table(root / "evalsets/mine", tokenizer_fingerprint(tokenizer_of("wordpiece")), noun_table())
    for seed, folder in enumerate(("runs/a/checkpoint-1", "runs/a/checkpoint-2", "base")):
        save_checkpoint(root / folder, seed=seed)
    with chdir(root):
        assert command(["evaluate", "runs/a", "base", "--eval-set", "evalsets/mine", "--device", "cpu"]) == 0
    return root


@pytest.fixture
def scored(scored_source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy that a test may change, as the working folder; scored there once more, which only tells where the set stands."""
    folder = shutil.copytree(scored_source, tmp_path / "scored")
    monkeypatch.chdir(folder)
    assert command(["evaluate", "runs/a", "base", "--eval-set", "evalsets/mine", "--device", "cpu"]) == 0
    return folder
