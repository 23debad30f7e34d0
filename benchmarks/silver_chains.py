"""Chains of texts that nobody annotated, by the mean scores of several coreference heads.

python benchmarks/silver_chains.py HEAD HEAD ... --texts texts.jsonl --dev data/ko-coref/dev.jsonl.xz --out silver.jsonl

In: heads of one encoder, JSON lines with `doc_id` and `text`, annotated texts that choose the threshold. Out: the texts with
their chains, as `coref train --more` reads them. The bundled head learned from 2,266 such texts (docs/coreference.md).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from coref_automl.coreference.data import read_schemes
from coref_automl.coreference.documents import CorefDocument
from coref_automl.coreference.head import quotations, surfaces
from coref_automl.coreference.metrics import added, conll, score_document
from coref_automl.coreference.model import CoreferenceModel, load_model
from coref_automl.coreference.resolve import Read, _join, _mentions, _probabilities
from coref_automl.coreference.tokens import TokenizedDocument, tokenized, windows, within
from coref_automl.models.execution import autocast

_THRESHOLDS = np.arange(-2, 1.01, 0.25).tolist()
_BACK = 250
"""Mentions that one looks back over."""

Chains = tuple[tuple[tuple[int, int], ...], ...]


def scored(models: list[CoreferenceModel], doc: TokenizedDocument) -> tuple[Any, list[Any]]:
    """Mean scores of all spans, and the tokens as each model read them."""
    reads, total = [], torch.zeros(())
    for model in models:
        with autocast(str(model.device), "auto"):
            states = torch.cat(model.states_of([(doc, part) for part in windows(len(doc), model.room, model.room // 4)]))
        letters, repeats = (torch.from_numpy(table).to(states.device) for table in (doc.letters, doc.repeats))
        scheme = torch.full((len(states),), model.scheme_number(doc.document), device=states.device)
        read = model.head.read(states, letters, repeats, scheme)
        reads.append(read)
        total = total.to(states.device) + model.head.span_scores(read, repeats).float()
    scores = (total / len(models)).cpu().numpy()
    scores[~within(doc.sentences)] = -1e4
    return scores, reads


def chains(models: list[CoreferenceModel], doc: TokenizedDocument, scores: Any, reads: list[Any], threshold: float) -> Chains:
    first, width = np.nonzero(scores > threshold)
    first, last, score = _mentions(Read(doc, first, first + width, scores[first, width], None, first), threshold)
    if not len(first):
        return ()
    device = reads[0].device
    ends, sizes = torch.from_numpy(last).to(device), torch.from_numpy(doc.sizes[last]).to(device)
    trailing = sum(model.head.trailing(read[ends], sizes).softmax(1) for model, read in zip(models, reads, strict=True))
    spans = [doc.span(*place) for place in zip(first.tolist(), last.tolist(), trailing.argmax(1).tolist(), strict=True)]
    best: dict[tuple[int, int], int] = {}
    for index in np.argsort(-score, kind="stable").tolist():
        best.setdefault(spans[index], index)
    order = np.array(sorted(best.values(), key=lambda index: (spans[index][0], -spans[index][1])))
    spans, first, last, score = [spans[index] for index in order], first[order], last[order], score[order]
    text, everything = doc.document.text, slice(0, len(spans))
    features = torch.from_numpy(surfaces(text, spans, first, quotations(text)).of(everything, everything)).to(device)
    sure, begin, end = (torch.from_numpy(column).to(device) for column in (score, first, last))
    logits = torch.zeros((), device=device)
    for model, read in zip(models, reads, strict=True):
        shown = model.head.mentions(read[begin], read[end])
        logits = logits + model.head.antecedents(shown, shown, features, (sure, sure)).float()
    table = (logits / len(models)).cpu().numpy()
    chain_of = np.full(len(spans), -1, np.int64)
    found: list[list[int]] = []
    for index in range(len(spans)):
        _join(index, _probabilities(table[index, max(0, index - _BACK) : index]), chain_of, found)
    return tuple(tuple(spans[index] for index in chain) for chain in found if len(chain) > 1)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("heads", nargs="+", type=Path)
    for name in ("texts", "dev", "out"):
        options.add_argument(f"--{name}", required=True)
    options.add_argument("--device", default="cpu")
    asked = options.parse_args()
    torch.set_grad_enabled(False)
    models = [load_model(folder, asked.device) for folder in asked.heads]
    held = [(doc, *scored(models, doc)) for doc in tokenized(models[0].tokenizer, read_schemes((asked.dev,)).documents)]

    def at(threshold: float) -> float:
        found = ((one[0].document.chains, chains(models, *one, threshold)) for one in held)
        return conll(added(score_document(gold, own) for gold, own in found))

    threshold = max(_THRESHOLDS, key=at)
    print(f"threshold {threshold}: CoNLL {100 * at(threshold):.1f} on {len(held)} texts")
    with Path(asked.out).open("w", encoding="utf-8") as out:
        for line in Path(asked.texts).read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            (doc,) = tokenized(models[0].tokenizer, [CorefDocument(row["doc_id"], row["text"], (), scheme="general")])
            found = chains(models, doc, *scored(models, doc), threshold)
            clusters = [
                [{"start": a, "end": b, "text": row["text"][a:b], "entity": f"e{number}"} for a, b in chain]
                for number, chain in enumerate(found)
            ]
            if clusters:
                out.write(json.dumps({**row, "clusters": clusters}, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
