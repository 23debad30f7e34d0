"""Charts as Vega-Lite specifications. In: rows of plain values. Out: dictionaries, and the script that draws them offline.

The specifications are plain Vega-Lite; the runtime (Vega, Vega-Lite, Vega-Embed; 0.9 MB) comes with the package vl-convert.
The page sets colours, fonts and axes, because it knows whether it is dark.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from typing import Any

from coref_automl.base.errors import StorageError
from coref_automl.base.korean import default_cache
from coref_automl.base.say import Say
from coref_automl.base.store import write_text

Rows = list[dict[str, Any]]
Spec = dict[str, Any]
HOW_TO_GET = "pip install 'coref-automl[report]'"
MOST_BANDS = 4
"""With more lines, bands would cover each other."""
GREY = "#8a94a6"
STATES = {"complete": "완료", "pruned": "중단", "failed": "실패", "running": "진행 중"}
"""How a trial ended, and its Korean."""
STATE_COLORS = {"complete": "#1a9a6c", "pruned": GREY, "failed": "#d1495b"}
_FINDING_COLORS = {"better": "#1a9a6c", "not shown": GREY, "worse": "#d1495b"}
_BAND = {"type": "area", "opacity": 0.16}
_LINE = {"type": "line", "strokeWidth": 2}
_RANGE = {"type": "rule", "strokeWidth": 2.5}
_LEGEND = {"orient": "bottom", "columns": 2, "labelLimit": 260}
_FREE = {"scale": {"zero": False}}
SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"


@cache
def runtime() -> str | None:
    """The drawing library as one script, bundled once per version of vl-convert; None if that is not installed."""
    try:
        import vl_convert
    except ImportError:
        return None
    cached = default_cache() / f"vega-{version('vl-convert-python')}.js"
    with suppress(OSError, UnicodeError):
        if cached.stat().st_uid == os.getuid():  # the folder may be in /tmp
            return cached.read_text("utf-8")
    bundle = str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")).replace("</script", "<\\/script")
    with suppress(OSError, StorageError):
        write_text(cached, bundle)
    return bundle


@dataclass(frozen=True, slots=True)
class Drawing:
    """A chart that a notebook shows as a picture if the drawing library is installed."""

    spec: Spec

    def __repr__(self) -> str:
        return f"a chart of {len(self.spec['data']['values'])} rows; {HOW_TO_GET} draws it in a notebook"

    def _repr_png_(self) -> bytes | None:
        try:
            import vl_convert
        except ImportError:
            return None
        return bytes(vl_convert.vegalite_to_png({**self.spec, "width": 460, "background": "white"}, scale=1.5))


def draw_forest(rows: Rows, say: Say) -> Drawing:
    """Differences with their intervals, for a notebook."""
    return Drawing(forest(rows, say))


def learning_curve(
    rows: Rows, say: Say, *, axis: str, bases: Sequence[tuple[str, float]] = (), target: float | None = None
) -> Spec:
    """One line per run, with 95% bands if there are few. A row: run, x, value, low, high, name. `bases` are the dashed lines: the
    name of a base model (empty if there is only one) and a height."""
    x, y, line = _number("x", axis, axis={"format": ".3~s"}), _number("value", "%", **_FREE), _group("run", legend=_LEGEND)
    layers = [
        *([_between(_BAND, "y", y, x=x, color=line)] if len({row["run"] for row in rows}) <= MOST_BANDS else []),
        _layer(_LINE, x=x, y=y, color=line),
        _layer(_point(52), x=x, y=y, color=line, tooltip=_tooltip(say, "name", "run")),
    ]
    base = say("베이스 모델", "base model")
    rules = [(height, [5, 4], f"{base} {name}".rstrip()) for name, height in bases]
    for height, dash, label in (*rules, *([(target, [1, 3], say("목표", "target"))] if target is not None else [])):
        mark = {"type": "rule", "strokeDash": dash, "color": GREY, "strokeWidth": 1.5}
        rule = _layer(mark, y=_number("y"), tooltip={"field": "label", "title": None})
        layers.append({"data": {"values": [{"y": height, "label": label}]}, **rule})
    return _spec(rows, layers, height=250)


def forest(rows: Rows, say: Say) -> Spec:
    """Differences by task, one interval per name inside a task. A row: task, name, value, low, high, finding."""
    names = list(dict.fromkeys(row["name"] for row in rows))
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    several = any(row["name"] != row["task"] for row in rows) and len(names) > 1
    x = _number("value", say("차이 (점)", "difference (points)"))
    within = {
        "y": _group("task", sort=tasks, axis={"labelLimit": 220, "ticks": False}),
        **({"yOffset": {"field": "name", "type": "nominal", "sort": names}} if several else {}),
        "color": _group("finding", scale={"domain": list(_FINDING_COLORS), "range": list(_FINDING_COLORS.values())}, legend=None),
    }
    tooltip = _tooltip(say, "task", *(["name"] if several else []))
    name = {"field": "name"}  # above its interval, from the left edge: a label after the interval would be cut off
    layers = [
        _zero("x"),
        _between(_RANGE, "x", x, **within),
        _layer(_point(70), x=x, **within, tooltip=tooltip),
        _layer({"type": "text", "align": "left", "dx": 3, "dy": -9, "fontSize": 11}, x={"value": 0}, **within, text=name),
    ]
    height = max(300, 30 * len(rows)) if several else max(90, 25 * len(rows))
    return _spec(rows, layers if several else layers[:-1], height=height)


def gains(rows: Rows, say: Say, *, axis: str, color: str = "") -> Spec:
    """Gains over a base with bands. A row: run, x, value, low, high. `color` is for a single run."""
    x, y = _number("x", axis, axis={"format": ".3~s"}), _number("value", say("점", "points"))
    line = _group("run", legend=_LEGEND, **({"scale": {"range": [color]}} if color else {}))
    layers = [
        _zero("y"),
        _between(_BAND, "y", y, x=x, color=line),
        _layer(_LINE, x=x, y=y, color=line),
        _layer(_point(52), x=x, y=y, color=line, tooltip=_tooltip(say, "run")),
    ]
    return _spec(rows, layers, height=300)


def trial_history(rows: Rows, say: Say, label: str) -> Spec:
    """Trials in order, and the best so far. A row: trial, value, state, best."""
    x, y = _number("trial", say("시도", "trial"), axis={"tickMinStep": 1}), _number("value", f"{label} %", **_FREE)
    steps = {"type": "line", "interpolate": "step-after", "strokeWidth": 2, "opacity": 0.7}
    scale = {"domain": [say(STATES[state], state) for state in STATE_COLORS], "range": list(STATE_COLORS.values())}
    titles = {"trial": say("시도", "trial"), "state": say("상태", "state"), "value": f"{label} %"}
    point = _layer(
        _point(60),
        x=x,
        y=y,
        color=_group("state", scale=scale, legend={"orient": "bottom"}),
        tooltip=[{"field": name, "title": title} for name, title in titles.items()],
    )
    layers = [
        {"transform": [{"filter": "isValid(datum.best)"}], **_layer(steps, x=x, y={**y, "field": "best"})},
        {"transform": [{"filter": "isValid(datum.value)"}], **point},
    ]
    return _spec(rows, layers, height=260)


def _number(field: str, title: str | None = None, **more: Any) -> Spec:
    return {"field": field, "type": "quantitative", **({"title": title} if title else {}), **more}


def _group(field: str, **more: Any) -> Spec:
    return {"field": field, "type": "nominal", "title": None, **more}


def _layer(mark: Spec, **encoding: Any) -> Spec:
    return {"mark": mark, "encoding": encoding}


def _between(mark: Spec, axis: str, number: Spec, **encoding: Any) -> Spec:
    """An interval along an axis, from `low` to `high`."""
    return _layer(mark, **encoding, **{axis: {**number, "field": "low"}, f"{axis}2": {"field": "high"}})


def _point(size: int) -> Spec:
    return {"type": "point", "filled": True, "size": size, "opacity": 1}


def _zero(axis: str) -> Spec:
    return {"data": {"values": [{"zero": 0}]}, **_layer({"type": "rule", "strokeDash": [3, 3]}, **{axis: _number("zero")})}


def _tooltip(say: Say, *names: str) -> list[Spec]:
    titles = {"name": say("체크포인트", "checkpoint"), "run": say("실행", "run"), "task": say("과제", "task")}
    numbers = {"value": say("값 %", "value %"), "low": say("하한", "low"), "high": say("상한", "high")}
    return [
        *({"field": name, "title": titles[name]} for name in names),
        *({"field": name, "title": title, "format": ".2f"} for name, title in numbers.items()),
    ]


def _spec(rows: Rows, layers: list[Spec], *, height: int) -> Spec:
    return {"$schema": SCHEMA, "width": "container", "height": height, "data": {"values": rows}, "layer": layers}
