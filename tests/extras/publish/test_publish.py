"""A checkpoint goes to the hub with the numbers of these very weights, once, by a token that may write, or not at all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from coref_automl.cli.app import run
from tests.evaluation.tiny import freeze_tiny, save_checkpoint
from tests.hub import Hub, commands, files_in, serving

TOKEN, OTHER = "hf_owner", "hf_another"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base and a run of one checkpoint, evaluated by the command."""
    folder = tmp_path_factory.mktemp("home")
    freeze_tiny(folder / "set")
    save_checkpoint(folder / "model", seed=1)
    (folder / "model" / "optimizer.pt").write_bytes(b"state")
    command = ["evaluate", str(folder / "model"), "--eval-set", str(folder / "set"), "--device", "cpu"]
    assert run([*command, "--out", str(folder / "scored")]) == 0
    return folder


@pytest.fixture
def hub() -> Iterator[Hub]:
    with serving() as served:
        yield served


def line(*options: str, model: str = "model") -> list[str]:
    return ["publish", model, "--repo", "owner/tiny", "--evaluations", "scored", *options]


def test_what_was_sent_loads_again_and_a_second_time_changes_nothing(home: Path, hub: Hub) -> None:
    first, second = commands(hub, home, line("--private"), line("--json"), tokens=(TOKEN, TOKEN))
    assert first.status == second.status == 0, first.err + second.err
    sent = hub.models["owner/tiny"]
    assert sent.private
    local = files_in(home / "model")
    assert sent.files["model.safetensors"] == local["model.safetensors"]
    assert sent.files["tokenizer.json"] == local["tokenizer.json"]
    assert not {"optimizer.pt", "training.json"} & set(sent.files)
    assert not any(str(home).encode() in content for content in sent.files.values())
    card = sent.files["README.md"].decode()
    assert "pipeline_tag: fill-mask" in card
    assert "## Measured on " in card
    assert "| Real@1 |" in card
    assert [path for method, path, _ in hub.asked if method == "POST" and path.endswith("/commit/main")] == [
        "/api/models/owner/tiny/commit/main"
    ]
    fetch = ["evaluate", "owner/tiny", "--eval-set", "set", "--device", "cpu", "--out", "fetched", "--json"]
    (again,) = commands(hub, home, fetch, tokens=(TOKEN,))
    assert again.status == 0, again.err
    assert json.loads(again.out)["estimates"]


@pytest.mark.journey
def test_refusals_and_cut_connections_are_one_sentence_and_the_same_command_goes_on(home: Path, hub: Hub) -> None:
    (stranger,) = commands(hub, home, line())
    assert (stranger.status, hub.models) == (2, {})
    assert "The hub does not let you write to owner/tiny; run `hf auth login`" in stranger.err
    (owner,) = commands(hub, home, line(), tokens=(TOKEN,))
    assert owner.status == 0, owner.err
    sent = hub.models["owner/tiny"]
    sent.files.clear()
    sent.stored.clear()
    (refused,) = commands(hub, home, line(), tokens=(OTHER,))
    assert refused.status == 2
    assert "The hub does not let you write to owner/tiny; run `hf auth login`" in refused.err
    sent.cuts["sent"] = 1_000
    (broken,) = commands(hub, home, line(), tokens=(TOKEN,))
    assert broken.status == 1
    assert "run the same command again: what arrived is not sent twice." in broken.err
    assert not sent.files  # nothing is half there
    sent.cuts.clear()
    (whole,) = commands(hub, home, line(), tokens=(TOKEN,))
    assert whole.status == 0, whole.err
    assert "model.safetensors" in sent.files


def test_a_dry_run_shows_the_card_and_sends_nothing(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(home)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert run(line("--dry-run", "--lang", "ko")) == 0
    shown = capsys.readouterr().out
    assert "지표 | 값 [95% 신뢰구간] | 베이스" in shown
    assert "전송하지 않음: README.md, config.json, model.safetensors" in shown


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["publish", "model", "--repo", "tiny"], "--repo tiny is not OWNER/NAME"),
        (["publish", "nowhere", "--repo", "owner/tiny"], "nowhere is not a folder"),
        (["publish", "other", "--repo", "owner/tiny", "--evaluations", "scored"], "run: coref-automl evaluate other"),
    ],
)
def test_what_cannot_be_published_is_one_sentence(
    home: Path, options: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(home)
    if not (home / "other").exists():
        save_checkpoint(home / "other", seed=2)
    assert run(options) == 2
    assert said in capsys.readouterr().err
