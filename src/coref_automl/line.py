"""The full pipeline. In: a LineRecipe. Out: runs, evaluations, a recommendation, its report, relation extraction, coreference.

Every stage recognises finished work, so the same call resumes where it stopped and recomputes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from coref_automl.config import choose, from_mapping, nearest, read_yaml, shown
from coref_automl.decoder import read_stored
from coref_automl.errors import RecipeError
from coref_automl.locks import claimed
from coref_automl.models.families import too_long
from coref_automl.progress import Progress, quiet
from coref_automl.records import Record, Task
from coref_automl.say import Say, language, speaking
from coref_automl.store import MANIFEST, write_json

if TYPE_CHECKING:
    from coref_automl.report.printout import PrintedRecommendation

Objective = Literal["mlm", "combined", "entity"]
COREFERENCE = "coreference"


@dataclass(frozen=True, slots=True)
class PrepareStage:
    """The training texts. `limit` is documents per file; the held-out share becomes the evaluation set."""

    sources: tuple[str, ...]
    seq_len: int = 512
    limit: int | None = None
    holdout: float = 0.02
    near_duplicates: bool = True

    def __post_init__(self) -> None:
        if why := too_long(self.seq_len):
            raise RecipeError(f"seq_len {why}.")


@dataclass(frozen=True, slots=True)
class TrainStage:
    """One run per objective, all on the same blocks for the same number of tokens."""

    objectives: tuple[Objective, ...] = ("mlm", "combined", "entity")
    epochs: float = 1.0
    batch: int | None = None
    micro_batch: int | None = None
    learning_rate: float | None = None
    weight_decay: float | None = None
    warmup: float | None = None
    min_prob: float | None = None
    max_prob: float | None = None
    save_every: float = 0.5


@dataclass(frozen=True, slots=True)
class EvaluateStage:
    """`set` is a folder or "bundled"; None builds one from the held-out documents and the bundled cloze passages.

    `per_source`, `per_document` and `single_entry` are those of `prepare eval`.
    """

    set: str | None = None
    tasks: tuple[Task, ...] = ("real", "lambada")
    per_source: int = 1_600
    per_document: int = 3
    single_entry: bool = False
    words: Literal["all", "sample", "none"] = "all"
    metric: str | None = None
    margin: float = 2.0

    def __post_init__(self) -> None:
        from coref_automl.comparison.recommendation import checked_margin
        from coref_automl.evaluation.tasks import TASKS

        for task in self.tasks:
            choose(task, TASKS, "task")
        checked_margin(self.margin)


@dataclass(frozen=True, slots=True)
class RelationStage:
    """`train` is a file of relation rows or "bundled" (`rows` generated ones); `dev` is scored once at the end."""

    train: str = "bundled"
    dev: str | None = None
    rows: int = 1_000
    epochs: int = 3
    seeds: int = 1
    batch_size: int = 16
    learning_rate: float | None = None
    scheme: str = "typed"

    def __post_init__(self) -> None:
        if self.dev is not None and self.train == "bundled":
            raise RecipeError("relation: dev (--re-dev) needs rows to train on; name them with --re-train, or leave it out.")


@dataclass(frozen=True, slots=True)
class CoreferenceStage:
    """`data` is an annotated file. The base and the chosen checkpoint are trained on it alike and tested on every document.

    `folds` are at most as many as there are documents; `epochs`, `rank` and `skip_bad` are those of `coref train`.
    """

    data: str
    folds: int = 5
    seeds: int = 2
    epochs: int = 8
    rank: int = 32
    skip_bad: bool = False


@dataclass(frozen=True, slots=True)
class LineRecipe:
    """What `demo` and `adapt` run. `relation: null` skips relation extraction, `coref: null` coreference."""

    model: str
    prepare: PrepareStage
    train: TrainStage = field(default_factory=TrainStage)
    evaluate: EvaluateStage = field(default_factory=EvaluateStage)
    relation: RelationStage | None = None
    coref: CoreferenceStage | None = None
    tokenizer: str | None = None
    seed: int = 0
    lang: Literal["ko", "en"] | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**63:
            raise RecipeError(f"seed should be 0 or more and below 2**63, not {self.seed}; correct --seed.")


class _Begun(TypedDict):
    """What is read of the manifest of a relation or coreference run: what it was begun with."""

    binding: dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class LineResult(Record):
    """What the command prints at the end. `chosen` is the model to use: the base, where no checkpoint is shown to beat it."""

    recommendation: str
    chosen: str
    best_trained: str
    report: str
    relation: dict[str, Any] | None
    next_steps: tuple[str, ...]
    coreference: str | None = None

    def __str__(self) -> str:
        say = Say(language())
        lines = [
            self.recommendation,
            "",
            f"{say('보고서', 'Report')}: {self.report}",
            f"{say('체크포인트', 'Checkpoint')}: {self.best_trained}",
        ]
        if self.chosen != self.best_trained:
            best = say("학습한 것 가운데 가장 높은 체크포인트", "Highest of the trained checkpoints")
            lines[-1:] = [f"{say('선택: 원래 모델', 'Chosen: the base')} {self.chosen}", f"{best}: {self.best_trained}"]
        if self.relation:
            told = f"micro-F1 {self.relation['micro_f1']:.1f}", self.relation["split"], f"(n = {self.relation['n']})"
            lines.append(say("관계 추출: {0}, {1} {2}", "Relation extraction from it: {0} on {1} {2}").format(*told))
        if self.coreference:
            lines.append(self.coreference)
        return "\n".join([*lines, "", say("다음:", "Next:"), *(f"  {step}" for step in self.next_steps)])


def line_recipe(path: Path | None, asked: Mapping[str, Any]) -> LineRecipe:
    """A recipe from a YAML file, from options, or from both; options win."""
    data = read_yaml(path) if path else {}
    for key, value in asked.items():
        if isinstance(value, Mapping):
            given = {name: entry for name, entry in value.items() if entry is not None}
            written = data.get(key) or {}
            if given and isinstance(written, Mapping):  # what is none is refused below, with the file's name
                data[key] = {**written, **given}
        elif value is not None:
            data[key] = value
    for key in data:
        if key not in LineRecipe.__dataclass_fields__:
            raise RecipeError(f"{path}: unknown key {shown(key)}. {nearest(key, LineRecipe.__dataclass_fields__)}")
    if "model" not in data:
        raise RecipeError("Name the model to adapt with --model, for example --model bundled:ko-mini.")
    prepared = data.get("prepare") or {}
    if isinstance(prepared, Mapping) and not prepared.get("sources"):
        raise RecipeError("Name the texts with --source, for example --source local:articles.jsonl.")
    return from_mapping(LineRecipe, data, str(path or "options"))


def run_line(recipe: LineRecipe, out: Path, *, progress: Progress | None = None, then: Sequence[str] | None = None) -> LineResult:
    """Prepare, train, evaluate, recommend, report, and carry the chosen checkpoint into relation extraction.

    `then` are commands that go on from here, in place of relation extraction and another seed.
    """
    with speaking(recipe.lang), claimed(out, "line"):
        return _run(recipe, out, progress or quiet(), then)


def _run(recipe: LineRecipe, out: Path, progress: Progress, then: Sequence[str] | None) -> LineResult:
    trained_on = _annotated(recipe.coref) if recipe.coref else None  # a bad file is an error now, not after hours of training
    evalset = eval_set_of(recipe, out, progress)
    dataset = dataset_of(recipe, [evalset], out / "dataset", progress)
    runs = _train(recipe, dataset, out, progress)
    _evaluate(recipe, runs, evalset, progress)
    say = Say(language(recipe.lang))
    recommendation = _recommend(recipe, runs, evalset, say.lang)
    chosen = recommendation.chosen
    tuned = [_from(chosen, out / "relation")] if recipe.relation else []
    relation = _relation(recipe, chosen, tuned[0], out, progress) if tuned else None
    heads = _starts(recipe, chosen, out) if trained_on else {}
    coreference = _coreference(recipe, trained_on, heads, progress) if trained_on else None
    report = _report(recipe, [*runs, *tuned, *heads], evalset, out, progress)
    result = LineResult(
        recommendation=recommendation.sentence,
        chosen=recipe.model if recommendation.use.status == "not better than the base" else chosen,
        best_trained=chosen,
        report=str(report),
        relation=relation,
        next_steps=(
            *_looks(recipe, runs, chosen),
            *(_experiments(recipe, runs, chosen, evalset) if then is None else then),
        ),
        coreference=coreference,
    )
    write_json(out / "result.json", result.to_json())
    return result


def eval_set_of(recipe: LineRecipe, out: Path, progress: Progress) -> Path:
    from coref_automl.evaluation.evalset import bundled_eval_set
    from coref_automl.evaluation.prepare import EvalRecipe, prepare_eval

    stage = recipe.evaluate
    if stage.set == "bundled":
        return bundled_eval_set()
    if stage.set is not None:
        return Path(stage.set)
    wanted = EvalRecipe(
        models=(recipe.tokenizer or recipe.model,),
        tasks=stage.tasks,
        sources=recipe.prepare.sources,
        lambada=("bundled:cloze",) if "lambada" in stage.tasks else (),
        holdout=recipe.prepare.holdout,
        limit=recipe.prepare.limit,
        per_source=stage.per_source,
        per_document=stage.per_document,
        single_entry=stage.single_entry,
        seed=recipe.seed,
    )
    prepare_eval(wanted, out / "evalset", progress=progress)
    return out / "evalset"


def dataset_of(recipe: LineRecipe, evalsets: Sequence[Path], folder: Path, progress: Progress) -> Path:
    """One dataset for all objectives: blocks with noun chains. The runs differ in what they hide, and in nothing else."""
    from coref_automl.corpus.prepare import prepare
    from coref_automl.corpus.recipe import PrepareRecipe

    stage = recipe.prepare
    wanted = PrepareRecipe(
        mode="combined",
        sources=stage.sources,
        model=recipe.tokenizer or recipe.model,
        seq_len=stage.seq_len,
        eval_sets=tuple(map(str, evalsets)),
        holdout=stage.holdout,
        limit=stage.limit,
        near_duplicates=stage.near_duplicates,
    )
    prepare(wanted, folder, progress=progress)
    return folder


def _train(recipe: LineRecipe, dataset: Path, out: Path, progress: Progress) -> list[Path]:
    from coref_automl.models.memory import release
    from coref_automl.training.recipe import TrainRecipe
    from coref_automl.training.run import train

    stage, runs = recipe.train, []
    if not stage.objectives:
        raise RecipeError("train: objectives is empty; name at least one of mlm, combined, entity.")
    common = TrainRecipe(
        model=recipe.model,
        tokenizer=recipe.tokenizer,
        dataset=str(dataset),
        out="",
        epochs=stage.epochs,
        batch=stage.batch,
        micro_batch=stage.micro_batch,
        learning_rate=stage.learning_rate,
        weight_decay=stage.weight_decay,
        warmup=stage.warmup,
        min_prob=stage.min_prob,
        max_prob=stage.max_prob,
        save_every=stage.save_every,
        seed=recipe.seed,
    )
    for objective in stage.objectives:
        run = out / "runs" / objective
        progress.note(progress.say(f"{objective} 학습", f"Training {objective}"))
        train(replace(common, objective=objective, out=str(run)), progress=progress)
        release()
        runs.append(run)
    return runs


def _evaluate(recipe: LineRecipe, runs: Sequence[Path], evalset: Path, progress: Progress) -> None:
    from coref_automl.evaluation.run import EvaluateRecipe, evaluate
    from coref_automl.models.memory import release

    wanted = EvaluateRecipe(eval_sets=(evalset,), seq_len=recipe.prepare.seq_len, words=recipe.evaluate.words, seed=recipe.seed)
    evaluate(list(runs), wanted, progress=progress)
    release()


def _recommend(recipe: LineRecipe, runs: Sequence[Path], evalset: Path, lang: str) -> PrintedRecommendation:
    from coref_automl.evaluation.evalset import EvalSet
    from coref_automl.report.printout import recommend

    stage = recipe.evaluate
    items = EvalSet.open(evalset).fingerprint
    return recommend(*runs, metric=stage.metric, margin=stage.margin, eval_set=items, seed=recipe.seed, lang=lang)


def _report(recipe: LineRecipe, shown: Sequence[Path], evalset: Path, out: Path, progress: Progress) -> Path:
    """Written last, so that it holds relation extraction and coreference too."""
    from coref_automl.evaluation.evalset import EvalSet
    from coref_automl.report.checkpoint_report import report

    stage = recipe.evaluate
    progress.note(progress.say("보고서 작성", "Writing the report"))
    options: dict[str, Any] = {"metric": stage.metric, "margin": stage.margin, "lang": recipe.lang, "seed": recipe.seed}
    return Path(report(*shown, out=out / "report", eval_set=EvalSet.open(evalset).fingerprint, **options))


def _from(chosen: str, folder: Path) -> Path:
    """The folder of what starts from the chosen checkpoint: this one, or one beside it if it started from another choice."""
    from coref_automl.models.load import weights_fingerprint

    if not (folder / MANIFEST).is_file():
        return folder
    held = read_stored(folder / MANIFEST, _Begun)["binding"]["fingerprints"]["weights"]
    at = Path(chosen).resolve()
    return folder if held == weights_fingerprint(chosen) else folder.with_name(f"{folder.name}-{at.parent.name}-{at.name}")


def _relation(recipe: LineRecipe, chosen: str, run: Path, out: Path, progress: Progress) -> dict[str, Any]:
    from coref_automl.relation.recipe import RelationRecipe
    from coref_automl.relation.train import train_relation

    stage = recipe.relation
    assert stage is not None
    train, dev = (
        (stage.train, stage.dev) if stage.train != "bundled" else _bundled_rows(stage, recipe.seed, out / "relation-rows")
    )
    wanted = RelationRecipe(
        model=chosen,
        train=train,
        dev=dev,
        out=str(run),
        scheme=stage.scheme,
        seeds=stage.seeds,
        epochs=stage.epochs,
        batch_size=stage.batch_size,
        learning_rate=stage.learning_rate,
    )
    progress.note(progress.say("고른 체크포인트로 관계 추출", "Relation extraction from the chosen checkpoint"))
    result = train_relation(wanted, progress=progress)
    return {name: getattr(result, name) for name in ("split", "n", "micro_f1", "auprc", "accuracy", "scheme", "run")}


def _annotated(stage: CoreferenceStage) -> CoreferenceStage:
    """The stage with folds that its documents allow."""
    from coref_automl.coreference.data import read_coref

    count = len(read_coref(stage.data, skip_bad=stage.skip_bad).documents)
    if count < 2:
        raise RecipeError(f"{stage.data} holds one document; coreference needs two or more, to train and to test.")
    return replace(stage, folds=min(stage.folds, count))


def _starts(recipe: LineRecipe, chosen: str, out: Path) -> dict[Path, str]:
    """Folders of coreference and what each starts from: the base, unless its weights are random, and the chosen checkpoint."""
    from coref_automl.models.build import NEW

    base = {} if recipe.model.startswith(NEW) else {out / COREFERENCE / "base": recipe.model}
    return {**base, _from(chosen, out / COREFERENCE / "chosen"): chosen}


def _coreference(recipe: LineRecipe, stage: CoreferenceStage, starts: Mapping[Path, str], progress: Progress) -> str:
    """The same training from the base and from the chosen checkpoint; what it shows, in one line."""
    from coref_automl.coreference.recipe import CoreferenceRecipe
    from coref_automl.coreference.train import train_coreference
    from coref_automl.models.memory import release
    from coref_automl.report.coreference_verdicts import compare_runs, outside_check

    for run, model in starts.items():
        told = f"{model}: {stage.folds} folds, {stage.seeds} seeds"
        progress.note(progress.say(f"상호참조, {told}", f"Coreference from {told}"))
        wanted = CoreferenceRecipe(
            model=model,
            data=stage.data,
            out=str(run),
            folds=stage.folds,
            seeds=stage.seeds,
            first_seed=recipe.seed,
            epochs=stage.epochs,
            rank=stage.rank,
            skip_bad=stage.skip_bad,
        )
        train_coreference(wanted, progress=progress)
        release()
    return outside_check(compare_runs(*starts), Say(language(recipe.lang)))


def _bundled_rows(stage: RelationStage, seed: int, folder: Path) -> tuple[str, str]:
    from coref_automl.corpus.synthetic.statements import relation_rows

    held = folder / f"{stage.rows}-s{seed}"
    paths = held / "train.json", held / "dev.json"
    if not all(path.is_file() for path in paths):
        write_json(paths[0], relation_rows(stage.rows, seed))
        write_json(paths[1], relation_rows(max(200, stage.rows // 4), seed + 1))
    return str(paths[0]), str(paths[1])


def _looks(recipe: LineRecipe, runs: Sequence[Path], chosen: str) -> tuple[str, ...]:
    from coref_automl.models.build import NEW

    models = [chosen] if recipe.model.startswith(NEW) else [recipe.model, chosen]
    return (
        f"coref-automl compare {quote(str(runs[0].parent))}",
        'coref-automl fill "서울은 [MASK]의 수도이다."' + "".join(f" --model {quote(model)}" for model in models),
    )


def _experiments(recipe: LineRecipe, runs: Sequence[Path], chosen: str, evalset: Path) -> tuple[str, ...]:
    """Relation extraction, unless it was run, and another seed of the chosen run: one seed says nothing about a method."""
    run = next((run for run in runs if run.resolve() == Path(chosen).resolve().parent), runs[0])
    seed = recipe.seed + 1
    again, held = quote(f"{run}-s{seed}"), quote(str(run / "recipe.yaml"))
    relation = f"coref-automl re train --model {quote(chosen)} --train klue-re-v1.1_train.json --out runs/re --seeds 3"
    another = (
        f"coref-automl train --recipe {held} --seed {seed} --out {again} && "
        f"coref-automl evaluate {again} --eval-set {quote(str(evalset))} --seq-len {recipe.prepare.seq_len} "
        f"--words {recipe.evaluate.words}"
    )
    return (another,) if recipe.relation else (relation, another)
