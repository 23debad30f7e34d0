"""Charts as Vega-Lite specifications. In: rows of plain values. Out: dictionaries, and the script that draws them offline.

The specifications are plain Vega-Lite; the runtime (Vega, Vega-Lite, Vega-Embed; 0.9 MB) comes with the package vl-convert.
The page sets colours, fonts and axes, because it knows whether it is dark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from coref_automl.report.language import Say

Rows = list[dict[str, Any]]
HOW_TO_GET = "pip install 'coref-automl[report]'"
MOST_BANDS = 4
"""With more lines, bands would cover each other."""
_NEAR = 0.12
"""Labels closer than this share of the chart's height would overlap."""
STATES = {
    "complete": {"ko": "완료", "en": "complete"},
    "pruned": {"ko": "중단", "en": "pruned"},
    "failed": {"ko": "실패", "en": "failed"},
    "running": {"ko": "진행 중", "en": "running"},
}
"""How a trial ended, in both languages."""
STATE_COLORS = {"complete": "#1a9a6c", "pruned": "#8a94a6", "failed": "#d1495b"}
_FOUND = {"better": "#1a9a6c", "not shown": "#8a94a6", "worse": "#d1495b"}
_ZERO = {"data": {"values": [{"zero": 0}]}, "mark": {"type": "rule", "strokeDash": [3, 3]}}
SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"


@cache
def runtime() -> str | None:
    """The drawing library as one script; None if vl-convert is not installed."""
    try:
        import vl_convert
    except ImportError:
        return None
    return str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")).replace("</script", "<\\/script")


@dataclass(frozen=True, slots=True)
class Drawing:
    """A chart that a notebook shows as a picture, where the drawing library is installed."""

    spec: dict[str, Any]

    def __repr__(self) -> str:
        return f"a chart of {len(self.spec['data']['values'])} rows; {HOW_TO_GET} draws it in a notebook"

    def _repr_png_(self) -> bytes | None:
        try:
            import vl_convert
        except ImportError:
            return None
        return bytes(vl_convert.vegalite_to_png({**self.spec, "width": 460, "background": "white"}, scale=1.5))


def learning_curve(
    rows: Rows, say: Say, *, axis: str, bases: Sequence[tuple[str, float]] = (), target: float | None, color: str
) -> dict[str, Any]:
    """One line per run, with 95% bands if there are few. A row: run, x, value, low, high, name; base if bases are named.

    `bases` are the dashed lines: a label (may be empty) and a height.
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
    """Labels of dashed lines: at the right end below the line, where improving runs are not; above the line if it is the lowest.

    A label just above another one goes to the left end, above its line.
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
    """Differences with intervals, one line per checkpoint. A row: name, value, low, high, p, verdict, finding."""
    y = {"field": "name", "type": "nominal", "sort": None, "title": None, "axis": {"labelLimit": 220}}
    title = say("기준과의 차이 (점)", "difference from the reference (points)")
    x = {"field": "value", "type": "quantitative", "title": title}
    color = {
        "field": "finding",
        "type": "nominal",
        "title": None,
        "scale": {"domain": list(_FOUND), "range": list(_FOUND.values())},
        "legend": None,
    }
    tooltip = [
        *_tooltip(say, "name"),
        {"field": "p", "title": "p (max-T)", "format": ".4f"},
        {"field": "verdict", "title": say("판정", "verdict")},
    ]
    middle = {"x": x, "y": y, "color": color, "tooltip": tooltip}
    layers: list[dict[str, Any]] = [
        {**_ZERO, "encoding": {"x": {"field": "zero", "type": "quantitative"}}},
        {
            "mark": {"type": "rule", "strokeWidth": 2.5},
            "encoding": {**middle, "x": {**x, "field": "low"}, "x2": {"field": "high"}},
        },
        {"mark": {"type": "point", "filled": True, "size": 70, "opacity": 1}, "encoding": middle},
    ]
    return _spec(rows, layers, height=max(90, 26 * len(rows)))


