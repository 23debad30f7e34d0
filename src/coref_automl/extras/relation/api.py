"""`coref_automl.predict_relations`. In: a run and texts. Out: relations, as `coref-automl re predict` gives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coref_automl.base.config import as_path, checked, short_repr
from coref_automl.base.errors import InputError

if TYPE_CHECKING:
    pass


def predict_relations(
    run: str | Path, texts: Mapping[str, Any] | Sequence[Mapping[str, Any]], *, ensemble: bool = False, device: str = "auto"
) -> Any:
    """Predict the relation between two words of a sentence, or of each sentence of a list, as `coref-automl re predict` does.

    Args:
        run: a run of `re train`, or one seed's model.
        texts: sentence, subject and object as strings; subject_type and object_type if the run reads types; subject_start and
            object_start if a word occurs more than once. A list of them gives a list.
        ensemble: average all seeds instead of using the best one.
        device: cpu, cuda, cuda:1, or auto.

    Example:
        >>> import coref_automl as ca
        >>> result = ca.relation(model, rows, out=out, seeds=1, epochs=1, max_rows=40, device="cpu")
        >>> row = {"sentence": "이순신은 서울에서 태어났다.", "subject": "이순신", "object": "서울"}
        >>> prediction = ca.predict_relations(result.run, row | {"subject_type": "PER", "object_type": "LOC"}, device="cpu")
        >>> len(prediction.ranked)
        30
    """
    from coref_automl.extras.relation.predict import predict_texts

    rows = [texts] if isinstance(texts, Mapping) else texts
    if not isinstance(rows, list | tuple):
        raise InputError(f"texts is a mapping with sentence, subject and object, or a list of them, not {short_repr(texts)}.")
    device = checked(str, device, "device")
    predictions = predict_texts(as_path(run, "run"), list(rows), ensemble=checked(bool, ensemble, "ensemble"), device=device)
    return predictions[0] if rows is not texts else predictions
