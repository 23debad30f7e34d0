"""Charts as Vega-Lite specifications. In: rows of plain values. Out: dictionaries, and the script that draws them offline.

The specifications are plain Vega-Lite; the runtime (Vega, Vega-Lite, Vega-Embed; 0.9 MB) comes out of vl-convert, one package.
Colours, fonts and axes are set by the page, which knows whether it is dark.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from coref_automl.comparison.page import Say

Rows = list[dict[str, Any]]
HOW_TO_GET = "pip install 'coref-automl[report]'"
MOST_BANDS = 4
"""Lines above which bands would only cover each other."""
_NEAR = 0.12
"""The share of a chart's height within which names would cover each other."""
_SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"


@cache
def runtime() -> str | None:
    """The drawing library as one script; None where vl-convert is not installed."""
    try:
        import vl_convert
    except ImportError:
        return None
    return str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")).replace("</script", "<\\/script")


def learning_curve(
    rows: Rows, say: Say, *, axis: str, bases: Sequence[tuple[str, float]] = (), target: float | None, color: str
) -> dict[str, Any]:
    """Lines of runs, with 95% bands where there are few. A row: run, x, value, low, high, name; base where bases are named.

    `bases` are the dashed lines: a name, which is written beside the line unless it is empty, and a height.
    """
    x = {"field": "x", "type": "quantitative", "title": axis, "axis": {"format": "~s"}}
    line = {"field": "run", "type": "nominal", "title": None, "legend": {"orient": "bottom", "columns": 2, "labelLimit": 260}}
    y = {"field": "value", "type": "quantitative", "title": "%", "scale": {"zero": False}}
    band = {
        "mark": {"type": "area", "opacity": 0.16},
        "encoding": {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}, "color": line},
    }
    told = ("name", "run", "base") if any(name for name, _ in bases) else ("name", "run")
    layers: list[dict[str, Any]] = [
        *([band] if len({row["run"] for row in rows}) <= MOST_BANDS else []),
        {"mark": {"type": "line", "strokeWidth": 2}, "encoding": {"x": x, "y": y, "color": line}},
        {
            "mark": {"type": "point", "filled": True, "size": 52, "opacity": 1},
            "encoding": {"x": x, "y": y, "color": line, "tooltip": _tooltip(say, *told)},
        },
    ]
    base = say("원래 모델", "base model")
    rules = [(height, [5, 4], f"{base} {name}".rstrip()) for name, height in bases]
    for height, dash, label in (*rules, *([(target, [1, 3], say("목표", "target"))] if target is not None else [])):
        layers.append(
            {
                "data": {"values": [{"y": height, "label": label}]},
                "mark": {"type": "rule", "strokeDash": dash, "color": color, "strokeWidth": 1.5},
                "encoding": {"y": {"field": "y", "type": "quantitative"}, "tooltip": {"field": "label", "title": None}},
            }
        )
    return _spec(rows, [*layers, *_names(bases, [row["value"] for row in rows])], height=250)


def _names(bases: Sequence[tuple[str, float]], values: Sequence[float]) -> list[dict[str, Any]]:
    """The names on dashed lines: at the right end and under the line, where a run that gains is not, or over the lowest of all.

    One just over another stands at the left end, over its line.
    """
    heights = [*values, *(height for _, height in bases)]
    out: list[dict[str, Any]] = []
    before: float | None = None
    for name, height in sorted(bases, key=lambda one: one[1]) if any(name for name, _ in bases) else ():
        near = before is not None and height - before < _NEAR * (max(heights) - min(heights))
        under = not near and height > min(heights)
        before = before if near else height
        side = {
            "align": "left" if near else "right",
            **({"baseline": "top", "dy": 3} if under else {"baseline": "bottom", "dy": -2}),
        }
        out.append(
            {
                "data": {"values": [{"y": height, "label": name}]},
                "mark": {"type": "text", **side, "fontSize": 11, "color": "#737d8f"},
                "encoding": {
                    "x": {"value": 0 if near else "width"},
                    "y": {"field": "y", "type": "quantitative"},
                    "text": {"field": "label"},
                },
            }
        )
    return out


