"""What every command has. In: its options. Out: --lang, panels for long helps, one error for all missing options."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperCommand

from coref_automl.cli.options import with_language
from coref_automl.errors import RecipeError

MANY = 15
"""Options of a help that gets panels."""
PANELS: dict[str, tuple[str, ...]] = {
    "Basics": (
        "model", "dataset", "out", "recipe", "objective", "source", "train", "dev", "data", "task", "seed", "seeds", "first-seed",
        "tokenizer", "words-from", "scheme", "head", "lang", "json", "dry-run", "help",
    ),
    "Budget": (
        "epochs", "max-tokens", "max-minutes", "trials", "limit", "max-rows", "learning-rate", "weight-decay",
        "warmup", "schedule", "layer-decay", "clip", "batch", "batch-size", "patience", "threshold", "folds", "save-every",
        "checkpoints", "keep-states", "finalists",
    ),
    "Masking": (
        "min-prob", "max-prob", "rates", "whole-word", "replacement", "entity-rate", "background", "ratio", "far-weight",
        "copy-weight", "link-weight", "temperature", "cross-document", "label-mask", "mask-support",
    ),
    "Memory": (
        "micro-batch", "seq-len", "max-length", "policy", "attention", "dtype", "precision", "device", "compile",
        "gradient-checkpointing", "workers", "batch-tokens", "engine", "storage", "segment", "rank",
    ),
    "Evaluation": (
        "eval-set", "eval-words", "eval-items", "words", "metric", "margin", "stop-when-flat", "keep-best", "holdout", "base",
        "new-head", "by", "choose-by", "per-source", "per-bucket", "per-document", "single-entry",
    ),
}  # fmt: skip
"""Options by panel, whichever command has them; the rest stand under Other."""
_PANEL = {name: panel for panel, names in PANELS.items() for name in names}


class Panelled(TyperCommand):
    """A command whose long help has panels, and that names all missing options at once."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        found = [(param, record) for param in self.get_params(ctx) if (record := param.get_help_record(ctx)) is not None]
        options = [(param, record) for param, record in found if param.param_type_name == "option"]
        if len(options) <= MANY:
            super().format_options(ctx, formatter)
            return
        arguments = [record for param, record in found if param.param_type_name == "argument"]
        panels: dict[str, list[tuple[str, str]]] = {panel: [] for panel in (*PANELS, "Other")}
        for param, record in options:
            names = (name.removeprefix("--") for name in param.opts)
            panels[next((_PANEL[name] for name in names if name in _PANEL), "Other")].append(record)
        for title, records in {"Arguments": arguments, **panels}.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing and not {"--help", "-h"} & set(args):
            self._refuse_missing(ctx, args)
        return super().parse_args(ctx, args)

    def _refuse_missing(self, ctx: Any, args: list[str]) -> None:
        """More than one missing option is an error of ours; one, and every other mistake, is left to the parser's own words."""
        try:
            given, _, _ = self.make_parser(ctx).parse_args(args=list(args))
        except Exception:  # the parser will say it again, as its own error
            return
        needed: set[str] = getattr(self.callback, "without_default", set()) if not given.get("recipe") else set()
        params = [param for param in self.get_params(ctx) if param.required or param.name in needed]
        lost = [param for param in params if given.get(param.name or "") in (None, (), [])]
        if len(lost) > 1:
            names = [param.opts[0] if param.param_type_name == "option" else "PATH" for param in lost]
            raise RecipeError(f"Missing: {', '.join(names)}. See {ctx.command_path} --help.")


def laid_out(app: typer.Typer) -> typer.Typer:
    """Every command of an application, and of the applications on it: panelled, and with --lang."""
    for command in app.registered_commands:
        command.cls = Panelled
        if command.callback is not None:
            command.callback = with_language(command.callback)
    for group in app.registered_groups:
        if group.typer_instance is not None:
            laid_out(group.typer_instance)
    return app
