"""coref-automl compare, report, archive, power, publish, studio: what finished evaluations say, and where it is shown.

In: paths of evaluations and runs. Out: a verdict, a page, the numbers without text, a plan, a model on the hub, a local web page.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from coref_automl.cli.app import app, print_json, print_result
from coref_automl.cli.options import AsJson, Out, Seed
from coref_automl.errors import InputError, RecipeError
from coref_automl.say import Say, language, say

Metric = Annotated[str | None, typer.Option("--metric", help="Metric of verdicts. Default: Noun@1.")]
Margin = Annotated[float, typer.Option("--margin", help="Points that count as no difference, or may be given up to train less.")]
EvalSetName = Annotated[str | None, typer.Option("--eval-set", help="Name of the set, if checkpoints were scored on several.")]


@app.command(epilog="Example: coref-automl compare runs/entity runs/mlm --reference runs/mlm/checkpoint-130")
def compare(
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="Evaluated checkpoints, runs, their folders, or models.")],
    metric: Metric = None,
    reference: Annotated[
        str | None,
        typer.Option("--reference", help="Checkpoint to compare with. Default: the model each started from, or the first."),
    ] = None,
    margin: Margin = 2.0,
    common: Annotated[bool, typer.Option("--common", help="Compare on shared items if the sets differ.")] = False,
    eval_set: EvalSetName = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Compare evaluated checkpoints on the same items: differences with intervals, adjusted p-values, verdicts.

    Then the answer: what to use or that the base should be kept, why, how long to train next time, and, if the paths include
    relation or coreference runs, whether it carries over.
    """
    from coref_automl.comparison.reader import open_results
    from coref_automl.comparison.study import study_at
    from coref_automl.comparison.study_data import checked_margin
    from coref_automl.report.page import note
    from coref_automl.report.printout import compared, printed_answer
    from coref_automl.report.terminal import in_colour, width

    accepted, lang = checked_margin(margin), language()
    results = open_results(paths)
    table, group = compared(results, metric=metric, reference=reference, common=common, eval_set=eval_set, seed=seed, lang=lang)
    trained = any(entry.trained for entry in group.entries)
    study = study_at(results, group, metric=table.metric, margin=accepted, seed=seed) if trained else None
    answer = printed_answer(study, lang=lang) if study else None
    if as_json:
        print_json({**table.to_json(), "answer": answer.to_json() if answer else None})
        return
    print(table.printed(width(), colour=in_colour()))
    if answer is not None:
        print(f"{note('table and answer', Say(lang))}\n\n{answer}")
    given = {"--metric": metric, "--margin": f"{margin:g}" if margin != 2.0 else None, "--eval-set": eval_set}
    options = [word for option, value in given.items() if value for word in (option, value)]
    command = f"coref-automl report {shlex.join([*paths, *options])} --out report"
    print("\n" + Say(lang)(f"보고서: {command}", f"Report: {command}"))


@app.command(epilog="Example: coref-automl report runs --out report --target real1=0.68,real5=0.83")
def report(
    out: Out,
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="PATH...", help="Evaluated checkpoints and runs; relation and coreference runs too."),
    ] = None,
    table: Annotated[Path | None, typer.Option("--table", help="CSV of external results, instead of PATHs.")] = None,
    target: Annotated[str | None, typer.Option("--target", help="Target values, e.g. real1=0.68,real5=0.83.")] = None,
    metric: Metric = None,
    margin: Margin = 2.0,
    eval_set: EvalSetName = None,
    seed: Seed = 0,
    title: Annotated[str, typer.Option("--title", help="Title of the page.")] = "",
    as_json: AsJson = False,
) -> None:
    """Write report.html (one self-contained file), report.md and results.csv.

    Starts with the answer and what the data cannot show; then the questions that these runs can answer (the base, methods,
    length, training, other tasks, relation extraction, coreference), curves, paired differences, ratings, and suggested
    experiments with their commands.
    """
    from coref_automl.report.checkpoint_report import report as write

    if bool(paths) == (table is not None):
        raise RecipeError("Pass either evaluated PATHs or a --table.")
    written = write(
        paths or [], out=out, table=table, target=target, metric=metric, margin=margin, eval_set=eval_set, seed=seed, title=title
    )
    print_result(written, as_json, [written.sentence, str(written)])


@app.command(epilog="Example: coref-automl archive runs --out results/experiment")
def archive(
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="Evaluated checkpoints, and runs of every kind.")],
    out: Out,
    as_json: AsJson = False,
) -> None:
    """Keep the numbers of evaluations without any text: no passage, answer, predicted word, title or path.

    `compare` and `report` read the folder like the runs it came from and give the same numbers, intervals and verdicts, so that
    it can be published, or committed, where the texts may not be.
    """
    from coref_automl.comparison.archive import archive as keep

    kept = keep(paths, out=out)
    print_result(kept, as_json, [str(kept)])


