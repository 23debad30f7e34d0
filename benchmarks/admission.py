"""Which metrics may lead an answer? In: a recipe. Out: OUT/scores.npz, OUT/admission.json and one table.

    python benchmarks/admission.py documents --corpus CORPUS --out texts
    coref-automl prepare combined --source local:texts/train.jsonl --holdout 0 ...
    coref-automl prepare eval --source local:texts/judge.jsonl --all-documents ...
    python benchmarks/admission.py run --recipe benchmarks/admission.yaml --out admission [key=value ...]
    python benchmarks/admission.py table --out admission

Contenders are models whose order is known, or known to be none: `mlm` by tokens and by whole words, `nouns` (nothing left to
copy), `entity`, `copy+link`; the base with noise in its matrices, with less attention, and after a rate that ruins. Each scores
every item, the base also with the other mentions of the answer hidden. `admission_table` has the thresholds and turns what they
leave into verdicts.
"""

from __future__ import annotations

import argparse
import pickle
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import admission_table
from coref_automl.base.config import from_mapping, read_yaml
from coref_automl.base.records import ClozeItem, ItemScore
from coref_automl.base.store import atomic_write
from coref_automl.evaluation.choice import WordChoice
from coref_automl.evaluation.evalset import EvalSet, bundled_eval_set
from coref_automl.evaluation.metrics import COPY_BONUSES
from coref_automl.evaluation.scorer import Scorer, ScoringItem, pick
from coref_automl.evaluation.tasks import TASKS
from coref_automl.evaluation.windows import WINDOW
from coref_automl.models.load import load_masked_lm
from coref_automl.models.vocabulary import word_ids
from coref_automl.training.folder import checkpoints_of

READY = "ready.pickle"


@dataclass(frozen=True, slots=True)
class Admission:
    """`methods` are trained with the settings of `train` and their own, one run per seed. `ruin` is trained once. `noise` is the
    standard deviation of Gaussian noise, as a share of each matrix's own. `attention` cuts the reach of global layers to that
    many tokens. Windows have `window` tokens and grow to `longest` for far items. `items`: at most
    that many items of a task, in the order of their id, a hash. After `minutes` nothing more is started or goes on.
    """

    model: str
    dataset: str
    eval_set: str
    methods: dict[str, dict[str, Any]]
    train: dict[str, Any] = field(default_factory=dict)
    ruin: dict[str, Any] = field(default_factory=dict)
    seeds: int = 3
    noise: tuple[float, ...] = (0.10, 0.15, 0.20, 0.30)
    draws: int = 3
    attention: tuple[int, ...] = (64, 16)
    window: int = WINDOW
    longest: int = 2048
    items: dict[str, int] = field(default_factory=dict)
    device: str = "auto"
    jobs: int = 1
    minutes: float = 600.0


@dataclass(frozen=True, slots=True)
class Contender:
    """One model. `train` is None for a model that is not trained; `group` names what differs in seeds or draws alone."""

    group: str
    number: int = 0
    train: dict[str, Any] | None = None
    noise: float = 0.0
    attention: int | None = None

    @property
    def name(self) -> str:
        return f"{self.group}-{self.number}".replace(" ", "-").replace("%", "").replace("+", "-")


def contenders(recipe: Admission) -> list[Contender]:
    trained = [
        Contender(method, seed, {"objective": method, **recipe.train, **settings})
        for seed in range(recipe.seeds)
        for method, settings in recipe.methods.items()
    ]
    if recipe.ruin:
        trained.append(Contender(admission_table.RUIN, 0, {**recipe.train, **recipe.ruin}))
    noise = [
        Contender(admission_table.noise_group(share), draw, noise=share) for share in recipe.noise for draw in range(recipe.draws)
    ]
    cut = [Contender(admission_table.attention_group(tokens), attention=tokens) for tokens in recipe.attention]
    return [*trained, Contender(admission_table.BASE), *cut, *noise]