def differences(rows: Rows, say: Say) -> dict[str, Any]:
    """Differences with intervals, a line a checkpoint. A row: name, value, low, high, p, verdict, finding."""
    y = {"field": "name", "type": "nominal", "sort": None, "title": None, "axis": {"labelLimit": 220}}
    title = say("기준과의 차이 (점)", "difference from the reference (points)")
    x = {"field": "value", "type": "quantitative", "title": title}
    color = {
        "field": "finding",
        "type": "nominal",
        "title": None,
        "scale": {"domain": ["better", "not shown", "worse"], "range": ["#1a9a6c", "#8a94a6", "#d1495b"]},
        "legend": None,
    }
    tooltip = [
        *_tooltip(say, "name"),
        {"field": "p", "title": "p (Holm)", "format": ".4f"},
        {"field": "verdict", "title": say("판정", "verdict")},
    ]
    middle = {"x": x, "y": y, "color": color, "tooltip": tooltip}
    layers: list[dict[str, Any]] = [
        {
            "data": {"values": [{"zero": 0}]},
            "mark": {"type": "rule", "strokeDash": [3, 3]},
            "encoding": {"x": {"field": "zero", "type": "quantitative"}},
        },
        {
            "mark": {"type": "rule", "strokeWidth": 2.5},
            "encoding": {**middle, "x": {**x, "field": "low"}, "x2": {"field": "high"}},
        },
        {"mark": {"type": "point", "filled": True, "size": 70, "opacity": 1}, "encoding": middle},
    ]
    return _spec(rows, layers, height=max(90, 26 * len(rows)))


def matrix(rows: Rows, names: Sequence[str], say: Say) -> dict[str, Any]:
    """Row minus column for every pair, green above 0; a dot where it is shown. A row: row, column, value, size, p, shown."""
    x = {"field": "column", "type": "nominal", "sort": list(names), "title": None, "axis": {"labelAngle": -50, "labelLimit": 190}}
    y = {"field": "row", "type": "nominal", "sort": list(names), "title": None, "axis": {"labelLimit": 210}}
    largest = max((entry["size"] for entry in rows), default=1.0) or 1.0
    paint = {
        "color": {"condition": {"test": "datum.value > 0", "value": "#1a9a6c"}, "value": "#d1495b"},
        "opacity": {
            "field": "size",
            "type": "quantitative",
            "scale": {"domain": [0, largest], "range": [0.05, 1]},
            "legend": None,
        },
    }
    tooltip = [
        {"field": "row", "title": say("행", "row")},
        {"field": "column", "title": say("열", "column")},
        {"field": "value", "title": say("차이", "difference"), "format": "+.2f"},
        {"field": "p", "title": "p (Holm)", "format": ".4f"},
    ]
    dot = {
        "type": "point",
        "filled": True,
        "size": 26,
        "opacity": 1,
        "color": "#ffffff",
        "stroke": "#00000066",
        "strokeWidth": 0.6,
    }
    layers: list[dict[str, Any]] = [
        {"mark": {"type": "rect", "cornerRadius": 3}, "encoding": {"x": x, "y": y, **paint, "tooltip": tooltip}},
        {"transform": [{"filter": "datum.shown"}], "mark": dot, "encoding": {"x": x, "y": y, "tooltip": tooltip}},
    ]
    return {**_spec(rows, layers, height=max(160, 24 * len(names))), "usermeta": {"broad": True}}


def by_distance(rows: Rows, order: Sequence[str], say: Say) -> dict[str, Any]:
    """Accuracy by distance, a line a model. A row: name, bucket, value, low, high, n."""
    x = {
        "field": "bucket",
        "type": "ordinal",
        "sort": list(order),
        "title": say("앞선 언급까지의 거리 (토큰)", "distance to the other mention (tokens)"),
        "axis": {"labelAngle": 0},
    }
    y = {"field": "value", "type": "quantitative", "title": "%", "scale": {"zero": False}}
    color = {"field": "name", "type": "nominal", "title": None, "legend": {"orient": "bottom", "columns": 2, "labelLimit": 260}}
    side = {"xOffset": {"field": "name", "type": "nominal"}}
    tooltip = [*_tooltip(say, "name", "bucket"), {"field": "n", "title": say("문항", "items")}]
    layers: list[dict[str, Any]] = [
        {
            "mark": {"type": "rule", "strokeWidth": 2, "opacity": 0.55},
            "encoding": {"x": x, **side, "y": {**y, "field": "low"}, "y2": {"field": "high"}, "color": color},
        },
        {
            "mark": {"type": "point", "filled": True, "size": 64, "opacity": 1},
            "encoding": {"x": x, **side, "y": y, "color": color, "tooltip": tooltip},
        },
    ]
    return _spec(rows, layers, height=280)


def _tooltip(say: Say, *names: str) -> list[dict[str, Any]]:
    titles = {
        "name": say("체크포인트", "checkpoint"),
        "run": say("학습", "run"),
        "base": say("원래 모델", "base model"),
        "bucket": say("거리", "distance"),
    }
    numbers = {"value": say("값 %", "value %"), "low": say("하한", "low"), "high": say("상한", "high")}
    return [
        *({"field": name, "title": titles[name]} for name in names),
        *({"field": name, "title": title, "format": ".2f"} for name, title in numbers.items()),
    ]


def _spec(rows: Rows, layers: list[dict[str, Any]], *, height: int) -> dict[str, Any]:
    return {"$schema": _SCHEMA, "width": "container", "height": height, "data": {"values": rows}, "layer": layers}
