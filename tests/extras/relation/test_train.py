from __future__ import annotations

import dataclasses
import itertools
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest
import torch

from coref_automl.base.errors import FolderError, ModelError, RecipeError, RelationDataError
from coref_automl.base.progress import Progress, quiet
from coref_automl.base.store import atomic_write
from coref_automl.extras.relation import fit as fit_module
from coref_automl.extras.relation.data import read_relations
from coref_automl.extras.relation.evaluate import evaluate_relation
from coref_automl.extras.relation.metrics import auprc
from coref_automl.extras.relation.model import RelationModel, build_model, load_model, save_model
from coref_automl.extras.relation.recipe import ModelSettings, RelationRecipe
from coref_automl.extras.relation.results import RelationResult, Scores
from coref_automl.extras.relation.rows import LABELS
from coref_automl.extras.relation.scoring import read_predictions
from coref_automl.extras.relation.train import train_relation
from coref_automl.training.optimizer import parameter_groups
from tests.close import assert_same

from .conftest import make_raw_rows, raw_row


def recipe_of(encoder: Path, train: Path, dev: Path, out: Path, epochs: int = 2) -> RelationRecipe:
    return RelationRecipe(
        model=str(encoder),
        train=str(train),
        dev=str(dev),
        out=str(out),
        seeds=1,
        epochs=epochs,
        batch_size=16,
        learning_rate=2e-3,
        holdout=0.2,
        max_length=64,
        device="cpu",
    )


@pytest.fixture
def recipe(encoder_folder: Path, relation_file: Path, dev_file: Path, tmp_path: Path) -> RelationRecipe:
    return recipe_of(encoder_folder, relation_file, dev_file, tmp_path / "run")


def settings_of(head: Any, encoder: Path, scheme: str = "typed", **more: Any) -> ModelSettings:
    return ModelSettings(scheme, head, 0.0, 64, LABELS, str(encoder), 0, **more)


def change(recipe: RelationRecipe, **parts: Any) -> RelationRecipe:
    return dataclasses.replace(recipe, **parts)


def test_training_learns_the_relation_and_names_the_split(trained: RelationResult) -> None:
    assert trained.split == "made_dev"
    assert trained.n == 40
    assert trained.micro_f1 > 80
    assert [entry.seed for entry in trained.seeds] == [0, 1]
    assert trained.spread is not None
    means = np.mean([entry.scores.micro_f1 for entry in trained.seeds if entry.scores])
    assert trained.micro_f1 == pytest.approx(means)
    assert RelationResult.from_json(json.loads((Path(trained.run) / "re_results.json").read_text("utf-8"))) == trained
    assert any("micro-F1" in line for line in trained.lines())


def test_a_result_says_which_share_of_the_rows_it_was_trained_on(trained: RelationResult, recipe: RelationRecipe) -> None:
    part = train_relation(change(recipe, epochs=1, max_rows=60))
    assert (trained.share, part.share) == (1.0, 0.5)
    assert evaluate_relation(part.run, str(recipe.dev), device="cpu").share == 0.5


def test_rows_whose_sentence_is_in_train_are_counted_and_left_out(trained: RelationResult) -> None:
    # rows 100 to 119 are in both files
    assert trained.without_overlap is not None
    assert trained.without_overlap.n == 20
    assert any("20 of the 40 rows of made_dev" in note for note in trained.notes)


def test_predictions_are_kept_a_row_and_give_the_same_scores(trained: RelationResult, dev_file: Path) -> None:
    path = Path(trained.run) / "seed-1" / "predictions" / "made_dev.jsonl"
    ids, gold, probabilities = read_predictions(path)
    assert ids == [row["guid"] for row in json.loads(dev_file.read_text("utf-8"))]
    assert probabilities.sum(1) == pytest.approx(np.ones(40), abs=1e-6)
    assert trained.seeds[1].scores is not None
    assert auprc(gold, probabilities) == pytest.approx(trained.seeds[1].scores.auprc, abs=1e-9)
    assert 100 * (probabilities.argmax(1) == gold).mean() == pytest.approx(trained.seeds[1].scores.accuracy)
    marks = [json.loads(line)["sentence"] for line in path.read_text("utf-8").splitlines()]
    sentences = [row["sentence"] for row in json.loads(dev_file.read_text("utf-8"))]
    assert len(set(marks)) == len(set(sentences))
    assert not set(marks) & set(sentences)


