"""`dream lab`: tabular solvers over many seeds, comparisons, and the published experiments."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dream.console import Json, Quiet, choice, emit, table, work
from dream.errors import UsageError

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from dream.laboratory.experiments import ArmCurves
    from dream.laboratory.settings import LabSettings

app = typer.Typer(
    name="lab",
    help="Tabular solvers over many seeds, comparisons, and the published experiments.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_OUT = Path("runs/lab")
_CURVE_POINTS = 20
_PLAIN = ("game", "algorithm", "update", "chance")  # settings whose values need no name

Game = Annotated[str, typer.Argument(metavar="GAME", help="An alias (`dream games`) or an OpenSpiel game string.")]
Settings = Annotated[
    list[str] | None, typer.Argument(metavar="KEY=VALUE", help="More settings, as epsilon=0.5 (`dream lab list`).")
]
Algorithm = Annotated[str, typer.Option("--algorithm", "-a", help="cfr, es-mccfr, os-mccfr, vr-mccfr, ftrl, ...")]
Update = Annotated[str | None, typer.Option("--update", "-u", help="vanilla, cfr+, linear or discounted.")]
Chance = Annotated[str | None, typer.Option("--chance", "-c", help="iid, antithetic, weyl, ...")]
Seeds = Annotated[int | None, typer.Option("--seeds", "-n", min=1, help="How many; they are numbered from 1.")]
Touches = Annotated[int, typer.Option("--touches", "-t", min=1, help="Budget of a seed in node touches.")]
Points = Annotated[int, typer.Option(min=1, max=10_000, help="Points of a curve.")]
Out = Annotated[
    Path, typer.Option("--out", metavar="DIR", help="Where seeds and results are kept; finished ones stay.")
]
Workers = Annotated[int | None, typer.Option(min=1, max=4096, help="Processes; one per core if not given.")]


@app.command()
def solve(
    game: Game,
    settings: Settings = None,
    algorithm: Algorithm = "es-mccfr",
    update: Update = None,
    chance: Chance = None,
    seeds: Seeds = None,
    touches: Touches = 1_000_000,
    points: Points = _CURVE_POINTS,
    out: Out = _OUT,
    workers: Workers = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run one tabular solver on many seeds.

    \b
    Examples:
      dream lab solve leduc --algorithm es-mccfr --update linear --chance weyl --seeds 20 --touches 1000000
      dream lab solve kuhn --algorithm os-mccfr epsilon=0.5 --json
    """
    from dream.laboratory.study import arm

    with work(as_json):
        chosen = _settings(game, algorithm, update, chance, settings or [])
        number = seeds or (1 if _draws_nothing(chosen) else 10)
        one = arm(_label(chosen), chosen, touches, points)
        curves = _run([one], number, out, workers, quiet)[one.name]
        document = _solved(chosen, curves, touches)
    if as_json:
        emit(document)
        return
    typer.echo(f"{curves.arm.name}, {number:,} seed(s); x counts {document['counted']}")
    typer.echo(table(document["curve"]))
    typer.echo(f"exploitability {document['mean_exploitability_chips']:.6g} chips (NashConv / 2, mean of the seeds)")


