"""The charts of a study. In: trials as plain rows. Out: Vega-Lite specifications, drawn by the report's page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from coref_automl.comparison.charts import Rows
from coref_automl.comparison.page import Say
from coref_automl.tuning.space import Dimension
from coref_automl.tuning.table import state_word

_SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
_COLORS = {"complete": "#1a9a6c", "pruned": "#8a94a6", "failed": "#d1495b"}


def history(rows: Rows, say: Say, label: str) -> dict[str, Any]:
    """Trials in their order and the best so far. A row: study, trial, value, state, best."""
    x = {"field": "trial", "type": "quantitative", "title": say("시도", "trial"), "axis": {"tickMinStep": 1}}
    y = {"field": "value", "type": "quantitative", "title": f"{label} %", "scale": {"zero": False}}
    line = {"field": "study", "type": "nominal", "title": None}
    words = {"study": say("탐색", "study"), "trial": say("시도", "trial"), "state": say("상태", "state")}
    tooltip = [{"field": name, "title": word} for name, word in words.items()] + [_tooltip_value(label)]
    layers = [
        {
            "transform": [{"filter": "isValid(datum.best)"}],
            "mark": {"type": "line", "interpolate": "step-after", "strokeWidth": 2, "opacity": 0.7},
            "encoding": {"x": x, "y": {**y, "field": "best"}, "strokeDash": line},
        },
        {
            "transform": [{"filter": "isValid(datum.value)"}],
            "mark": {"type": "point", "filled": True, "size": 60, "opacity": 1},
            "encoding": {"x": x, "y": y, "color": _state(say), "shape": line, "tooltip": tooltip},
        },
    ]
    return _spec(rows, layers, 260)


def courses(rows: Rows, say: Say, label: str) -> dict[str, Any]:
    """The reports of every trial: where it was cut, and what it would have had to beat. A row: name, step, value, state."""
    x: dict[str, Any] = {
        "field": "step",
        "type": "quantitative",
        "title": say("예산의 팔분의", "eighths of the budget"),
        "axis": {"tickCount": 8},
    }
    y = {"field": "value", "type": "quantitative", "title": f"{label} %", "scale": {"zero": False}}
    words = {"name": say("시도", "trial"), "step": x["title"], "state": say("상태", "state")}
    tooltip = [{"field": name, "title": word} for name, word in words.items()] + [_tooltip_value(label)]
    by_trial = {"field": "name", "type": "nominal"}
    layers = [
        {
            "mark": {"type": "line", "strokeWidth": 1.4, "opacity": 0.75},
            "encoding": {"x": x, "y": y, "detail": by_trial, "color": _state(say)},
        },
        {
            "mark": {"type": "point", "filled": True, "size": 30, "opacity": 0.9},
            "encoding": {"x": x, "y": y, "color": _state(say), "tooltip": tooltip},
        },
    ]
    return _spec(rows, layers, 260)


def importances(rows: Rows, say: Say) -> dict[str, Any]:
    """A bar a dimension. A row: name, share."""
    title = say("좋은 시도를 가르는 정도", "how much it sets the good trials apart")
    encoding = {
        "y": {"field": "name", "type": "nominal", "sort": "-x", "title": None},
        "x": {"field": "share", "type": "quantitative", "title": title, "axis": {"format": "%"}},
        "tooltip": [
            {"field": "name", "title": say("차원", "dimension")},
            {"field": "share", "title": say("중요도", "importance"), "format": ".1%"},
        ],
    }
    return _spec(rows, [{"mark": {"type": "bar", "cornerRadiusEnd": 3}, "encoding": encoding}], max(90, 24 * len(rows)))


def parallel(rows: Rows, names: Sequence[str], say: Say, label: str) -> dict[str, Any]:
    """A line a trial through all dimensions. A row: name, dimension, place (0 to 1), text, value."""
    title = say("차원 (아래가 작은 값)", "dimension (small values below)")
    x = {"field": "dimension", "type": "nominal", "sort": list(names), "title": title, "axis": {"labelAngle": -30, "grid": True}}
    y = {"field": "place", "type": "quantitative", "axis": None, "scale": {"domain": [-0.05, 1.05]}}
    color = {"field": "value", "type": "quantitative", "title": f"{label} %", "scale": {"scheme": "viridis", "zero": False}}
    words = {"name": say("시도", "trial"), "dimension": say("차원", "dimension"), "text": say("값", "value")}
    tooltip = [{"field": name, "title": word} for name, word in words.items()] + [_tooltip_value(label)]
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


def _state(say: Say) -> dict[str, Any]:
    """Colour by how a trial ended, named as the rows name it: in the page's language."""
    scale = {"domain": [state_word(state, say) for state in _COLORS], "range": list(_COLORS.values())}
    return {"field": "state", "type": "nominal", "title": None, "scale": scale, "legend": {"orient": "bottom"}}


def _tooltip_value(label: str) -> dict[str, Any]:
    return {"field": "value", "title": f"{label} %", "format": ".2f"}


def _spec(rows: Rows, layers: list[dict[str, Any]], height: int) -> dict[str, Any]:
    return {"$schema": _SCHEMA, "width": "container", "height": height, "data": {"values": rows}, "layer": layers}