class ReadyScorer(Scorer):
    """The scorer, on items that another process has prepared, with hits under each copy bonus for every task of entries."""

    bonus_tasks = tuple(TASKS)
    ready: Mapping[str, ScoringItem]

    def prepare(self, item: ClozeItem, *_: Any) -> ScoringItem:
        return self.ready[item.id]

    def choose(self, item: ScoringItem, choice: WordChoice, sums: NDArray[np.float64]) -> ItemScore:
        """A bonus on the words of a choice that are visible in the window."""
        context = np.concatenate([item.window.before, [-1], item.window.after])
        visible = np.array([bool(len(places_of(context, pieces))) for pieces in choice.pieces])
        totals = [sums + bonus * visible for bonus in COPY_BONUSES]
        hits = tuple(bool(total[0] > total[1:].max()) for total in totals)
        return replace(super().choose(item, choice, sums), bonus_hits=hits)


class WithoutMentions(ReadyScorer):
    """The same, with every other occurrence of the answer's pieces in the window replaced by masks.

    The window, the gap and the competitors stay. Both forms of the answer are hidden: at the start of a word and inside one.
    """

    def prepare(self, item: ClozeItem, *_: Any) -> ScoringItem:
        prepared = super().prepare(item)
        window = prepared.window
        forms = {tuple(word_ids(self._tokenizer, item.answer, initial=initial)) for initial in (True, False)}
        hide = partial(masked, forms=forms | {window.pieces}, mask_id=self.mask_id)
        return replace(prepared, window=replace(window, before=hide(window.before), after=hide(window.after)))


@dataclass(frozen=True, slots=True)
class ReadyWindows:
    """Stands for the scorer's window maker: nothing is left to cut."""

    mask_id: int

    def prepare(self, _: Any) -> None:
        pass


def masked(ids: NDArray[np.int32], forms: set[tuple[int, ...]], mask_id: int) -> NDArray[np.int32]:
    hidden = ids.copy()
    for form in forms:
        for start in places_of(ids, form):
            hidden[start : start + len(form)] = mask_id
    return hidden


def places_of(ids: NDArray[np.integer], form: tuple[int, ...]) -> NDArray[np.int64]:
    """Where these pieces begin."""
    if len(form) > len(ids):
        return np.empty(0, np.int64)
    places = np.lib.stride_tricks.sliding_window_view(ids, len(form))
    return np.flatnonzero((places == np.array(form)).all(axis=1))


def add_noise(model: Any, share: float, draw: int) -> None:
    """Add Gaussian noise to every matrix, in place."""
    generator = torch.Generator().manual_seed(round(1000 * share) * 1000 + draw)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                noise = torch.randn(weight.shape, generator=generator)
                weight += (share * weight.float().std() * noise.to(weight.device)).to(weight.dtype)


