"""The data card. In: the choice of documents and what encoding says of each. Out: counts per source, a table and card.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coref_automl.base.errors import WorkError
from coref_automl.base.progress import Progress
from coref_automl.base.say import align, in_words, say
from coref_automl.corpus import encode
from coref_automl.corpus.choice import KEPT, REASONS, Choice
from coref_automl.corpus.recipe import PrepareRecipe
from coref_automl.corpus.shards import UNREAD, Index
from coref_automl.corpus.sources import SOURCES, licence_in_words, licence_of, licence_of_bundled


def counts_table(manifest: dict[str, Any], *, sizes: bool = True) -> str:
    """A table of documents read, kept and dropped, characters and tokens by source, and below it the reasons for drops.

    `sizes=False` leaves out characters and tokens, which are known only after encoding.
    """
    columns = 6 if sizes else 4
    head = say("데이터 소스/읽음/남음/제외/글자/토큰", "source/in/kept/dropped/characters/tokens").split("/")
    rows = [tuple(head[:columns])]
    for source in [*manifest["sources"], _total(manifest["sources"])]:
        numbers = (source["in"], source["kept"], sum(source["dropped"].values()), source["characters"], source["tokens"])
        rows.append((source["name"], *(f"{number:,}" for number in numbers))[:columns])
    lines = align(rows, right=True)
    for source in manifest["sources"]:
        for reason, count in source["dropped"].items():
            lines.append(f"  {source['name']}: {count:,} {in_words(reason)}")
    return "\n".join(lines)


def summary(manifest: dict[str, Any]) -> str:
    blocks, length, tokens, mentions, chains = (
        f"{manifest[name]:,}" for name in ("blocks", "seq_len", "tokens", "mentions", "chains")
    )
    padding = f"{manifest['padding_share']:.2%}"
    return say(
        f"{length}토큰 블록 {blocks}개, {tokens}토큰, 패딩 {padding}, 사슬 {chains}개의 언급 {mentions}개",
        f"{blocks} blocks of {length} tokens, {tokens} tokens, padding {padding}, {mentions} mentions in {chains} chains",
    )


def card(manifest: dict[str, Any]) -> str:
    """The text of card.md, from the manifest alone."""
    settings = manifest["settings"]
    length, unknown = f"{manifest['seq_len']:,}", f"{manifest['unknown_share']:.3%}"
    tokenizer, fingerprint = f"`{manifest['tokenizer']}` ({manifest['tokenizer_fingerprint']})", f"`{manifest['fingerprint']}`"
    inputs = [(entry["label"], f"{entry['rows']:,}", entry["bytes"]) for entry in manifest["inputs"]]
    parts = [
        say(f"# 데이터셋 `{manifest['mode']}`, {length}토큰", f"# Dataset `{manifest['mode']}` at {length} tokens"),
        f"{summary(manifest)}. "
        + say(
            f"토크나이저: {tokenizer}, 미등록 토큰 {unknown}. 배열 핑거프린트: {fingerprint}.",
            f"Tokenizer: {tokenizer}; unknown tokens {unknown}. Fingerprint of the arrays: {fingerprint}.",
        ),
        say("## 데이터 소스", "## Sources"),
        f"```\n{counts_table(manifest)}\n```",
        "\n".join(f"- {source['name']}: {licence_in_words(source['licence'])}" for source in manifest["sources"]),
        say("## 입력", "## Inputs"),
        _markdown(say("입력/행/핑거프린트", "input/rows/fingerprint").split("/"), inputs),
    ]
    if manifest["missing"]:
        parts += [say("## 읽을 수 없었던 것", "## Could not be read"), "\n".join(f"- {line}" for line in manifest["missing"])]
    parts += [say("## 평가 문서", "## Evaluation documents"), _evaluation(manifest), say("## 설정", "## Settings")]
    parts.append(_markdown(say("설정/값", "setting/value").split("/"), [(key, f"`{value}`") for key, value in settings.items()]))
    parts += [
        say("## 버전", "## Versions"),
        _markdown(say("패키지/버전", "package/version").split("/"), list(manifest["versions"].items())),
    ]
    return "\n\n".join(parts) + "\n"


def _evaluation(manifest: dict[str, Any]) -> str:
    settings = manifest["settings"]
    share = f"{settings['holdout']:.1%}"
    ko = f"데이터 소스마다 문서의 {share}와 300개 가운데 큰 쪽을, 많아도 절반까지 평가용으로 남겨 두었습니다."
    held_out = say(ko, f"Held out of every source: {share} of its documents or 300, whichever is more, never over half.")
    lines = [held_out if settings["holdout"] else say("평가용으로 남겨 둔 문서가 없습니다.", "No document is held out.")]
    exact, also_near = say("id, 본문", "id and text"), say("id, 본문, 비슷한 본문", "id, text and near text")
    by = also_near if settings["near_duplicates"] else exact
    for entry in manifest["eval_sets"]:
        name = f"`{entry['name']}` ({entry['fingerprint']})"
        lines.append(say(f"- 제외: {name}의 문서 ({by} 기준)", f"- excluded: the documents of {name}, by {by}"))
    overlap = manifest["overlap"]
    if overlap is not None:
        runs, texts, shared, touched = (f"{overlap[name]:,}" for name in ("runs", "documents", "runs_found", "documents_touched"))
        lines.append(
            say(
                f"\n평가 문서 {texts}개의 13어절 연쇄 {runs}개 중 {shared}개가 학습 글에도 있습니다 (문서 {touched}개).",
                f"\nOf {runs} 13-word sequences in {texts} evaluation documents, {shared} also occur in the training text; "
                f"{touched} documents are affected.",
            )
        )
        rows = [
            (e["evaluation_document"], f"{e['training_source']}/{e['training_document']}", e["words"])
            for e in overlap["examples"]
        ]
        if rows:
            head = say("평가 문서/학습 문서/겹친 말", "evaluation document/training document/shared words").split("/")
            lines.append("\n" + _markdown(head, rows))
    return "\n".join(lines)


def _total(sources: Sequence[dict[str, Any]]) -> dict[str, Any]:
    total = {key: sum(source[key] for source in sources) for key in ("in", "kept", "characters", "tokens")}
    dropped = {"": sum(sum(source["dropped"].values()) for source in sources)}
    return {"name": say("합계", "total"), "dropped": dropped, **total}


def _markdown(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


def refuse_sources(sources: list[dict[str, Any]], recipe: PrepareRecipe, progress: Progress) -> None:
    """Note the sources that contribute nothing; without `allow_empty` they are an error."""
    empty = [source for source in sources if not source["kept"] and set(source["dropped"]) != {UNREAD}]
    if not empty and any(source["kept"] for source in sources):
        return
    empty = empty or sources
    reasons = (max(source["dropped"], key=source["dropped"].__getitem__, default="no rows") for source in empty)
    named = ", ".join(f"{source['name']} ({reason})" for source, reason in zip(empty, reasons, strict=True))
    if not recipe.allow_empty or len(empty) == len(sources):
        progress.note(counts_table({"sources": sources}, sizes=False))
        raise WorkError(
            f"These sources contribute no document: {named}. Leave them out, or relax a filter; prepare also takes --allow-empty."
        )
    progress.note(f"문서가 없는 데이터 소스: {named}", f"No documents from: {named}")


def counted(
    index: Index, choice: Choice, facts: NDArray[np.int32] | None = None, hub: Collection[str] = ()
) -> list[dict[str, Any]]:
    """The counts of every source, by name; before encoding there are no `facts`. `hub` names sources that are not files."""
    facts = np.zeros((len(index), len(encode.FACTS)), np.int32) if facts is None else facts
    sources = []
    for number, name in enumerate(index.sources):
        rows = np.flatnonzero(index.source == number)
        dropped = Counter(index.dropped.get(name, {}))
        chosen = rows[choice[rows] == KEPT]
        for reasons, codes in ((REASONS, choice[rows]), (encode.REASONS, facts[chosen, encode.REASON])):
            for code, count in zip(*np.unique(codes[codes > 0], return_counts=True), strict=True):
                dropped[reasons[int(code)]] += int(count)
        kept = chosen[facts[chosen, encode.REASON] == 0]
        licence = licence_of(name) if name in hub or name not in SOURCES else "not stated by a local file"
        sources.append(
            {
                "name": name,
                "licence": licence_of_bundled(name, hub) or licence,
                "in": len(rows) + sum(index.dropped.get(name, {}).values()),
                "kept": len(kept),
                "dropped": dict(sorted(dropped.items())),
                "characters": int(facts[kept, encode.CHARACTERS].sum()),
                "tokens": int(facts[kept, encode.TOKENS].sum()),
            }
        )
    return sorted(sources, key=lambda source: source["name"])
