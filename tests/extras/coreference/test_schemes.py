from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import coref_automl
from coref_automl.base.errors import CoreferenceDataError, RecipeError
from coref_automl.extras.coreference.data import read_coref, read_schemes
from coref_automl.extras.coreference.documents import CorefDocument, Mention, write_documents
from coref_automl.extras.coreference.evaluate import evaluate_coreference, models_of
from coref_automl.extras.coreference.keep import LINKED_FROM, fit, scores
from coref_automl.extras.coreference.loss import Segment, batch_loss, false_positives
from coref_automl.extras.coreference.model import load_model
from coref_automl.extras.coreference.recipe import CoreferenceRecipe
from coref_automl.extras.coreference.resolve import FoundChains, encode_document, linked, resolve_found
from coref_automl.extras.coreference.split import SIDES, learned_from, named_split, sides_of
from coref_automl.extras.coreference.tokens import tokenize_documents
from coref_automl.extras.coreference.train import _new_model, train_coreference
from tests.extras.coreference.conftest import NAMES, recipe, tale


def renamed(tale: CorefDocument) -> CorefDocument:
    """The same tale under a scheme that marks people by name alone, and nothing that is mentioned once."""
    kept = tuple(m for m in tale.mentions if tale.text[m.start : m.end] in NAMES)
    return CorefDocument(f"names-{tale.id}", tale.text, kept)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory, tales: tuple[CorefDocument, ...], tales_file: Path) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("schemes")
    write_documents(folder / "names.jsonl", [renamed(tale) for tale in tales])
    return tales_file, folder / "names.jsonl"


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory, both: tuple[Path, Path], encoder_folder: Path) -> Path:
    """One head that learned two schemes."""
    out = tmp_path_factory.mktemp("runs") / "two"
    train_coreference(recipe(both[0], encoder_folder, out, more=(f"names={both[1]}",), epochs=14, rank=8))
    return out


def test_one_head_answers_under_the_scheme_that_is_asked_for(two: Path, tales: tuple[CorefDocument, ...]) -> None:
    general, by_name, names = (
        coref_automl.coreference(tales[0].text, two, scheme=scheme)  # type: ignore[operator]
        for scheme in (None, "general", "names")
    )
    assert general == by_name
    forms = {form for chain in names.strings for form in chain}
    assert forms <= set(NAMES)
    assert {form for chain in general.strings for form in chain} > forms
    assert not names.singles
    with pytest.raises(RecipeError, match="Unknown scheme 'name'"):
        coref_automl.coreference("민수는 갔다.", two, scheme="name")  # type: ignore[operator]


def test_a_file_is_scored_under_the_scheme_that_it_was_marked_under(two: Path, both: tuple[Path, Path], tmp_path: Path) -> None:
    fresh = []
    for path, name in zip(both, ("all", "names"), strict=True):
        documents = [replace(d, text=d.text + f"\n{name} 끝") for d in read_schemes([str(path)]).documents[:4]]
        write_documents(tmp_path / f"{name}.jsonl", documents)
        fresh.append(evaluate_coreference(two, str(tmp_path / f"{name}.jsonl")))
    assert [result.notes[-1] for result in fresh] == ["Annotation scheme: general", "Annotation scheme: names"]
    assert min(result.estimates["found"]["mention"].value for result in fresh) > 0.8


def test_a_document_in_two_files_is_refused(both: tuple[Path, Path]) -> None:
    with pytest.raises(CoreferenceDataError, match=r"12 documents are in two files \('tale-0'\)"):
        read_schemes([str(both[0]), f"names={both[0]}"])


def test_a_head_trained_further_starts_where_it_ended(two: Path, both: tuple[Path, Path], tmp_path: Path) -> None:
    still = {"start": str(two), "epochs": 1, "learning_rate": 1e-8, "head_rate": 1e-8, "weight_decay": 0.0, "holdout": 0.5}
    further = replace(recipe(both[1], "", tmp_path / "r", **still), data=f"names={both[1]}")
    train_coreference(further)
    start, further_model = load_model(two / "seed-0" / "model"), load_model(tmp_path / "r" / "seed-0" / "model")
    for (name, old), new in zip(start.state_dict().items(), further_model.state_dict().values(), strict=True):
        assert torch.allclose(old, new, atol=2e-3), name
    assert further_model.settings.rank == 8
    assert [scheme.name for scheme in further_model.settings.schemes] == ["general", "names"]
    assert further_model.settings.schemes[0] == start.settings.schemes[0]
    learned = [
        set(json.loads((run / "seed-0" / "model" / "learned_from.json").read_text("utf-8"))) for run in (two, tmp_path / "r")
    ]
    assert learned[0] <= learned[1]
    with pytest.raises(RecipeError, match="Unknown scheme 'heroes'"):
        train_coreference(replace(further, data=f"heroes={both[1]}", out=str(tmp_path / "s")))
    with pytest.raises(RecipeError, match="Pass an encoder with --model, or a head to train further with --from"):
        CoreferenceRecipe(data="d.jsonl", out="o")


