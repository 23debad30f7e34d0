"""The charts of a study. In: trials as plain rows. Out: Vega-Lite specifications, drawn by the report's page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from coref_automl.comparison.charts import Rows
from coref_automl.comparison.page import Say
from coref_automl.tuning.space import Dimension

_SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
_STATE = {
    "field": "state",
    "type": "nominal",
    "title": None,
    "scale": {"domain": ["complete", "pruned", "failed"], "range": ["#1a9a6c", "#8a94a6", "#d1495b"]},
    "legend": {"orient": "bottom"},
}


def history(rows: Rows, say: Say, label: str) -> dict[str, Any]:
    """Trials in their order and the best so far. A row: study, trial, value, state, best."""
    x = {"field": "trial", "type": "quantitative", "title": say("시도", "trial"), "axis": {"tickMinStep": 1}}
    y = {"field": "value", "type": "quantitative", "title": f"{label} %", "scale": {"zero": False}}
    line = {"field": "study", "type": "nominal", "title": None}
    tooltip = [{"field": name} for name in ("study", "trial", "state")] + [{"field": "value", "format": ".2f"}]
    layers = [
        {
            "transform": [{"filter": "isValid(datum.best)"}],
            "mark": {"type": "line", "interpolate": "step-after", "strokeWidth": 2, "opacity": 0.7},
            "encoding": {"x": x, "y": {**y, "field": "best"}, "strokeDash": line},
        },
        {
            "transform": [{"filter": "isValid(datum.value)"}],
            "mark": {"type": "point", "filled": True, "size": 60, "opacity": 1},
            "encoding": {"x": x, "y": y, "color": _STATE, "shape": line, "tooltip": tooltip},
        },
    ]
    return _spec(rows, layers, 260)


def courses(rows: Rows, say: Say, label: str) -> dict[str, Any]:
    """The reports of every trial: where it was cut, and what it would have had to beat. A row: name, step, value, state."""
    x = {
        "field": "step",
        "type": "quantitative",
        "title": say("예산의 팔분의", "eighths of the budget"),
        "axis": {"tickCount": 8},
    }
    y = {"field": "value", "type": "quantitative", "title": f"{label} %", "scale": {"zero": False}}
    tooltip = [{"field": "name"}, {"field": "step"}, {"field": "value", "format": ".2f"}, {"field": "state"}]
    by_trial = {"field": "name", "type": "nominal"}
    layers = [
        {
            "mark": {"type": "line", "strokeWidth": 1.4, "opacity": 0.75},
            "encoding": {"x": x, "y": y, "detail": by_trial, "color": _STATE},
        },
        {
            "mark": {"type": "point", "filled": True, "size": 30, "opacity": 0.9},
            "encoding": {"x": x, "y": y, "color": _STATE, "tooltip": tooltip},
        },
    ]
    return _spec(rows, layers, 260)


def importances(rows: Rows, say: Say) -> dict[str, Any]:
    """A bar a dimension. A row: name, share."""
    title = say("좋은 시도를 가르는 정도", "how much it sets the good trials apart")
    encoding = {
        "y": {"field": "name", "type": "nominal", "sort": "-x", "title": None},
        "x": {"field": "share", "type": "quantitative", "title": title, "axis": {"format": "%"}},
        "tooltip": [{"field": "name"}, {"field": "share", "format": ".1%"}],
    }
    return _spec(rows, [{"mark": {"type": "bar", "cornerRadiusEnd": 3}, "encoding": encoding}], max(90, 24 * len(rows)))


def parallel(rows: Rows, names: Sequence[str], say: Say, label: str) -> dict[str, Any]:
    """A line a trial through all dimensions. A row: name, dimension, place (0 to 1), text, value."""
    title = say("차원 (아래가 작은 값)", "dimension (small values below)")
    x = {"field": "dimension", "type": "nominal", "sort": list(names), "title": title, "axis": {"labelAngle": -30, "grid": True}}
    y = {"field": "place", "type": "quantitative", "axis": None, "scale": {"domain": [-0.05, 1.05]}}
    color = {"field": "value", "type": "quantitative", "title": f"{label} %", "scale": {"scheme": "viridis", "zero": False}}
    tooltip = [{"field": name} for name in ("name", "dimension", "text")] + [{"field": "value", "format": ".2f"}]
    layers = [
        {
            "mark": {"type": "line", "strokeWidth": 1.6, "opacity": 0.7},
            "encoding": {"x": x, "y": y, "color": color, "detail": {"field": "name"}},
        },
        {"mark": {"type": "point", "filled": True, "size": 34}, "encoding": {"x": x, "y": y, "color": color, "tooltip": tooltip}},
    ]
    return {**_spec(rows, layers, 280), "usermeta": {"broad": True}}


def place(dimension: Dimension, value: Any) -> float:
    """Where a value lies in its dimension, from 0 to 1."""
    if dimension.choices:
        return dimension.choices.index(value) / max(1, len(dimension.choices) - 1)
    if dimension.log:
        return math.log(value / dimension.low) / math.log(dimension.high / dimension.low)
    return float((value - dimension.low) / (dimension.high - dimension.low))


def _spec(rows: Rows, layers: list[dict[str, Any]], height: int) -> dict[str, Any]:
    return {"$schema": _SCHEMA, "width": "container", "height": height, "data": {"values": rows}, "layer": layers}