def test_a_run_keeps_what_a_comparison_needs_of_every_row(trained: RelationResult, dev_file: Path) -> None:
    with np.load(Path(trained.run) / "rows.npz") as stored:
        rows = {name: stored[name] for name in stored.files}
    given, right, gold = rows["given"], rows["right"], rows["gold"]
    by_seed = 200 * right.sum(0) / (given.sum(0) + gold.sum())
    assert by_seed == pytest.approx([seed.scores.micro_f1 for seed in trained.seeds if seed.scores])
    sentences = [row["sentence"] for row in json.loads(dev_file.read_text("utf-8"))]
    assert len(np.unique(rows["sentences"])) == len(set(sentences))


def test_the_table_of_labels_says_that_it_is_of_averaged_probabilities(trained: RelationResult) -> None:
    heading, names, *lines = trained.label_lines()
    assert "averaged probabilities of 2 seeds" in heading
    assert names.startswith("label ")
    assert len(lines) == 30
    absent = next(line for line in lines if line.startswith("per:religion"))
    assert absent.split() == ["per:religion", "0", "0", *"----"]
    single = dataclasses.replace(trained, seeds=trained.seeds[:1], spread=None)
    assert single.label_lines() == [names, *lines]


def test_a_seeds_model_alone_is_scored_and_nothing_is_written_into_it(
    trained: RelationResult, dev_file: Path, tmp_path: Path
) -> None:
    model = tmp_path / "best-model"
    shutil.copytree(Path(trained.run) / "seed-1" / "model", model)
    files = sorted(path.name for path in model.iterdir())
    result = evaluate_relation(model, str(dev_file), device="cpu")
    scores = trained.seeds[1].scores
    assert scores is not None
    assert (result.micro_f1, result.accuracy) == pytest.approx((scores.micro_f1, scores.accuracy))
    assert (result.split, result.scheme, result.head, result.model) == ("made_dev", "typed", trained.head, trained.model)
    assert (result.seeds, result.spread, result.train_rows, result.without_overlap) == ((), None, None, None)
    assert any("the model of seed 1 alone" in note for note in result.notes)
    assert RelationResult.from_json(result.to_json()) == result
    raw = make_raw_rows(12, start=100)
    raw[3]["label"] = "per:nothing"
    (tmp_path / "bad.json").write_text(json.dumps(raw), "utf-8")
    skipped = evaluate_relation(model, str(tmp_path / "bad.json"), skip_bad=True, device="cpu")
    assert (skipped.n, sorted(path.name for path in model.iterdir())) == (11, files)


def test_a_folder_that_is_neither_run_nor_model_is_not_scored(
    trained: RelationResult, encoder_folder: Path, dev_file: Path, tmp_path: Path
) -> None:
    (tmp_path / "relation.json").write_text("{}", "utf-8")
    for folder in (encoder_folder, tmp_path, Path(trained.run).parent, Path(trained.run) / "seed-0"):
        with pytest.raises(ModelError, match="not a relation run, nor one seed's model"):
            evaluate_relation(folder, str(dev_file), device="cpu")


def test_evaluating_the_run_again_gives_the_same_numbers(trained: RelationResult, dev_file: Path, tmp_path: Path) -> None:
    copy = tmp_path / "other_name.json"
    copy.write_bytes(dev_file.read_bytes())
    again = evaluate_relation(trained.run, str(copy), device="cpu")
    assert again.split == "other_name"
    assert again.micro_f1 == pytest.approx(trained.micro_f1)
    assert again.auprc == pytest.approx(trained.auprc, abs=0.05)