@app.command()
def compare(
    game: Game,
    settings: Settings = None,
    vary: Annotated[
        list[str] | None,
        typer.Option("--vary", metavar="KEY=A,B,...", help="What differs; the first is the baseline. May be repeated."),
    ] = None,
    algorithm: Algorithm = "es-mccfr",
    update: Update = None,
    chance: Chance = None,
    seeds: Seeds = None,
    touches: Touches = 1_000_000,
    points: Points = _CURVE_POINTS,
    iterate: Annotated[str, typer.Option(help="average or last: the strategy that is compared.")] = "average",
    out: Out = _OUT,
    workers: Workers = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compare settings on the same seeds, the first against each other one.

    \b
    Examples:
      dream lab compare leduc --vary chance=iid,weyl --seeds 50 --touches 300000
      dream lab compare kuhn --vary update=vanilla,linear --vary chance=iid,weyl
    """
    from dream.laboratory import arguments
    from dream.laboratory.seed_task import SOLVE
    from dream.laboratory.study import Comparison, Study, arm, run_study

    iterates = _iterates(iterate)
    with work(as_json):
        changes = arguments.grid(vary or [])
        if len(changes) < 2:
            raise UsageError("nothing to compare: give --vary KEY=A,B with two values or more, as chance=iid,weyl.")
        basis = _values(game, algorithm, update, chance, settings or [])
        arms = [
            arm(
                " ".join(f"{k}={v}" for k, v in change.items()),
                _checked(basis | change),
                touches,
                points,
            )
            for change in changes
        ]
        study = Study(
            name=_file_name("compare", [one.job for one in arms]),
            summary=f"{game}: {' and '.join(vary or [])}",
            arms=tuple(arms),
            comparisons=tuple(
                Comparison(f"{other.name} against {arms[0].name}", arms[0].name, other.name, iterates[0])
                for other in arms[1:]
            ),
            seeds=seeds or 10,
            iterates=iterates,
            task=SOLVE,
        )
        document = run_study(study, study.seeds, out, workers=workers, progress=_progress(quiet))
    _show(document, out, as_json)


@app.command()
def reproduce(
    name: Annotated[str, typer.Argument(metavar="NAME", help="An experiment of `dream lab list`.")],
    seeds: Seeds = None,
    out: Out = _OUT,
    workers: Workers = None,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="The table as Markdown, for a page.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run a published experiment and set its table beside the published figures.

    Ctrl-C or a kill loses no finished seed: the same command goes on.

    \b
    Examples:
      dream lab reproduce ccs-main
      dream lab reproduce ccs-long --seeds 10 --out results --json
    """
    from dream.laboratory.reproduce import study_called
    from dream.laboratory.study import run_study

    with work(as_json):
        study = study_called(name)
        document = run_study(study, seeds or study.seeds, out, workers=workers, progress=_progress(quiet))
    _show(document, out, as_json, as_markdown)


@app.command(name="list")
def list_experiments(as_json: Json = False) -> None:
    """List the published experiments, and the settings of the solvers."""
    from dream.config.wording import kind_of
    from dream.laboratory.reproduce import NAMES, study_called
    from dream.laboratory.settings import LabSettings

    with work(as_json):
        studies = [study_called(name) for name in NAMES]
        experiments: list[dict[str, Any]] = [
            {"experiment": each.name, "arms": len(each.arms), "seeds": each.seeds, "summary": each.summary}
            for each in studies
        ]
        known = [
            {"setting": key, "allowed": kind_of(info.annotation), "default": _default(info)}
            for key, info in LabSettings.model_fields.items()
            if key != "game"
        ]
    if as_json:
        emit({"experiments": experiments, "settings": known})
        return
    typer.echo(f"{table(experiments)}\n\n{table(known)}")


# --- settings ----------------------------------------------------------------------------------------------


def _values(
    game: str, algorithm: str, update: str | None, chance: str | None, overrides: Sequence[str]
) -> dict[str, Any]:
    """What was given, by the settings' names; options that were not given are left to their defaults."""
    from dream.laboratory import arguments

    given = {"game": game, "algorithm": algorithm, "update": update, "chance": chance}
    return {key: value for key, value in given.items() if value is not None} | arguments.pairs(overrides)


def _settings(
    game: str, algorithm: str, update: str | None, chance: str | None, overrides: Sequence[str]
) -> LabSettings:
    return _checked(_values(game, algorithm, update, chance, overrides))


def _checked(values: dict[str, Any]) -> LabSettings:
    """Settings of a game that exists. Raises ConfigError, GameError."""
    from actors.games import registry
    from dream.laboratory import arguments

    settings = arguments.settings_from(values)
    registry.describe(settings.game)
    return settings


def _draws_nothing(settings: LabSettings) -> bool:
    """Whether all seeds give the same: full-width CFR has no randomness."""
    return settings.algorithm == "cfr"


def _label(settings: LabSettings) -> str:
    """Game and algorithm, and what was set beside them."""
    given = {key: getattr(settings, key) for key in type(settings).model_fields if key in settings.model_fields_set}
    words = [str(value) if key in _PLAIN else f"{key}={value}" for key, value in given.items()]
    return " ".join(words)


def _iterates(first: str) -> tuple[Any, ...]:
    choice("--iterate", first, ("average", "last"))
    return (first, "last" if first == "average" else "average")


def _default(info: FieldInfo) -> str:
    if info.is_required():
        return "required"
    return "none" if info.default is None else str(info.default)


def _file_name(kind: str, jobs: Any) -> str:
    from dream.laboratory.seeds_store import digest

    return f"{kind}-{digest({'jobs': [dict(job) for job in jobs]})}"


# --- running and showing -----------------------------------------------------------------------------------


def _progress(quiet: bool) -> Any:
    from dream.laboratory.seed_progress import make_seed_progress

    return make_seed_progress(quiet)


def _run(arms: Sequence[Any], seeds: int, out: Path, workers: int | None, quiet: bool) -> dict[str, ArmCurves]:
    from dream.laboratory.experiments import run_seeds
    from dream.laboratory.seed_task import SOLVE

    return run_seeds(arms, range(1, seeds + 1), out, SOLVE, workers=workers, progress=_progress(quiet))


def _solved(settings: LabSettings, curves: ArmCurves, touches: int) -> dict[str, Any]:
    """The document of `lab solve --json`."""
    from dream.laboratory.seed_task import TOUCHES
    from dream.laboratory.statistics import ribbon

    grid, values = curves.on_grid("average")
    mean, low, high = ribbon(values)
    columns = zip(grid.tolist(), mean.tolist(), low.tolist(), high.tolist(), strict=True)
    return {
        "game": settings.game,
        "settings": settings.model_dump(mode="json"),
        "touches": touches,
        "counted": TOUCHES,
        "unit": "chips (NashConv / 2)",
        "mean_exploitability_chips": float(mean[-1]),
        "seeds": [_seed_document(curve) for curve in curves.seeds],
        "curve": [
            {"touches": round(x), "exploitability_chips": m, "low_chips": a, "high_chips": b} for x, m, a, b in columns
        ],
    }


def _seed_document(curve: Any) -> dict[str, Any]:
    """One seed: where it ended, its curve, its diagnostics."""
    points = list(_points(curve))
    return {"seed": curve.seed, **points[-1], "curve": points, "diagnostics": dict(curve.diagnostics)}


def _points(curve: Any) -> Iterator[dict[str, Any]]:
    for x, iteration, average, last in zip(curve.x, curve.iterations, curve.average, curve.last, strict=True):
        yield {
            "touches": int(x),
            "iteration": int(iteration),
            "exploitability_chips": float(average),
            "last_exploitability_chips": float(last) if math.isfinite(last) else None,
        }


def _show(document: dict[str, Any], out: Path, as_json: bool, as_markdown: bool = False) -> None:
    from dream.laboratory import tables

    if as_json:
        emit(document)
        return
    rows = tables.lines(document)
    if as_markdown:
        typer.echo("\n".join([tables.markdown(rows), "", *tables.footnotes(document)]))
        return
    typer.echo(f"{document['name']}: {document['summary']}; {document['seeds']:,} paired seeds")
    typer.echo("\n".join([table(rows), *tables.footnotes(document)]))
    typer.echo(f"{out / document['name']}.json, {document['picture']}")