def forest(rows: Rows, say: Say) -> dict[str, Any]:
    """Differences by task, one interval per name inside a task. A row: task, name, value, low, high, finding."""
    names = list(dict.fromkeys(row["name"] for row in rows))
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    y = {"field": "task", "type": "nominal", "sort": tasks, "title": None, "axis": {"labelLimit": 160, "ticks": False}}
    within = {"yOffset": {"field": "name", "type": "nominal", "sort": names}}
    x = {"field": "value", "type": "quantitative", "title": say("차이 (점)", "difference (points)")}
    color = {
        "field": "finding",
        "type": "nominal",
        "scale": {"domain": list(_FOUND), "range": list(_FOUND.values())},
        "legend": None,
    }
    tooltip = _tooltip(say, "task", "name")
    layers: list[dict[str, Any]] = [
        {**_ZERO, "encoding": {"x": {"field": "zero", "type": "quantitative"}}},
        {
            "mark": {"type": "rule", "strokeWidth": 2.5},
            "encoding": {"x": {**x, "field": "low"}, "x2": {"field": "high"}, "y": y, **within, "color": color},
        },
        {
            "mark": {"type": "point", "filled": True, "size": 70, "opacity": 1},
            "encoding": {"x": x, "y": y, **within, "color": color, "tooltip": tooltip},
        },
        {
            "mark": {"type": "text", "align": "left", "dx": 7, "fontSize": 11},
            "encoding": {"x": {**x, "field": "high"}, "y": y, **within, "text": {"field": "name"}, "color": color},
        },
    ]
    told = any(row["name"] != row["task"] for row in rows) and len(names) > 1
    return _spec(rows, layers if told else layers[:-1], height=max(300 if told else 120, 24 * len(rows)))


def gains(rows: Rows, say: Say, *, axis: str) -> dict[str, Any]:
    """Gains over a base with bands, each line labelled at its end. A row: run, x, value, low, high."""
    first, last = min(row["x"] for row in rows), max(row["x"] for row in rows)
    room = {"domain": [first, last + 0.3 * (last - first)], "nice": False}
    x = {"field": "x", "type": "quantitative", "title": axis, "axis": {"format": "~s"}, "scale": room}
    y = {"field": "value", "type": "quantitative", "title": say("점", "points")}
    color = {"field": "run", "type": "nominal", "legend": None, "sort": None}
    layers: list[dict[str, Any]] = [
        {**_ZERO, "encoding": {"y": {"field": "zero", "type": "quantitative"}}},
        {
            "mark": {"type": "area", "opacity": 0.16},
            "encoding": {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}, "color": color},
        },
        {"mark": {"type": "line", "strokeWidth": 2}, "encoding": {"x": x, "y": y, "color": color}},
        {
            "mark": {"type": "point", "filled": True, "size": 52, "opacity": 1},
            "encoding": {"x": x, "y": y, "color": color, "tooltip": _tooltip(say, "run")},
        },
        {
            "data": {"values": _line_ends(rows)},
            "mark": {"type": "text", "align": "left", "dx": 9, "fontSize": 12, "fontWeight": 600},
            "encoding": {"x": x, "y": {**y, "field": "at"}, "text": {"field": "run"}, "color": color},
        },
    ]
    return _spec(rows, layers, height=300)


def _line_ends(rows: Rows) -> Rows:
    """The last point of each line with the height of its label: that of the line, or just above the label below it."""
    ends = {row["run"]: row for row in sorted(rows, key=lambda row: row["x"])}
    gap = 0.06 * (max(row["high"] for row in rows) - min(0.0, *(row["low"] for row in rows)))
    out: Rows = []
    for row in sorted(ends.values(), key=lambda row: row["value"]):
        out.append({**row, "at": max(row["value"], out[-1]["at"] + gap) if out else row["value"]})
    return out


def by_distance(rows: Rows, order: Sequence[str], say: Say) -> dict[str, Any]:
    """Accuracy by distance, one line per model. A row: name, bucket, value, low, high, n."""
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


def trial_history(rows: Rows, say: Say, label: str) -> dict[str, Any]:
    """Trials in order, and the best so far. A row: study, trial, value, state, best."""
    x = {"field": "trial", "type": "quantitative", "title": say("시도", "trial"), "axis": {"tickMinStep": 1}}
    y = {"field": "value", "type": "quantitative", "title": f"{label} %", "scale": {"zero": False}}
    line = {"field": "study", "type": "nominal", "title": None}
    words = {"study": say("탐색", "study"), "trial": say("시도", "trial"), "state": say("상태", "state")}
    tooltip = [{"field": name, "title": word} for name, word in words.items()] + [_value_tooltip(label)]
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
    return _spec(rows, layers, height=260)


def trial_courses(rows: Rows, say: Say, label: str) -> dict[str, Any]:
    """The learning curve of every trial, up to where it was pruned. A row: name, step, value, state."""
    x: dict[str, Any] = {
        "field": "step",
        "type": "quantitative",
        "title": say("예산의 팔분의", "eighths of the budget"),
        "axis": {"tickCount": 8},
    }
    y = {"field": "value", "type": "quantitative", "title": f"{label} %", "scale": {"zero": False}}
    words = {"name": say("시도", "trial"), "step": x["title"], "state": say("상태", "state")}
    tooltip = [{"field": name, "title": word} for name, word in words.items()] + [_value_tooltip(label)]
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
    return _spec(rows, layers, height=260)


