"""The `dream` command. Exit status: 0 done, 1 failure, 2 bad usage or configuration, 130 interrupted."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, cast

import typer
from typer.core import TyperGroup

from dream import config as configuration
from dream import lab_cli
from dream.console import Json, Quiet, choice, emit, outline, say, table, work
from dream.errors import UsageError
from dream.results import Result

INTERRUPTED = 130
BROKEN_PIPE = 141  # as of a process that SIGPIPE ends

_UNHANDLED = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}

# Expected errors of other layers, by the module that defines them, with the exit status. More special first.
_EXPECTED = (
    ("dream.errors", "UsageError", 2),
    ("dream.errors", "DreamError", 1),
    ("dream.store.errors", "RunFolderError", 2),
    ("dream.store.errors", "StoreError", 1),
    ("actors.games.description", "GameError", 2),
    ("buffers.frames", "FrameError", 1),
    ("builtins", "OSError", 1),
)


def _expected() -> dict[type[Exception], int]:
    """Expected errors of the modules loaded so far; one that is not loaded has raised nothing."""
    kinds = ((getattr(sys.modules.get(module), name, None), status) for module, name, status in _EXPECTED)
    return {kind: status for kind, status in kinds if kind is not None}


class _Commands(TyperGroup):
    """Turns expected errors into one message on standard error and an exit status."""

    def invoke(self, ctx: Any) -> Any:
        """Runs the command that was asked for."""
        with _noting_interrupts() as interrupts:
            try:
                return super().invoke(ctx)
            except typer.Exit:
                raise
            except KeyboardInterrupt as stop:
                raise _interrupted(*getattr(stop, "__notes__", [])) from None
            except BrokenPipeError:  # the reader, as `head`, has seen enough
                _close_pipes()
                raise typer.Exit(BROKEN_PIPE) from None
            except Exception as error:
                if interrupts:
                    raise _interrupted() from None
                status = next((status for kind, status in _expected().items() if isinstance(error, kind)), None)
                if status is None:
                    raise
                say(f"error: {error}")
                raise typer.Exit(status) from None


def _interrupted(*notes: str) -> typer.Exit:
    say("; ".join(["interrupted", *notes]))
    return typer.Exit(INTERRUPTED)


@contextlib.contextmanager
def _noting_interrupts() -> Iterator[list[int]]:
    """Collects each Ctrl-C and SIGTERM outside training: compiled libraries, while imported, turn some into errors."""
    interrupts: list[int] = []

    def interrupt(number: int, _: FrameType | None) -> None:
        interrupts.append(number)
        raise KeyboardInterrupt

    # Only the main thread may handle signals; a process in the background may ignore them.
    here = threading.current_thread() is threading.main_thread()
    ours = {number: kept for number, kept in _UNHANDLED.items() if here and signal.getsignal(number) is kept}
    for number in ours:
        signal.signal(number, interrupt)
    try:
        yield interrupts
    finally:
        for number, kept in ours.items():
            signal.signal(number, kept)


app = typer.Typer(
    name="dream",
    cls=_Commands,
    help="Train, resume and evaluate deep counterfactual regret minimization.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)

Overrides = Annotated[list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Settings laid over it.")]
PresetArgument = Annotated[
    str, typer.Argument(metavar="PRESET|FILE.yaml", help="A preset (`dream presets`) or a YAML file.")
]
RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="A run folder: a path or a URL.")]


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    if version:
        from dream import __version__

        typer.echo(f"dream {__version__}")
        raise typer.Exit


@app.command()
def train(
    preset: PresetArgument,
    overrides: Overrides = None,
    run_dir: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="A new run folder, path or URL; runs/<preset>-<UTC time> if not given.",
        ),
    ] = None,
    runtime: Annotated[str | None, typer.Option(help="local, ray or auto; the same as runtime.kind=...")] = None,
    address: Annotated[
        str | None, typer.Option(help="Ray cluster: auto, HOST:PORT or ray://HOST:PORT; as runtime.address=...")
    ] = None,
    go_on: Annotated[
        bool, typer.Option("--resume", help="Go on where --run-dir holds this run; start it where it does not.")
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a preset or a YAML file in a new run folder.

    Ctrl-C commits and exits with status 130; `dream resume RUN` goes on.

    \b
    Examples:
      dream train leduc-dream-quick
      dream train leduc-dream iterations=500 sampling.traversals=1000 --run-dir runs/first
      dream train my.yaml seed=7 --json > result.json
      dream train leduc-dream --runtime ray --run-dir /shared/leduc --resume      (the same command starts and goes on)
    """
    from dream import api

    given = {"runtime.kind": runtime, "runtime.address": address}
    changes = [*(overrides or []), *(f"{key}={value}" for key, value in given.items() if value)]
    with work(as_json):
        result = api.train(preset, run_dir=run_dir, overrides=changes, progress=not quiet, go_on=go_on)
    _report(result, as_json)


