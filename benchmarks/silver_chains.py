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

from coref_automl.extras.coreference.data import read_schemes
from coref_automl.extras.coreference.documents import CorefDocument
from coref_automl.extras.coreference.head import MASKED_LOGIT, Surfaces
from coref_automl.extras.coreference.metrics import conll, score_document, sum_scores
from coref_automl.extras.coreference.model import CoreferenceModel, load_model
from coref_automl.extras.coreference.resolve import EncodedDocument, antecedent_probabilities, join_chain, select_mentions
from coref_automl.extras.coreference.tokens import TokenizedDocument, tokenize_documents, windows, within_sentence
from coref_automl.models.execution import autocast

_THRESHOLDS = np.arange(-2, 1.01, 0.25).tolist()
_MAX_ANTECEDENTS = 250

Chains = tuple[tuple[tuple[int, int], ...], ...]


def scored(models: list[CoreferenceModel], doc: TokenizedDocument) -> tuple[Any, list[Any]]:
    """Return mean logits of all spans, and each model's head inputs."""
    inputs, total = [], torch.zeros(())
    for model in models:
        with autocast(str(model.device), "auto"):
            parts = [(doc, window) for window in windows(len(doc), model.capacity, model.capacity // 4)]
            inputs.append(model.encode_windows(parts))
        recurrence = torch.from_numpy(doc.recurrence).to(model.device)
        total = total.to(model.device) + model.head.mention_logits(inputs[-1], recurrence).float()
    scores = (total / len(models)).cpu().numpy()
    scores[~within_sentence(doc.sentence_ids)] = MASKED_LOGIT
    return scores, inputs


def chains(models: list[CoreferenceModel], doc: TokenizedDocument, scores: Any, inputs: list[Any], threshold: float) -> Chains:
    first, width = np.nonzero(scores > threshold)
    candidates = EncodedDocument(doc, first, first + width, scores[first, width], None, first)
    first, last, score = select_mentions(candidates, threshold)
    if not len(first):
        return ()
    device = inputs[0].device
    ends, lengths = torch.from_numpy(last).to(device), torch.from_numpy(doc.lengths[last]).to(device)
    trailing = sum(model.head.trailing_logits(read[ends], lengths).softmax(1) for model, read in zip(models, inputs, strict=True))
    spans = [doc.span(*place) for place in zip(first.tolist(), last.tolist(), trailing.argmax(1).tolist(), strict=True)]
    best: dict[tuple[int, int], int] = {}
    for index in np.argsort(-score, kind="stable").tolist():
        best.setdefault(spans[index], index)
    order = np.array(sorted(best.values(), key=lambda index: (spans[index][0], -spans[index][1])))
    spans, first, last, score = [spans[index] for index in order], first[order], last[order], score[order]
    everything = slice(0, len(spans))
    features = torch.from_numpy(Surfaces(doc, spans, first).pair_features(everything, everything)).to(device)
    confidence, begin, end = (torch.from_numpy(column).to(device) for column in (score, first, last))
    logits = torch.zeros((), device=device)
    for model, read in zip(models, inputs, strict=True):
        mentions = model.head.mention_vectors(read[begin], read[end])
        logits = logits + model.head.antecedent_logits(mentions, mentions, features, (confidence, confidence)).float()
    table = (logits / len(models)).cpu().numpy()
    chain_of = np.full(len(spans), -1, np.int64)
    found: list[list[int]] = []
    for index in range(len(spans)):
        join_chain(index, antecedent_probabilities(table[index, max(0, index - _MAX_ANTECEDENTS) : index]), chain_of, found)
    return tuple(tuple(spans[index] for index in chain) for chain in found if len(chain) > 1)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("heads", nargs="+", type=Path)
    for name in ("texts", "dev", "out"):
        options.add_argument(f"--{name}", required=True)
    options.add_argument("--device", default="cpu")
    arguments = options.parse_args()
    torch.set_grad_enabled(False)
    models = [load_model(folder, arguments.device) for folder in arguments.heads]
    dev = tokenize_documents(models[0].tokenizer, read_schemes((arguments.dev,)).documents)
    encoded = [(doc, *scored(models, doc)) for doc in dev]

    def conll_at(threshold: float) -> float:
        answers = ((item[0].document.chains, chains(models, *item, threshold)) for item in encoded)
        return conll(sum_scores(score_document(gold, found) for gold, found in answers))

    threshold = max(_THRESHOLDS, key=conll_at)
    print(f"threshold {threshold}: CoNLL {100 * conll_at(threshold):.1f} on {len(encoded)} texts")
    with Path(arguments.out).open("w", encoding="utf-8") as out:
        for line in Path(arguments.texts).read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            (doc,) = tokenize_documents(models[0].tokenizer, [CorefDocument(row["doc_id"], row["text"], (), scheme="general")])
            found = chains(models, doc, *scored(models, doc), threshold)
            clusters = [
                [{"start": a, "end": b, "text": row["text"][a:b], "entity": f"e{number}"} for a, b in chain]
                for number, chain in enumerate(found)
            ]
            if clusters:
                out.write(json.dumps({**row, "clusters": clusters}, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