def test_a_file_that_changed_under_its_name_is_scored_anew(trained: RelationResult, tmp_path: Path) -> None:
    path = tmp_path / "some.json"
    path.write_text(json.dumps(make_raw_rows(12, start=200)), "utf-8")
    assert evaluate_relation(trained.run, str(path), device="cpu").n == 12
    path.write_text(json.dumps(make_raw_rows(8, start=300)), "utf-8")
    assert evaluate_relation(trained.run, str(path), device="cpu").n == 8


def test_a_finished_seed_is_not_trained_again_and_a_new_one_is_added(
    recipe: RelationRecipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = train_relation(recipe)
    calls: list[int] = []
    true_fit = fit_module.train_model

    def counted(model: Any, train: Any, valid: Any, recipe: Any, seed: int, *rest: Any) -> Any:
        calls.append(seed)
        return true_fit(model, train, valid, recipe, seed, *rest)

    monkeypatch.setattr(fit_module, "train_model", counted)
    assert train_relation(recipe).micro_f1 == first.micro_f1
    assert calls == []
    more = train_relation(change(recipe, seeds=2))
    assert calls == [1]
    assert more.seeds[0] == first.seeds[0]


class _Stop(Exception):
    pass


def test_an_interrupted_seed_goes_on_from_its_last_epoch_and_ends_the_same(
    recipe: RelationRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = change(recipe, epochs=3, hard_negatives=0.5)
    whole = train_relation(change(recipe, out=str(tmp_path / "whole")))
    true_epoch, epochs = fit_module._Trainer.train_epoch, []

    def cut_short(*arguments: Any) -> None:
        epochs.append(arguments[0].state.epoch)
        if len(epochs) == 3:
            raise _Stop
        true_epoch(*arguments)

    monkeypatch.setattr(fit_module._Trainer, "train_epoch", cut_short)
    with pytest.raises(_Stop):
        train_relation(recipe)
    again = train_relation(recipe)
    assert epochs == [0, 1, 2, 2]
    assert again.micro_f1 == whole.micro_f1
    assert [entry.validation for entry in again.seeds] == [entry.validation for entry in whole.seeds]
    expected, resumed = (read_predictions(Path(r.run) / "seed-0/predictions/made_dev.jsonl")[2] for r in (whole, again))
    assert (expected == resumed).all()
    assert not (Path(again.run) / "seed-0" / "resume.pt").exists()


def test_hard_negatives_are_chosen_by_answers_that_the_mask_allows(
    recipe: RelationRecipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    true_margins, smallest = fit_module.techniques.margins, []

    def look(logits: Any) -> Any:
        smallest.append(float(logits.min(-1).values.max()))
        return true_margins(logits)

    monkeypatch.setattr(fit_module.techniques, "margins", look)
    train_relation(change(recipe, epochs=1, seeds=1, label_mask="hard", hard_negatives=0.5))
    assert smallest
    assert max(smallest) < -1e3  # every row has labels that its types forbid


class _Interrupted:
    """A file in the middle of which somebody presses Ctrl-C, once."""

    def __init__(self, handle: IO[Any]) -> None:
        self._handle = handle
        self._pressed = False

    def write(self, part: Any) -> int:
        if not self._pressed and self._handle.tell() + memoryview(part).nbytes > 500_000:
            self._pressed = True
            raise KeyboardInterrupt
        return int(self._handle.write(part))

    def flush(self) -> None:
        self._handle.flush()


def test_an_interrupt_while_saving_is_an_interrupt_and_leaves_no_part_of_a_file(
    recipe: RelationRecipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def interrupted(path: Path, mode: str) -> Iterator[_Interrupted]:
        with atomic_write(path, mode) as handle:
            yield _Interrupted(handle)

    monkeypatch.setattr("coref_automl.training.state.atomic_write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train_relation(recipe)
    assert not list((Path(recipe.out) / "seed-0").iterdir())


def test_a_listener_hears_every_epoch_and_can_end_the_run(recipe: RelationRecipe) -> None:
    heard: list[tuple[int, int, float]] = []

    def listen(seed: int, epoch: int, scores: Any) -> None:
        heard.append((seed, epoch, scores.micro_f1))
        if len(heard) == 1:
            raise _Stop

    with pytest.raises(_Stop):
        train_relation(recipe, on_epoch=listen)
    result = train_relation(recipe, on_epoch=listen)
    assert [(seed, epoch) for seed, epoch, _ in heard] == [(0, 1), (0, 2)]
    assert max(f1 for _, _, f1 in heard) == result.seeds[0].validation.micro_f1


@pytest.mark.parametrize(
    ("lang", "told"), [("ko", "고른 에폭 {0}, 검증 F1 {1:.4g}"), ("en", "best epoch {0}, validation f1 {1:.4g}")]
)
def test_the_last_line_of_a_seed_tells_its_best_epoch(
    recipe: RelationRecipe, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], lang: str, told: str
) -> None:
    ticks = itertools.count()
    monkeypatch.setattr("coref_automl.base.progress.time.monotonic", lambda: float(next(ticks)))  # every stage takes a while
    monkeypatch.setattr("coref_automl.base.progress._LINE_EVERY", 1e9)
    best = train_relation(recipe, progress=Progress(lang=lang)).seeds[0]
    last = next(line for line in capsys.readouterr().err.splitlines() if line.startswith(("시드 0", "seed 0")))
    assert last.endswith(told.format(best.best_epoch, best.validation.micro_f1))


def test_the_line_of_an_epochs_last_step_has_that_epochs_scores(
    recipe: RelationRecipe, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("coref_automl.base.progress._LINE_EVERY", 0)
    scores: list[Scores] = []
    train_relation(change(recipe, seeds=1), progress=Progress(), on_epoch=lambda seed, epoch, score: scores.append(score))
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("seed 0: ") and " steps, " in line]
    assert len(lines) == len(scores) == 2
    for line, score in zip(lines, scores, strict=True):
        assert f"f1 {score.micro_f1:.4g}, " in line


def test_another_recipe_in_the_same_folder_is_refused(recipe: RelationRecipe) -> None:
    train_relation(change(recipe, epochs=1))
    with pytest.raises(FolderError, match="begun with epochs 1"):
        train_relation(recipe)


def test_training_stops_when_flat_and_keeps_the_best_weights(recipe: RelationRecipe) -> None:
    result = train_relation(change(recipe, epochs=6, threshold=1000.0, patience=2))
    assert result.seeds[0].best_epoch == 1
    assert result.seeds[0].epochs_run == 3


def test_the_loss_chooses_the_epoch_as_long_as_no_relation_is_found(recipe: RelationRecipe, tmp_path: Path) -> None:
    path = tmp_path / "none.json"
    path.write_text(json.dumps([{**row, "label": "no_relation"} for row in make_raw_rows(60)]), "utf-8")
    (seed,) = train_relation(change(recipe, train=str(path), dev=None, epochs=4, patience=2)).seeds
    assert seed.validation.micro_f1 == 0
    assert (seed.best_epoch, seed.epochs_run) == (4, 4)


def test_without_an_evaluation_file_the_result_says_what_it_is(recipe: RelationRecipe) -> None:
    result = train_relation(change(recipe, dev=None, epochs=1))
    assert result.split == "train-holdout"
    assert any("not an independent measurement" in note for note in result.notes)
    assert not any("occurs in" in note for note in result.notes)  # a slice of train is in train; that is no news
    assert result.n == result.validation_rows


def test_skipped_rows_are_told_and_kept_with_the_numbers_they_have_in_their_file(
    recipe: RelationRecipe, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = make_raw_rows(120)
    raw[1]["label"] = "per:nothing"
    parts = ("", "서울 부산 " * 60 + "중구", "은 ", "서울", "에서 태어났다.")
    raw[7] = raw_row("long", parts, ("PER", "LOC"), "per:place_of_birth")
    bad = tmp_path / "bad.json"
    bad.write_text(json.dumps(raw), "utf-8")
    with pytest.raises(RelationDataError, match=r"bad.json: row 2 "):
        train_relation(change(recipe, train=str(bad)))
    train_relation(change(recipe, train=str(bad), epochs=1, skip_bad=True), progress=Progress())
    shown = capsys.readouterr().err
    assert "skipped: bad row 2 (made-00001): the label" in shown
    assert "skipped: bad row 8 (long)" in shown
    listed = [json.loads(line) for line in (Path(recipe.out) / "bad-rows-bad.jsonl").read_text("utf-8").splitlines()]
    assert [line["row"] for line in listed] == [2, 8]
    result = evaluate_relation(recipe.out, str(bad), skip_bad=True, progress=Progress())
    assert "skipped: bad row 8 (long)" in capsys.readouterr().err
    assert any("AUPRC averages the 4 of 30 labels" in note for note in result.notes)
    assert sum(sum(line.given.values()) for line in result.labels) == result.n


def test_training_leaves_cudnns_attention_out(recipe: RelationRecipe, monkeypatch: pytest.MonkeyPatch) -> None:
    true_epoch, seen = fit_module._Trainer.train_epoch, []

    def watched(*arguments: Any) -> None:
        seen.append(torch.backends.cuda.cudnn_sdp_enabled())
        true_epoch(*arguments)

    monkeypatch.setattr(fit_module._Trainer, "train_epoch", watched)
    train_relation(change(recipe, epochs=1))
    assert seen == [False]
    assert torch.backends.cuda.cudnn_sdp_enabled()


def test_a_run_without_weights_cannot_score_another_file(recipe: RelationRecipe, tmp_path: Path) -> None:
    train_relation(change(recipe, epochs=1, keep_weights=False))
    path = tmp_path / "new.json"
    path.write_text(json.dumps(make_raw_rows(4, start=500)), "utf-8")
    with pytest.raises(ModelError, match="kept no weights"):
        evaluate_relation(recipe.out, str(path))


@pytest.fixture(scope="module")
def plain_loss(
    encoder_folder: Path, relation_file: Path, dev_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> float | None:
    """The validation loss after an epoch without any technique."""
    out = tmp_path_factory.mktemp("plain") / "run"
    return train_relation(recipe_of(encoder_folder, relation_file, dev_file, out, epochs=1)).seeds[0].validation_loss


@pytest.mark.parametrize(
    "technique",
    [
        {"label_smoothing": 0.2},
        {"label_mask": "soft"},
        {"layer_decay": 0.5},
        {"distance": True},
        {"encoder_dropout": 0.5},
    ],
)
def test_each_technique_changes_what_is_learned(
    recipe: RelationRecipe, plain_loss: float | None, technique: dict[str, Any]
) -> None:
    assert train_relation(change(recipe, epochs=1, **technique)).seeds[0].validation_loss != plain_loss


def test_a_hard_mask_is_kept_with_the_model_and_its_cost_is_noted(recipe: RelationRecipe) -> None:
    result = train_relation(change(recipe, epochs=1, label_mask="hard"))
    assert any("hard label mask forbids the gold label of 0 of" in note for note in result.notes)
    _, _, probabilities = read_predictions(Path(result.run) / "seed-0/predictions/made_dev.jsonl")
    assert (probabilities == 0).sum() > 40 * 20
    settings = json.loads((Path(result.run) / "seed-0/model/relation.json").read_text("utf-8"))
    assert np.array(settings["mask_bias"]).shape == (36, 30)


def test_a_row_that_cannot_be_marked_stops_training_before_it_starts(recipe: RelationRecipe) -> None:
    with pytest.raises(RelationDataError, match="--skip-bad"):
        train_relation(change(recipe, scheme="typed-punct-question", max_length=20))


def test_impossible_recipes_are_refused(recipe: RelationRecipe) -> None:
    with pytest.raises(RecipeError, match="no start marks"):
        change(recipe, scheme="none", head="starts")
    with pytest.raises(RecipeError, match="should be from"):
        change(recipe, holdout=0.9)
    with pytest.raises(RecipeError, match="from 1 to 1,000"):
        change(recipe, seeds=0)
    assert change(recipe, scheme="none").head_kind == "cls"


@pytest.mark.parametrize("scheme", ["plain", "typed"])
def test_new_marks_start_from_words_and_differ_by_role(encoder_folder: Path, scheme: str) -> None:
    model, marker = build_model(settings_of("both", encoder_folder, scheme=scheme))
    table = model.encoder.get_input_embeddings().weight.data
    kinds = ("E1", "PER"), ("E2", "PER")
    first, second = (table[marker.marks[kind][0][0]] for kind in kinds)
    assert len(table) >= len(marker.tokenizer)
    assert not torch.equal(first, second)
    again, _ = build_model(settings_of("both", encoder_folder, scheme=scheme))
    assert torch.equal(again.encoder.get_input_embeddings().weight.data, table)


@pytest.mark.parametrize("head", ["cls", "starts", "both"])
def test_a_head_reads_only_its_places_and_survives_saving(encoder_folder: Path, tmp_path: Path, head: Any) -> None:
    model, marker = build_model(settings_of(head, encoder_folder))
    model.eval()
    ids = torch.tensor([[2, 10, 11, 12, 13, 3]])
    mask = torch.ones_like(ids)
    with torch.inference_mode():
        here = model(ids, mask, torch.tensor([[1, 3]]))
        there = model(ids, mask, torch.tensor([[2, 4]]))
    assert here.shape == (1, 30)
    assert torch.equal(here, there) == (head == "cls")
    save_model(tmp_path, model, marker, settings_of(head, encoder_folder))
    loaded, again, _ = load_model(tmp_path)
    with torch.inference_mode():
        assert_same(loaded(ids, mask, torch.tensor([[1, 3]])), here)
    assert again.marks == marker.marks
    (tmp_path / "head.safetensors").write_bytes(b"")
    with pytest.raises(ModelError, match=r"head\.safetensors is missing or damaged .* train that seed again"):
        load_model(tmp_path)


def test_the_head_hears_of_the_distance_and_survives_saving(encoder_folder: Path, tmp_path: Path) -> None:
    plain, _ = build_model(settings_of("cls", encoder_folder))
    model, marker = build_model(settings_of("cls", encoder_folder, distance=True))
    plain.eval()
    model.eval()
    ids = torch.arange(2, 22)[None]
    mask = torch.ones_like(ids)
    near, far, behind = (torch.tensor([positions]) for positions in ([4, 5], [4, 14], [5, 4]))
    with torch.inference_mode():
        assert torch.equal(model(ids, mask, near), plain(ids, mask, near))  # it starts as the model without
        model.distance.weight.normal_(generator=torch.Generator().manual_seed(0))
        logits = [model(ids, mask, starts) for starts in (near, far, behind)]
        assert not torch.equal(logits[0], logits[1])
        assert not torch.equal(logits[0], logits[2])
        save_model(tmp_path, model, marker, settings_of("cls", encoder_folder, distance=True))
        loaded, _, _ = load_model(tmp_path)
        assert_same(loaded(ids, mask, far), logits[1])


def test_a_distance_needs_marks_in_the_sentence(recipe: RelationRecipe) -> None:
    with pytest.raises(RecipeError, match="no marks in the sentence"):
        change(recipe, scheme="none", distance=True)


def test_the_encoders_dropout_is_set_on_its_own_layers_alone(encoder_folder: Path) -> None:
    model, _ = build_model(settings_of("both", encoder_folder), encoder_dropout=0.3)
    layers = [layer.p for layer in model.encoder.modules() if isinstance(layer, torch.nn.Dropout)]
    assert set(layers) == {0.3}
    assert model.encoder.config.attention_dropout == 0.3  # of weights that are no layer: the attention's
    assert model.head[0].p == 0.0


def test_an_encoder_without_a_pooler_takes_a_dropout(tmp_path: Path, encoder_folder: Path) -> None:
    from coref_automl.models.build import build_masked_lm
    from coref_automl.models.load import load_tokenizer

    tokenizer = load_tokenizer(str(encoder_folder))
    build_masked_lm("bert-tiny", tokenizer, seq_len=64).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    plain, changed = (build_model(settings_of("both", tmp_path), encoder_dropout=share)[0].eval() for share in (None, 0.3))
    assert changed.encoder.encoder.layer[0].attention.self.dropout.p == 0.3
    for before, after in zip(plain.parameters(), changed.parameters(), strict=True):
        assert torch.equal(before, after)


def test_layer_decay_goes_by_layer_index(encoder_folder: Path) -> None:
    model, _ = build_model(settings_of("both", encoder_folder, scheme="punct"))
    rates: dict[str, float] = {
        name: group.learning_rate
        for group in parameter_groups(model, learning_rate=1.0, weight_decay=0.0, layer_decay=0.5)
        for name in group.names
    }
    assert {rate for name, rate in rates.items() if name.startswith("head.")} == {1.0}
    assert {rate for name, rate in rates.items() if ".layers.1." in name} == {0.5}
    assert {rate for name, rate in rates.items() if ".layers.0." in name} == {0.25}
    assert {rate for name, rate in rates.items() if "tok_embeddings" in name} == {0.125}


def test_a_padded_batch_gives_the_same_answers_as_single_rows(trained: RelationResult, rows: Any) -> None:
    from coref_automl.extras.relation.data import RowCache
    from coref_automl.extras.relation.model import LabelledRows, RowTensors, probabilities

    model, marker, _ = load_model(Path(trained.run) / "seed-0" / "model")
    assert isinstance(model, RelationModel)
    _, marked, _ = RowCache().mark(rows[:10], marker, progress=quiet())
    side = LabelledRows(RowTensors(marked, marker.tokenizer.pad_token_id, "cpu"), np.zeros(10, np.int64))
    together, alone = (probabilities(model, side, "float32", tokens=tokens) for tokens in (4096, 1))
    assert_same(together, alone)


def test_a_redrawn_seed_has_its_own_rows_and_runs_stay_comparable(recipe: RelationRecipe, tmp_path: Path) -> None:
    drawn = change(recipe, max_rows=60, redraw=True, seeds=2, epochs=1, keep_weights=False)
    result = train_relation(drawn)
    firsts = [train_relation(change(drawn, out=str(tmp_path / f"s{n}"), seeds=1, first_seed=n)) for n in (0, 1)]
    facts = [first.seeds[0].validation for first in firsts]
    assert [seed.validation for seed in result.seeds] == facts
    assert facts[0] != facts[1]
    fixed = train_relation(change(drawn, out=str(tmp_path / "fixed"), redraw=False, seeds=1))
    assert firsts[0].fingerprints["train"] == firsts[1].fingerprints["train"]
    assert fixed.fingerprints["settings"] != firsts[0].fingerprints["settings"]
    assert result.without_overlap is not None
    assert result.without_overlap.n == 20  # any of the rows may have been drawn
    raw = json.loads(Path(recipe.train).read_text("utf-8"))
    fixed_rows = {row.guid for row in read_relations(recipe.train, max_rows=60).rows}
    next(row for row in raw if row["guid"] not in fixed_rows)["label"] = "per:title"
    (tmp_path / "changed.json").write_text(json.dumps(raw), "utf-8")
    with pytest.raises(FolderError, match="other bytes of the train"):
        train_relation(change(drawn, train=str(tmp_path / "changed.json")))
    for bad in ({"max_rows": None}, {"dev": None}, {"label_mask": "hard"}):
        with pytest.raises(RecipeError, match="redraw"):
            change(drawn, **bad)