@app.command()
def resume(run: RunArgument, overrides: Overrides = None, as_json: Json = False, quiet: Quiet = False) -> None:
    """Go on from the newest commit of a run.

    The networks are the same, bit by bit, as if the run had never stopped.

    \b
    Examples:
      dream resume runs/first
      dream resume runs/first iterations=4000        (beyond the planned iterations)
    """
    from dream import api

    with work(as_json):
        result = api.resume(run, overrides or [], progress=not quiet)
    _report(result, as_json)


@app.command(name="eval")
def evaluate(
    run: RunArgument,
    iterations: Annotated[
        str | None,
        typer.Option(metavar="all|N,N,...", help="After which iterations; the last one if not given."),
    ] = None,
    by: Annotated[str, typer.Option(help="exploitability (exact; small games).")] = "exploitability",
    average: Annotated[str | None, typer.Option(help="bank or network; the algorithm's own if not given.")] = None,
    as_json: Json = False,
) -> None:
    """Evaluate the average strategy of a run.

    \b
    Examples:
      dream eval runs/first
      dream eval runs/first --iterations 1,10,100 --json
    """
    from dream import api

    choice("--by", by, ("exploitability",))
    if average is not None:
        choice("--average", average, ("bank", "network"))
    with work(as_json):
        rows = api.evaluate(run, _iterations(iterations, run), average)
    if as_json:
        emit({"run_dir": str(run), **(rows[-1] if rows else {}), "evaluations": rows})
    else:
        typer.echo(table([dict(row) for row in rows]))


