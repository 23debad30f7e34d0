"""Two tokenizers of different kinds: a pair's ranks are those of a full ranking among the nouns that both have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from coref_automl.base.records import ClozeItem, Document, ItemScore
from coref_automl.cli.app import run as command
from coref_automl.comparison.claims import VocabularyPair
from coref_automl.comparison.vocabularies import FIRST, RanksAhead, shared_ranks
from coref_automl.evaluation.answers import save_table
from coref_automl.evaluation.evalset import EvalSet, freeze
from coref_automl.evaluation.scorer import AHEAD, Scorer
from coref_automl.models.build import SPECIAL, build_masked_lm
from coref_automl.models.load import load_masked_lm, tokenizer_fingerprint
from coref_automl.models.vocabulary import entry_words
from coref_automl.report.printout import compare
from tests.evaluation.tiny import NOUNS, _wrapped, collect, item, tokenizer_of

DOCUMENTS = 160
TAILS = ("은", "을", "에", "의", "도", "이", "에서", "있다.", "보았다.", "왔다.", "쉬었다.")


def byte_level() -> PreTrainedTokenizerFast:
    """Every noun but one is an entry, and so are the particles; WordPiece lacks two others."""
    inner = Tokenizer(models.BPE(unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    inner.decoder = decoders.ByteLevel()
    lines = [word for word in (*NOUNS, *TAILS) if word != "나무"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    options = {"show_progress": False, "special_tokens": list(SPECIAL.values()), "initial_alphabet": alphabet}
    inner.train_from_iterator(lines * 9, trainers.BpeTrainer(vocab_size=600, **options))
    return _wrapped(inner)


def documents() -> tuple[list[tuple[Document, tuple[str, ...]]], dict[str, list[ClozeItem]]]:
    rng, texts, items = np.random.default_rng(7), [], {"real": [], "new": []}
    for number in range(DOCUMENTS):
        a, b, c, d = (str(noun) for noun in rng.permutation(NOUNS)[:4])
        text = f"{a}은 {b}에 있다. {a}을 보았다. {c}의 {d}도 왔다. {b}에서 {a}이 쉬었다."
        texts.append((Document(str(number), "tiny", text), (a, b, c, d)))
        for task, words, occurrence in (("real", (a, b), 1), ("new", (c, d), 0)):
            items[task] += [item(str(number), word, occurrence, task, text=text) for word in words]
    return texts, items


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, EvalSet]:
    """Two models, scored by the command on one set."""
    root = tmp_path_factory.mktemp("pair")
    freeze(root / "set", *documents(), {"name": "set"})
    for seed, tokenizer in enumerate((tokenizer_of("wordpiece"), byte_level())):
        table = np.array([word in NOUNS for word in entry_words(tokenizer)])
        save_table(root / "set", tokenizer_fingerprint(tokenizer), table)
        folder = root / ("pieces", "bytes")[seed]
        model: Any = build_masked_lm("bert-tiny", tokenizer, seq_len=128, seed=seed)
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    models = [str(root / name) for name in ("pieces", "bytes")]
    told = ["--eval-set", str(root / "set"), "--device", "cpu", "--dtype", "float32", "--out", str(root / "scored")]
    assert command(["evaluate", *models, *told]) == 0
    return root, EvalSet.open(root / "set")


def full_ranking(folder: Path, evalset: EvalSet, shared: set[str]) -> dict[str, ItemScore]:
    """The model scored again, among the shared nouns alone."""
    loaded = load_masked_lm(str(folder), device="cpu")
    table = np.array([word in shared for word in entry_words(loaded.tokenizer)])
    return collect(Scorer(loaded, table, seq_len=128).score(evalset.select(), evalset.documents))


def test_a_pair_is_ranked_as_among_the_nouns_that_both_have(scored: tuple[Path, EvalSet]) -> None:
    root, evalset = scored
    words = [{*entry_words(load_masked_lm(str(root / name)).tokenizer)} for name in ("pieces", "bytes")]
    shared = words[0] & words[1] & {*NOUNS}
    assert 5 < len(shared) < len(NOUNS) - 1
    table = compare(root / "scored")
    (pair,) = table.pairs
    sides = {name: full_ranking(root / name, evalset, shared) for name in ("pieces", "bytes")}
    both = [one.id for one in evalset.select() if all(scores[one.id].rank for scores in sides.values())]
    assert (pair.items, pair.nouns, pair.undetermined) == (len(both), len(shared), 0)
    assert {claim.outcome for claim in pair.claims} == {"noun1", "real1", "real5", "new1"}
    for metric, task, at in (("real1", "real", 1), ("real5", "real", 5), ("new1", "new", 1)):
        ids = [name for name in both if name.startswith(task)]
        expected = [float(np.mean([sides[model][name].rank <= at for name in ids])) for model in (pair.a, pair.b)]
        (claim,) = (claim for claim in pair.claims if claim.outcome == metric)
        assert claim.values == pytest.approx(expected)
        assert claim.difference.n == len(ids)


def test_each_tokenizer_has_a_table_and_the_pair_is_about_frequent_nouns(scored: tuple[Path, EvalSet]) -> None:
    root, _ = scored
    said = str(compare(root / "scored", lang="en"))
    assert "This is about frequent nouns." in said
    table = compare(root / "scored")
    assert {row.name for each in (table, *table.others) for row in each.rows} == {"pieces", "bytes"}


@pytest.mark.parametrize("limit", [2, 30])
def test_too_few_items_are_not_measured(scored: tuple[Path, EvalSet], tmp_path: Path, limit: int) -> None:
    root, _ = scored
    texts, items = documents()
    names = {document.id for document, _ in texts[:limit]}
    kept = {task: [one for one in of_task if one.document in names] for task, of_task in items.items()}
    freeze(tmp_path / "set", texts[:limit], kept, {"name": "set"})
    for table in (root / "set").glob("nouns-*.npy"):
        (tmp_path / "set" / table.name).write_bytes(table.read_bytes())
    models = [str(root / name) for name in ("pieces", "bytes")]
    told = ["--eval-set", str(tmp_path / "set"), "--device", "cpu", "--out", str(tmp_path / "scored")]
    assert command(["evaluate", *models, *told]) == 0
    (pair,) = compare(tmp_path / "scored").pairs
    assert (pair.why, pair.claims) == ("few items", ())
    assert 0 < pair.items <= 4 * limit


@given(st.lists(st.booleans(), max_size=60), st.integers(1, 40))
def test_ranks_are_exact_or_left_out(common: list[bool], kept: int) -> None:
    """One item, with nouns ahead of the answer of which some are shared, the best `kept` of them stored."""
    ahead = [f"{'both' if shared else 'own'}{number}" for number, shared in enumerate(common)]
    shared = frozenset(word for word in ahead if word.startswith("both"))
    ours = RanksAhead(np.array([len(ahead) + 1], np.int32), [ahead[:kept]])
    theirs = RanksAhead(np.array([1], np.int32), [[]])
    (first,), (second,), undetermined = shared_ranks(ours, theirs, shared)
    if undetermined:
        assert (first, second, len(ahead) > kept) == (0, 0, True)
        return
    true = len(shared) + 1
    assert second == 1
    assert [first <= at for at in (1, FIRST)] == [true <= at for at in (1, FIRST)]


def test_a_pair_survives_json() -> None:
    pair = VocabularyPair("a", "b", items=3, why="few items")
    assert VocabularyPair.from_json(pair.to_json()) == pair
    assert AHEAD == 256  # what docs/statistics.md says
