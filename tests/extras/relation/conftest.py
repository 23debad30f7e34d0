"""Small tokenizers of four kinds, rows, and a tiny encoder: everything the room needs without a hub."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from coref_automl.extras.relation.data import read_relations
from coref_automl.extras.relation.recipe import RelationRecipe
from coref_automl.extras.relation.results import RelationResult
from coref_automl.extras.relation.rows import RelationRow
from coref_automl.extras.relation.train import train_relation
from coref_automl.models.build import SPECIAL, build_masked_lm, train_tokenizer

TEXTS = [
    "〈Something〉는 조지 해리슨이 쓰고 비틀즈가 1969년 앨범 《Abbey Road》에 담은 노래다.",
    "이순신은 서울에서 태어났다. 사람 단체 장소 날짜 기타 수량 주체 대상 관계는 무엇인가",
    "삼성전자의 대표이사 김철수는 1990년 3월 부산대학교를 졸업했다. @ # * ^ & % $ + = |",
    "제갈량(諸葛亮, 181년 ~ 234년 10월 8일)은 중국 삼국시대 촉나라의 재상, 정치인이다.",
    "한국은행과 대한민국 정부는 서울특별시 중구에 있다. the quick brown fox 0123456789",
] * 3

NAMES = ("이순신", "김철수", "조지 해리슨", "박영희", "최민수", "정약용", "한석봉", "장영실")
GROUPS = ("삼성전자", "비틀즈", "한국은행", "부산대학교")
PLACES = ("서울", "부산", "중구", "광주")


def raw_row(
    guid: str, parts: tuple[str, str, str, str, str], types: tuple[str, str], label: str, *, flip: bool = False
) -> dict[str, Any]:
    """A row in KLUE-RE's own shape from (before, first, between, second, after)."""
    before, first, between, second, _after = parts
    a, b = len(before), len(before) + len(first) + len(between)
    entities = [
        {"word": first, "start_idx": a, "end_idx": a + len(first) - 1, "type": types[0]},
        {"word": second, "start_idx": b, "end_idx": b + len(second) - 1, "type": types[1]},
    ]
    subject, object_ = reversed(entities) if flip else entities
    return {
        "guid": guid,
        "sentence": "".join(parts),
        "subject_entity": subject,
        "object_entity": object_,
        "label": label,
        "source": "made",
    }


def make_raw_rows(count: int, start: int = 0) -> list[dict[str, Any]]:
    """Rows whose label follows from the words between the entities, so that a tiny model can learn them."""
    rows = []
    for number in range(start, start + count):
        name, group, city = NAMES[number % 8], GROUPS[number % 4], PLACES[(number // 3) % 4]
        kind = number % 4
        tail = f" 그때는 {1900 + number}년이었다."
        row = (
            (("어느 날 ", name, "은 ", city, "에서 태어났다." + tail), ("PER", "LOC"), "per:place_of_birth"),
            (("어느 날 ", group, "의 대표이사 ", name, "는 졸업했다." + tail), ("ORG", "PER"), "org:top_members/employees"),
            (("어느 날 ", name, "는 ", group, "에 있다." + tail), ("PER", "ORG"), "per:employee_of"),
            (("정부는 ", name, "과 ", city, "을 담은 노래다." + tail), ("PER", "LOC"), "no_relation"),
        )[kind]
        rows.append(raw_row(f"made-{number:05d}", *row))
    return rows


@pytest.fixture(scope="session")
def rows(relation_file: Path) -> tuple[RelationRow, ...]:
    return read_relations(str(relation_file)).rows


@pytest.fixture(scope="session")
def relation_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rows") / "made_train.json"
    path.write_text(json.dumps(make_raw_rows(120), ensure_ascii=False), "utf-8")
    return path


@pytest.fixture(scope="session")
def dev_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rows") / "made_dev.json"
    path.write_text(json.dumps(make_raw_rows(40, start=100), ensure_ascii=False), "utf-8")
    return path


def wordpiece() -> PreTrainedTokenizerFast:
    return train_tokenizer(TEXTS, vocab_size=900)


def byte_level() -> PreTrainedTokenizerFast:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=700, special_tokens=list(SPECIAL.values()), initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **SPECIAL)


def unigram() -> PreTrainedTokenizerFast:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=400, special_tokens=list(SPECIAL.values()), unk_token="[UNK]", show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **SPECIAL)


TOKENIZERS = {"wordpiece": wordpiece, "byte-level": byte_level, "unigram": unigram}


@pytest.fixture(scope="session", params=list(TOKENIZERS))
def any_tokenizer_maker(request: pytest.FixtureRequest) -> Any:
    """A tokenizer of each kind, as a function that gives a fresh copy: markers add entries to the one they are given."""
    serialized = TOKENIZERS[request.param]().backend_tokenizer.to_str()
    return lambda: PreTrainedTokenizerFast(tokenizer_object=_from_str(serialized), **SPECIAL)


@pytest.fixture(scope="session")
def fresh_tokenizer() -> Any:
    serialized = wordpiece().backend_tokenizer.to_str()
    return lambda: PreTrainedTokenizerFast(tokenizer_object=_from_str(serialized), **SPECIAL)


def _from_str(text: str) -> Any:
    from tokenizers import Tokenizer

    return Tokenizer.from_str(text)


@pytest.fixture(scope="session")
def encoder_folder(tmp_path_factory: pytest.TempPathFactory, fresh_tokenizer: Any) -> Path:
    """A tiny untrained encoder with its tokenizer, saved as a user would have it."""
    folder = tmp_path_factory.mktemp("encoder")
    tokenizer = fresh_tokenizer()
    build_masked_lm("tiny", tokenizer, seq_len=128).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def trained(
    encoder_folder: Path, relation_file: Path, dev_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> RelationResult:
    """Two seeds that learn the made rows; read by the tests that only look."""
    return train_relation(
        RelationRecipe(
            model=str(encoder_folder),
            train=str(relation_file),
            dev=str(dev_file),
            out=str(tmp_path_factory.mktemp("trained") / "run"),
            scheme="typed",
            seeds=2,
            epochs=8,
            batch_size=8,
            learning_rate=3e-3,
            holdout=0.2,
            max_length=64,
            patience=0,
            device="cpu",
        )
    )
