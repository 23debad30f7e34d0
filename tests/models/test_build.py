"""Small models and tokenizers from scratch: the same for the same input, and usable at once."""

from __future__ import annotations

import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest
import torch

from coref_automl.base.errors import RecipeError
from coref_automl.base.korean import Tagger
from coref_automl.corpus.sources import bundled_rows
from coref_automl.models.build import SHAPES, build_masked_lm, train_tokenizer
from coref_automl.models.model_files import detect_seq_len

TEXTS = [
    "한빛전자는 새 공장을 세웠다. 한빛전자의 대표 김서연은 공장에서 말했다.",
    "김서연은 도서관에서 공부하였다. 도서관은 강변에 있다. 강변의 도서관을 시민이 찾는다.",
    "시민은 공장을 보았고 도서관을 지었다. 漢字도 있고 2024년도 있다.",
] * 4


@pytest.mark.parametrize("shape", sorted(SHAPES))
def test_every_shape_runs_and_the_seed_decides_its_weights(shape: str) -> None:
    if SHAPES[shape].hidden > 128:
        pytest.skip("too large for a test; the sizes are the same code")
    tokenizer = train_tokenizer(TEXTS, vocab_size=400)
    before = torch.random.get_rng_state()
    first, again, other = (build_masked_lm(shape, tokenizer, seq_len=64, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.random.get_rng_state(), before)
    ids = tokenizer("도서관은 강변에 있다.", return_tensors="pt")["input_ids"]
    with torch.inference_mode():
        logits_a, logits_b, logits_c = (model.eval()(input_ids=ids).logits for model in (first, again, other))
    assert logits_a.shape == (1, ids.shape[1], len(tokenizer))
    assert torch.equal(logits_a, logits_b)
    assert not torch.equal(logits_a, logits_c)


def test_an_unknown_shape_names_the_nearest() -> None:
    with pytest.raises(RecipeError, match="ko-mini"):
        build_masked_lm("ko-mni", train_tokenizer(TEXTS, vocab_size=300), seq_len=64)


@pytest.mark.journey
def test_the_same_texts_give_the_same_tokenizer_in_every_process() -> None:
    code = (
        "import hashlib; from itertools import islice; from coref_automl.corpus.sources import bundled_rows;"
        "from coref_automl.models.build import train_tokenizer;"
        "made = train_tokenizer((row['text'] for row in islice(bundled_rows('synthetic'), 40)), vocab_size=3000);"
        "print(hashlib.sha256(made.backend_tokenizer.to_str().encode()).hexdigest())"
    )
    prints = {subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout for _ in range(2)}
    assert len(prints) == 1


def test_the_vocabulary_is_as_large_as_asked_for() -> None:
    texts = [row["text"] for row in islice(bundled_rows("synthetic"), 12)]
    for tagger in (None, Tagger()):
        assert len(train_tokenizer(texts, vocab_size=1_500, tagger=tagger)) == 1_500


def test_a_tagger_keeps_particles_out_of_noun_entries() -> None:
    entries = train_tokenizer(TEXTS, vocab_size=500, tagger=Tagger()).get_vocab()
    plain = train_tokenizer(TEXTS, vocab_size=500).get_vocab()
    joined = {"도서관을", "도서관은", "공장을", "시민은"}
    assert joined & set(plain)
    assert not joined & set(entries)
    assert {"도서관", "공장", "시민"} <= set(entries)


def test_special_tokens_and_round_trip() -> None:
    tokenizer = train_tokenizer(TEXTS, vocab_size=400)
    encoded = tokenizer("도서관은 [MASK]에 있다.")["input_ids"]
    assert encoded[0] == tokenizer.cls_token_id
    assert encoded[-1] == tokenizer.sep_token_id
    assert tokenizer.mask_token_id in encoded
    assert tokenizer.decode(tokenizer("漢字도 있고")["input_ids"], skip_special_tokens=True) == "漢 字 도 있고"


def test_single_characters_come_from_the_alphabet_alone() -> None:
    texts = [*TEXTS, "뷁 뷁 쫣 쫣 !! ??"]
    entries = train_tokenizer(texts, vocab_size=200, tagger=Tagger(), alphabet=40).get_vocab()
    singles = [entry for entry in entries if len(entry.removeprefix("##")) == 1]
    assert len(singles) == 40
    assert not any(entry.startswith("##[") for entry in entries)


def test_a_new_roberta_reads_the_length_that_was_asked_for(tmp_path: Path) -> None:
    learned = train_tokenizer([row["text"] for row in islice(bundled_rows("synthetic"), 4)], vocab_size=300)
    build_masked_lm("roberta-tiny", learned, seq_len=128).save_pretrained(tmp_path)
    assert detect_seq_len(str(tmp_path)) == 128