def test_a_head_that_is_trained_further_is_compared_with_its_start(run: Path, tmp_path: Path) -> None:
    """Cross-fitted: each document by a head that has not seen it; the model at the end has learned from all."""
    new = tuple(replace(tale(number), id=f"new-{number}", text=tale(number).text + "\n끝.") for number in range(20, 26))
    write_documents(tmp_path / "new.jsonl", new)
    settings = recipe(tmp_path / "new.jsonl", "", tmp_path / "further", start=str(run), epochs=1, folds=2)
    result = train_coreference(settings)
    assert (result.documents, set(result.gain)) == (6, {"gold", "found"})
    start = evaluate_coreference(run, str(tmp_path / "new.jsonl"))
    for mode, gain in result.gain.items():
        expected = result.estimates[mode]["conll"].value - start.estimates[mode]["conll"].value
        assert gain.value == pytest.approx(expected, abs=1e-6)
        assert gain.low <= gain.value <= gain.high
    assert any("against the starting head" in line for line in result.lines())
    assert len(learned_from(models_of(tmp_path / "further")[0])) == len(learned_from(models_of(run)[0])) + 6
    assert train_coreference(settings) == result


def test_scored_documents_that_the_start_has_learned_are_counted(run: Path, tmp_path: Path) -> None:
    new = tuple(replace(tale(number), id=f"new-{number}", text=tale(number).text + "\n끝.") for number in range(20, 22))
    write_documents(tmp_path / "some.jsonl", [*(tale(number) for number in range(3)), *new])
    write_documents(tmp_path / "new.jsonl", new)
    some, none = (
        train_coreference(recipe(tmp_path / f"{name}.jsonl", "", tmp_path / name, start=str(run), epochs=1, folds=2))
        for name in ("some", "new")
    )
    assert some.notes == ("The starting head had learned 3 of the 5 scored documents: scores may be too high.",)
    assert none.notes == ()


def test_negatives_are_wrong_spans_that_the_model_takes_for_mentions() -> None:
    scores = torch.tensor([[0.5, -3.0, 0.1], [2.0, 0.9, -1.0], [0.0, 3.0, 1.5]])
    targets = torch.zeros_like(scores)
    targets[2, 1] = 1.0
    first, width = false_positives(scores, targets, 3)
    assert list(zip(first.tolist(), width.tolist(), strict=True)) == [(0, 0), (0, 2), (1, 0)]
    assert len(false_positives(scores, targets, 100)[0]) == 5


def test_documents_of_a_batch_do_not_touch_each_other(encoder_folder: Path, tales: tuple[CorefDocument, ...]) -> None:
    documents = [replace(tale, scheme="general") for tale in (tales[0], tales[3])]
    settings = recipe(Path("d"), encoder_folder, Path("o"))
    model = _new_model(settings, documents, 0).eval()
    first, second = (Segment(doc, 0, len(doc)) for doc in tokenize_documents(model.tokenizer, documents))
    assert batch_loss(model, [first, first]).item() == pytest.approx(batch_loss(model, [first]).item(), rel=1e-3)
    assert batch_loss(model, [first, second]).item() == pytest.approx(batch_loss(model, [second, first]).item(), rel=1e-4)


def test_the_fixed_split_does_not_move_when_documents_join() -> None:
    novels = named_split("koconovel")
    documents = [CorefDocument(f"d{n}", "가", (Mention(0, 1, "a"),), origin=f"o{n // 2}") for n in range(4_000)]
    documents += [CorefDocument(name, "나", ()) for name in novels.test]
    whole, part = sides_of("fixed", documents), sides_of("fixed", documents[1_000:])
    assert all(set(getattr(part, side)) <= set(getattr(whole, side)) for side in SIDES)
    assert set(novels.test) <= set(whole.test)
    side = {name: side for side in SIDES for name in getattr(whole, side)}
    assert all(side[f"d{n}"] == side[f"d{n + 1}"] for n in range(0, 4_000, 2))  # two parts of one article
    count = Counter(side.values())
    assert [round(count[name] / 4_000, 1) for name in ("train", "dev")] == [0.8, 0.1]


def test_everyday_texts_are_on_the_side_of_their_file() -> None:
    folder = Path(__file__).parents[3] / "data" / "ko-coref"
    for side, count in (("train", 82), ("dev", 40)):
        documents = read_coref(folder / f"everyday-{side}.jsonl.xz").documents
        assert len(sides_of("fixed", documents).side(side, documents)) == len(documents) == count
        split = named_split("everyday")
        assert set(getattr(split, side)) == {document.id for document in documents}


def test_what_is_kept_depends_on_how_it_links(two: Path, tales: tuple[CorefDocument, ...]) -> None:
    model = load_model(models_of(two)[0])
    (doc,) = tokenize_documents(model.tokenizer, [replace(tales[0], scheme="names")])
    encoded = encode_document(model, doc)
    places, everything, features = linked(model, encoded, LINKED_FROM)
    assert features.shape == (len(places.spans), 16)

    def kept(*weights: float) -> FoundChains:
        schemes = [replace(scheme, keep=weights) for scheme in model.settings.schemes]
        model.settings = replace(model.settings, schemes=tuple(schemes))
        return resolve_found(model, encoded)

    assert kept(1.0, *[0.0] * 16).spans == everything.spans
    assert kept(-1.0, *[0.0] * 16).spans == ()
    cut = float(np.sort(places.logits)[:2].mean())
    by_logit = kept(-cut, 1.0, *[0.0] * 15)  # the first feature is the logit
    assert by_logit.spans == resolve_found(model, encoded, threshold=cut).spans != everything.spans


def test_weights_are_fitted_to_what_is_linked() -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(400, 16))
    weights = fit(features, features[:, 2] + features[:, 4] > 0)
    assert weights[3] > 5 * max(abs(weights[n]) for n in (1, 2, 4, 6))
    assert ((scores(features, weights) >= 0) == (features[:, 2] + features[:, 4] > 0)).mean() > 0.9