@app.command()
def inspect(
    run: RunArgument,
    state: Annotated[
        str | None, typer.Option(help="Show the strategy at this information state (OpenSpiel's string).")
    ] = None,
    iteration: Annotated[int | None, typer.Option(help="With --state: after this iteration; else the last.")] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read every frame and check it; status 1 if damaged.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show a run's health, or its strategy at a state.

    Health is where the run stands, what it occupies, its newest metrics and, with --verify, its integrity.

    \b
    Examples:
      dream inspect runs/first --verify
      dream inspect runs/kuhn --state 0pb
    """
    from dream import inspection

    if iteration is not None and state is None:
        raise UsageError("--iteration goes with --state STRING: it says which average's strategy is shown.")
    with work(as_json):
        if state is not None:
            from dream import api

            document = inspection.state_strategy(api.load_policy(run, iteration), state)
        else:
            document = inspection.health(run)
        if verify:
            document["damaged"] = inspection.damage(run)
    if as_json:
        emit(document)
    else:
        typer.echo("\n".join(outline(document)))
    if document.get("damaged"):
        raise typer.Exit(1)


@app.command()
def plot(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="Run folders.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="A .png, .svg or .pdf file.")] = Path("curve.png"),
    x: Annotated[str, typer.Option("--x", help="states, iterations or seconds.")] = "states",
    log: Annotated[bool, typer.Option("--log", help="Both axes logarithmic.")] = False,
) -> None:
    """Draw the exploitability curves of runs.

    \b
    Example:
      dream plot runs/leduc-* --x states --log -o curve.png
    """
    from dream import plotting

    choice("--x", x, tuple(plotting.X_LABELS))
    curves = plotting.draw(runs, output, x=cast(plotting.XAxis, x), log=log)
    typer.echo(f"{output}: {len(curves)} curve(s), exploitability in {curves[0].unit} against {plotting.X_LABELS[x]}")


@app.command()
def games(
    game: Annotated[
        str | None,
        typer.Argument(metavar="[GAME]", help="An alias or an OpenSpiel game string: all about it."),
    ] = None,
    as_json: Json = False,
) -> None:
    """List the games with their sizes and units.

    These have a short name; any OpenSpiel game string works too.

    \b
    Examples:
      dream games
      dream games "liars_dice(numdice=2)"
    """
    if game is not None:
        from dream import wiring

        with work(as_json):
            document = dict(wiring.describe_game(game))
        emit(document) if as_json else typer.echo("\n".join(outline(document)))
        return
    with work(as_json):
        rows = _game_rows()
    emit(rows) if as_json else typer.echo(table(rows))


@app.command()
def presets(as_json: Json = False) -> None:
    """List the presets. `dream config PRESET` shows one in full."""
    rows = [{"preset": name, "summary": configuration.preset_summary(name)} for name in configuration.preset_names()]
    emit(rows) if as_json else typer.echo(table(rows))


@app.command()
def config(
    preset: PresetArgument,
    overrides: Overrides = None,
    sizes: Annotated[bool, typer.Option("--sizes", help="Also predict the sizes of buffers and networks.")] = False,
    as_json: Json = False,
) -> None:
    """Show the resolved configuration as YAML.

    It holds every key, and `dream train` takes it.

    \b
    Example:
      dream config leduc-dream > my.yaml
    """
    settings = configuration.load(preset, overrides or [])
    predicted: list[dict[str, Any]] | None = None
    if sizes:
        from dream import wiring

        with work(as_json):
            predicted = list(wiring.predict_sizes(settings))
    if as_json:
        document = settings.model_dump(mode="json")
        emit(document if predicted is None else {"config": document, "sizes": predicted})
        return
    typer.echo(configuration.to_yaml(settings), nl=False)
    if predicted is not None:
        typer.echo("\n".join(f"# {line}" for line in table(predicted).splitlines()))


app.add_typer(lab_cli.app)


# --- what commands share -----------------------------------------------------------------------------------


def _close_pipes() -> None:
    """Sends what is still in the buffers nowhere, so that the interpreter has nothing to complain of at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):
        os.dup2(nowhere, number)
    os.close(nowhere)


def _report(result: Result, as_json: bool) -> None:
    """The result of training; exits with 130 when it was interrupted."""
    if as_json:
        emit(result.as_json())
    else:
        _summarise(result)
    if result.interrupted:
        say(f"interrupted and committed; go on with: dream resume {result.run_dir}")
        raise typer.Exit(INTERRUPTED)


def _summarise(result: Result) -> None:
    typer.echo(f"{result.iteration:,} iterations, {result.states:,} states, {result.seconds:,.1f} s")
    if result.last:
        last = result.last
        typer.echo(
            f"exploitability {last['exploitability_milli']:.2f} {last['unit']} "
            f"({last['exploitability_chips']:.6f} chips, average: {last['average']}) "
            f"after iteration {last['iteration']:,}"
        )
    typer.echo(f"run folder: {result.run_dir}")
    typer.echo(f"curves: tensorboard --logdir {result.run_dir}")


def _iterations(text: str | None, run: str) -> list[int] | None:
    """`all`, or comma-separated numbers."""
    if text is None:
        return None
    if text.strip() == "all":
        from dream import inspection
        from dream.store.run_folder import RunFolder

        return list(range(1, inspection.completed_iterations(RunFolder.open(run)) + 1))
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"--iterations {text!r} is neither 'all' nor numbers such as 1,10,50.") from None
    if min(numbers) < 1:
        raise UsageError(f"--iterations {text!r}: iterations count from 1.")
    return sorted(set(numbers))


def _game_rows() -> list[dict[str, Any]]:
    from actors.games import registry

    rows = []
    for alias in registry.ALIASES.values():
        about = registry.describe(alias.name)
        rows.append(
            {
                "game": alias.name,
                "unit": alias.milli_unit,
                "actions": about.num_actions,
                "features": max(about.state_features),
                "longest": about.horizon,
                "summary": alias.summary,
                "openspiel": about.game_string,
            }
        )
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line and exits."""
    try:
        app(args=list(arguments) if arguments is not None else None, prog_name="dream")
    finally:
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            _close_pipes()


if __name__ == "__main__":
    main()