def importances(rows: Rows, say: Say) -> dict[str, Any]:
    """One bar per dimension. A row: name, share."""
    title = say("좋은 시도를 가르는 정도", "how much it sets the good trials apart")
    encoding = {
        "y": {"field": "name", "type": "nominal", "sort": "-x", "title": None},
        "x": {"field": "share", "type": "quantitative", "title": title, "axis": {"format": "%"}},
        "tooltip": [
            {"field": "name", "title": say("차원", "dimension")},
            {"field": "share", "title": say("중요도", "importance"), "format": ".1%"},
        ],
    }
    return _spec(rows, [{"mark": {"type": "bar", "cornerRadiusEnd": 3}, "encoding": encoding}], height=max(90, 24 * len(rows)))


def parallel(rows: Rows, names: Sequence[str], say: Say, label: str) -> dict[str, Any]:
    """One line per trial through all dimensions. A row: name, dimension, place (0 to 1), text, value."""
    title = say("차원 (아래가 작은 값)", "dimension (small values below)")
    x = {"field": "dimension", "type": "nominal", "sort": list(names), "title": title, "axis": {"labelAngle": -30, "grid": True}}
    y = {"field": "place", "type": "quantitative", "axis": None, "scale": {"domain": [-0.05, 1.05]}}
    color = {"field": "value", "type": "quantitative", "title": f"{label} %", "scale": {"scheme": "viridis", "zero": False}}
    words = {"name": say("시도", "trial"), "dimension": say("차원", "dimension"), "text": say("값", "value")}
    tooltip = [{"field": name, "title": word} for name, word in words.items()] + [_value_tooltip(label)]
    layers = [
        {
            "mark": {"type": "line", "strokeWidth": 1.6, "opacity": 0.7},
            "encoding": {"x": x, "y": y, "color": color, "detail": {"field": "name"}},
        },
        {"mark": {"type": "point", "filled": True, "size": 34}, "encoding": {"x": x, "y": y, "color": color, "tooltip": tooltip}},
    ]
    return {**_spec(rows, layers, height=280), "usermeta": {"broad": True}}


def shares(values: Rows, order: Sequence[str], height: int) -> dict[str, Any]:
    """Shares side by side, one colour per split, splits in the given order. A row: name, split, share."""
    splits = list(dict.fromkeys(value["split"] for value in values))
    return {
        "$schema": SCHEMA,
        "width": "container",
        "height": height,
        "data": {"values": values},
        "mark": {"type": "bar", "cornerRadiusEnd": 2},
        "encoding": {
            "y": {"field": "name", "type": "nominal", "sort": list(order), "title": None, "axis": {"labelLimit": 240}},
            "x": {"field": "share", "type": "quantitative", "title": "%"},
            "yOffset": {"field": "split", "type": "nominal", "sort": splits},
            "color": {"field": "split", "type": "nominal", "title": None, "sort": splits, "legend": {"orient": "top"}},
            "tooltip": [{"field": "name", "title": " "}, {"field": "split", "title": " "}, {"field": "share", "title": "%"}],
        },
    }


def _tooltip(say: Say, *names: str) -> list[dict[str, Any]]:
    titles = {
        "name": say("체크포인트", "checkpoint"),
        "run": say("실행", "run"),
        "task": say("과제", "task"),
        "base": say("원래 모델", "base model"),
        "bucket": say("거리", "distance"),
    }
    numbers = {"value": say("값 %", "value %"), "low": say("하한", "low"), "high": say("상한", "high")}
    return [
        *({"field": name, "title": titles[name]} for name in names),
        *({"field": name, "title": title, "format": ".2f"} for name, title in numbers.items()),
    ]


def _state(say: Say) -> dict[str, Any]:
    """Colour by the state of a trial, in the page's language."""
    scale = {"domain": [STATES[state][say.lang] for state in STATE_COLORS], "range": list(STATE_COLORS.values())}
    return {"field": "state", "type": "nominal", "title": None, "scale": scale, "legend": {"orient": "bottom"}}


def _value_tooltip(label: str) -> dict[str, Any]:
    return {"field": "value", "title": f"{label} %", "format": ".2f"}


def _spec(rows: Rows, layers: list[dict[str, Any]], *, height: int) -> dict[str, Any]:
    return {"$schema": SCHEMA, "width": "container", "height": height, "data": {"values": rows}, "layer": layers}