@app.command(epilog="Example: coref-automl power --difference 1 --eval-set sets/judge --seeds 3")
def power(
    paths: Annotated[
        list[str] | None, typer.Argument(metavar="[PATH...]", help="Finished runs or studies: their spreads and costs are used.")
    ] = None,
    difference: Annotated[float | None, typer.Option("--difference", min=0.01, max=99.0, help="Difference, in points.")] = None,
    eval_set: Annotated[Path | None, typer.Option("--eval-set", help="Set at hand: what can it show?")] = None,
    metric: Annotated[str | None, typer.Option("--metric", help="Metric. Default: Noun@1.")] = None,
    seeds: Annotated[
        list[int] | None, typer.Option("--seeds", min=1, help="Seeds per method; repeatable. Default: 2-12.")
    ] = None,
    comparisons: Annotated[int, typer.Option("--comparisons", min=1, help="Comparisons corrected for together (Holm).")] = 1,
    against_base: Annotated[bool, typer.Option("--against-base", help="Plan for a method against its base.")] = False,
    as_json: AsJson = False,
) -> None:
    """Plan before training: the difference that is detected with 80% power, or the seeds and documents it takes.

    With PATHs the variance over seeds and documents is that of those runs, and tokens and time are theirs; otherwise it is that
    of the archived studies.
    """
    from coref_automl.comparison.power import power as plan

    result = plan(
        paths or (),
        difference=difference / 100 if difference is not None else None,
        eval_set=eval_set,
        metric=metric,
        seeds=seeds or (),
        comparisons=comparisons,
        against_base=against_base,
    )
    print_result(result, as_json)


@app.command(epilog="Example: coref-automl publish runs/mlm --repo my-name/my-encoder --private --dry-run")
def publish(
    checkpoint: Annotated[str, typer.Argument(metavar="CHECKPOINT", help="An evaluated checkpoint, or a run: its chosen one.")],
    repo: Annotated[str, typer.Option("--repo", help="Model repository on the hub: OWNER/NAME; made if missing.")],
    private: Annotated[bool, typer.Option("--private", help="Make a new repository private.")] = False,
    evaluations: Annotated[
        str | None, typer.Option("--evaluations", help="Where its evaluations are. Default: its study or its run.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the card and the files; send nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Put a checkpoint on the hub: weights, tokenizer, and a card with its measured table and the verdict against its base.

    Needs a token that may write (hf auth login, or HF_TOKEN). The same command again sends only what changed.
    """
    from coref_automl.report.publish import publish as send

    sent = send(checkpoint, repo, private=private, dry_run=dry_run, evaluations=evaluations, lang=language())
    if as_json:
        print_json(sent.to_json())
        return
    if dry_run:
        print(sent.card)
    what = f"{', '.join(sent.files)} ({sent.megabytes:,.1f} MB)"
    print(say(f"전송하지 않음: {what}", f"Not sent: {what}") if dry_run else f"{sent.url}: {what}")


@app.command(epilog="Example: coref-automl studio")
def studio(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="PATH...", help="Folders of runs, evaluations, evaluation sets and models. Default: this one."),
    ] = None,
    port: Annotated[int, typer.Option("--port", min=0, max=65_535, help="Port to listen on; 0 takes any free one.")] = 8420,
    host: Annotated[str, typer.Option("--host", help="Address to listen on. Any other opens it to the network.")] = "127.0.0.1",
    browser: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in the browser.")] = True,
) -> None:
    """See which method wins, open a run, compare, triage items, correct chains and try models, in a local web page.

    It reads the given folders and nothing outside them; notes, tags and corrected chains are kept beside them. Ctrl-C ends it.
    """
    from coref_automl.studio.safety import is_loopback

    try:
        from coref_automl.studio.server import serve
    except ModuleNotFoundError as error:
        raise RecipeError(f"The studio needs {error.name}; run: pip install 'coref-automl[studio]'") from error
    folders = paths or [Path()]
    for path in folders:
        if not path.is_dir():
            raise InputError(
                f"{path} {'is not a folder' if path.exists() else 'does not exist'}; pass folders of runs, or none for this one."
            )

    def ready(address: str) -> None:
        print(address, flush=True)
        names = ", ".join(str(path.resolve()) for path in folders)
        print(say(f"폴더: {names}. 끝내려면 Ctrl-C.", f"Shows {names}. Ctrl-C ends it."), file=sys.stderr)
        if not is_loopback(host):
            warning = (
                "네트워크에서 이 서버에 접속할 수 있는 사람은 누구나 이 폴더들을 읽고 메모를 남길 수 있습니다.",
                "Anyone who can reach this machine on the network can read these folders here, and write notes.",
            )
            print(say(*warning), file=sys.stderr)
        if browser:
            import webbrowser

            webbrowser.open(address)

    try:
        serve(folders, host=host, port=port, lang=language(), on_ready=ready)
    except KeyboardInterrupt:
        return