def cut_attention(model: Any, tokens: int) -> None:
    """Let the global layers of a ModernBERT attend to half of `tokens` on either side, as local layers do.

    Rotary positions stay those of global layers, which a changed config would replace.
    """
    for layer in model.base_model.layers:
        if layer.attn.sliding_window is None:
            layer.attn.sliding_window = tokens // 2 + 1  # one more than the largest distance, as the library has it
            layer.attn.register_forward_pre_hook(partial(_band, tokens // 2), with_kwargs=True)


def _band(reach: int, _: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Intersect the mask that SDPA gets with a band around the diagonal; padding far from all text attends to itself."""
    hidden = arguments[0] if arguments else options["hidden_states"]
    position = torch.arange(hidden.shape[1], device=hidden.device)
    distance = (position[:, None] - position[None, :]).abs()[None, None]
    allowed = distance <= reach
    if (given := options.get("attention_mask")) is not None:
        allowed = given & allowed | (distance == 0)
    return arguments, {**options, "attention_mask": allowed}


def train_one(recipe: Admission, contender: Contender, out: Path) -> None:
    from coref_automl.training.recipe import TrainRecipe
    from coref_automl.training.run import train

    settings: dict[str, Any] = {"model": recipe.model, "dataset": recipe.dataset, "out": str(out / "runs" / contender.name)}
    settings |= {"seed": contender.number, "device": recipe.device, "checkpoints": 1, **(contender.train or {})}
    train(from_mapping(TrainRecipe, settings, contender.name))


def score_one(recipe: Admission, contender: Contender, out: Path) -> None:
    """Load or damage a contender, score it, and write its arrays; the base also without mentions."""
    path = recipe.model if contender.train is None else str(checkpoints_of(out / "runs" / contender.name)[-1])
    with (out / READY).open("rb") as handle:
        ready: dict[str, ScoringItem] = pickle.load(handle)
    evalset = opened(recipe)
    items = chosen_items(evalset, recipe)
    device, dtype = pick(recipe.device)
    loaded = load_masked_lm(path, seq_len=recipe.longest, device=device)
    if contender.noise:
        add_noise(loaded.model, contender.noise, contender.number)
    if contender.attention is not None:
        cut_attention(loaded.model, contender.attention)
    arrays: dict[str, Any] = {"group": contender.group, "number": contender.number}
    kinds: dict[str, type[ReadyScorer]] = {"rank": ReadyScorer}
    if contender.group == admission_table.BASE:
        kinds["hidden"] = WithoutMentions
    for name, kind in kinds.items():
        scorer = kind(loaded, evalset.noun_table(loaded.tokenizer), seq_len=recipe.window, dtype=dtype)
        scorer.ready, scorer._maker = ready, ReadyWindows(scorer.mask_id)  # type: ignore[assignment]
        scores = {one.item: one for batch in scorer.score(items, evalset.documents) for one in batch}
        arrays[name] = np.array([scores[item.id].rank for item in items], np.int32)
        if name == "rank":
            bonuses = [scores[item.id].bonus_hits or (False,) * len(COPY_BONUSES) for item in items]
            arrays["bonus"] = np.array(bonuses, np.bool_)
            arrays["has_bonus"] = np.array([bool(scores[item.id].bonus_hits) for item in items])
    np.savez_compressed(out / "contenders" / f"{contender.name}.npz", **arrays)


def get_ready(recipe: Admission, out: Path) -> None:
    """Cut all windows once: contenders share one tokenizer."""
    evalset = opened(recipe)
    items = chosen_items(evalset, recipe)
    loaded = load_masked_lm(recipe.model, seq_len=recipe.longest)
    scorer = Scorer(loaded, evalset.noun_table(loaded.tokenizer), seq_len=recipe.window)
    scorer._maker.prepare((item, evalset.documents[item.document]) for item in items)
    ready = {
        item.id: scorer.prepare(item, evalset.documents[item.document], evalset.nouns.get(item.document, ())) for item in items
    }
    with atomic_write(out / READY, "wb") as handle:
        pickle.dump(ready, handle)


def opened(recipe: Admission) -> EvalSet:
    return EvalSet.open(bundled_eval_set() if recipe.eval_set == "bundled" else Path(recipe.eval_set))


def chosen_items(evalset: EvalSet, recipe: Admission) -> list[ClozeItem]:
    chosen: list[ClozeItem] = []
    for task, items in evalset.items.items():
        ordered = sorted(items, key=lambda item: item.id)
        chosen += ordered[: recipe.items.get(task, len(items))]
    return chosen


def run_all(recipe: Admission, given: argparse.Namespace) -> None:
    """Run the contenders that have no arrays yet: each trains in one process and is scored in another, `jobs` at a time.

    The base and damaged models wait for the trained ones, which take longest; windows are cut meanwhile, in this process.
    """
    out, started = given.out, time.monotonic()
    (out / "contenders").mkdir(parents=True, exist_ok=True)
    command = [sys.executable, __file__, "one", "--recipe", str(given.recipe), "--out", str(out)]
    missing = [one for one in contenders(recipe) if not (out / "contenders" / f"{one.name}.npz").is_file()]
    queue = deque((one, "score" if one.train is None else "train") for one in missing)
    running: dict[subprocess.Popen[bytes], tuple[Contender, str]] = {}
    failed = []

    def start() -> None:
        one, stage = queue.popleft()
        with (out / "contenders" / f"{one.name}.log").open("ab") as log:
            words = [*command, "--contender", one.name, "--stage", stage, *given.changes]
            running[subprocess.Popen(words, stdout=log, stderr=log)] = one, stage

    def tell(what: str) -> None:
        print(f"{time.monotonic() - started:6.0f} s  {what}", flush=True)

    while queue and queue[0][1] == "train" and len(running) < recipe.jobs:
        start()
    if not (out / READY).is_file():
        get_ready(recipe, out)
        tell("windows cut")
    if first := next((entry for entry in queue if entry[0].group == admission_table.BASE), None):
        queue.remove(first)
        queue.appendleft(first)  # without the base there is no verdict
    while queue or running:
        while queue and len(running) < recipe.jobs:
            start()
        time.sleep(0.2)
        for process in [process for process in running if process.poll() is not None]:
            one, stage = running.pop(process)
            tell(f"{one.name}: {stage} {'FAILED' if process.returncode else 'done'}")
            if process.returncode:
                failed.append(one.name)
                print((out / "contenders" / f"{one.name}.log").read_text("utf-8")[-2000:], flush=True)
            elif stage == "train":
                queue.append((one, "score"))
        if time.monotonic() - started > 60 * recipe.minutes:
            tell(f"out of time: {len(queue) + len(running)} contenders FAILED")
            for process in running:
                process.kill()
            break
    if failed:
        print(f"{len(failed)} contenders failed: {', '.join(failed)}; the same command runs them again.", file=sys.stderr)
    pack(recipe, out)


def pack(recipe: Admission, out: Path) -> None:
    """Write what all contenders left, and the items' own facts, as one file."""
    items = chosen_items(opened(recipe), recipe)
    facts = {name: np.array([getattr(item, name) for item in items]) for name in ("id", "task", "cluster", "source", "tag")}
    facts["distance"] = np.array([item.distance for item in items], np.int32)
    arrays: dict[str, Any] = {f"item/{name}": values for name, values in facts.items()}
    for path in sorted((out / "contenders").glob("*.npz")):
        with np.load(path) as found:
            arrays |= {f"{path.stem}/{name}": found[name] for name in found.files}
    np.savez_compressed(out / "scores.npz", **arrays)


def read_recipe(path: Path, changes: Sequence[str]) -> Admission:
    """The recipe, with `key=value` of the command line over it; values are YAML, keys of sections are joined by dots."""
    import yaml

    values = read_yaml(path)
    for change in changes:
        name, _, value = change.partition("=")
        *sections, key = name.split(".")
        section = values
        for part in sections:
            section = section.setdefault(part, {})
        section[key] = yaml.safe_load(value)
    return from_mapping(Admission, values, str(path))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    texts = verbs.add_parser("documents", help="choose the documents to judge with and to train on")
    texts.add_argument("--corpus", type=Path, required=True)
    texts.add_argument("--out", type=Path, required=True)
    for verb, what in (("run", "train, damage and score"), ("one", "one contender"), ("table", "verdicts from scores.npz")):
        command = verbs.add_parser(verb, help=what)
        command.add_argument("--out", type=Path, required=True)
        if verb != "table":
            command.add_argument("--recipe", type=Path, required=True)
            command.add_argument("changes", nargs="*", metavar="key=value")
        if verb == "one":
            command.add_argument("--contender", required=True)
            command.add_argument("--stage", choices=("train", "score"), required=True)
    given = parser.parse_args()
    if given.verb == "documents":
        from admission_documents import choose_documents

        choose_documents(given.corpus, given.out)
        return 0
    if given.verb in ("run", "one"):
        recipe = read_recipe(given.recipe, given.changes)
        if given.verb == "one":
            stage = {"train": train_one, "score": score_one}[given.stage]
            stage(recipe, {one.name: one for one in contenders(recipe)}[given.contender], given.out)
            return 0
        run_all(recipe, given)
    print("\n".join(admission_table.write(given.out)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
