"""Training, going on, evaluating and playing, as four functions.

result = dream.train("kuhn-dream-quick", run_dir="runs/first", iterations=50)
result.exploitability_milli, result.unit
policy = dream.load_policy(result.run_dir)     # an open_spiel.python.policy.Policy
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dream import config as configuration
from dream.config import RunConfig
from dream.errors import UsageError
from dream.results import Evaluation, Result

if TYPE_CHECKING:
    from open_spiel.python.policy import Policy

    from dream.store.places import Location

__all__ = ["default_run_dir", "evaluate", "load_policy", "resume", "train"]


def default_run_dir(name: str) -> Path:
    """Makes and returns `runs/<name>-<UTC time>` in the working directory, unlike any other run's."""
    stem = f"{name}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    for number in count(1):
        folder = Path("runs") / (stem if number == 1 else f"{stem}-{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:  # of a run started in the same second
            continue
        return folder
    raise AssertionError("unreachable")


def _path(run_dir: str | Location) -> Location:
    """The folder, with `~` expanded, or the URL's. Raises UsageError for none, UnavailableError where it needs more."""
    from dream.store.places import ObjectPath, locate

    if not isinstance(run_dir, str | Path | ObjectPath) or not str(run_dir).strip():
        raise UsageError(f"{run_dir!r} names no run folder; give its path, as runs/first.")
    place = locate(run_dir)
    try:
        return place.expanduser() if isinstance(place, Path) else place
    except RuntimeError:
        raise UsageError(f"{run_dir}: there is no such user; ./{run_dir} is a folder of that name.") from None


@contextmanager
def _saying_how_to_go_on(folder: Location) -> Iterator[None]:
    """Adds a note to an interrupt that stops a run which has begun."""
    try:
        yield
    except KeyboardInterrupt as stop:
        if _begun(folder):
            stop.add_note(f"the run goes on from its last commit: dream resume {folder}")
        raise


def _begun(folder: Location) -> bool:
    from dream.store.places import at

    with suppress(OSError):
        return at(folder / "config.yaml").is_file()
    return False


def train(
    config: RunConfig | str | Path,
    *,
    run_dir: str | Location | None = None,
    overrides: Sequence[str] = (),
    progress: bool = True,
    go_on: bool = False,
    **changes: Any,
) -> Result:
    """Trains a preset, a YAML file or a configuration in a new run folder.

    `overrides` are `KEY=VALUE` strings, as on the command line; `changes` are the same as keywords, nested:
    `train("leduc-dream", iterations=50, sampling={"traversals": 500})`. Without `run_dir` the folder is
    `runs/<preset>-<UTC time>`. Ctrl-C and SIGTERM commit and return with `interrupted` set. With `go_on`, a run that
    `run_dir` holds already goes on as by `resume`: the same call starts a run, and continues it when it is made again.

    Raises ConfigError for what cannot be run (an unknown preset, key, value), GameError for a game that
    cannot be trained on, RunFolderError for a folder that is already in use, DivergenceError for a fit whose
    loss is not finite. A second Ctrl-C raises KeyboardInterrupt.
    """
    name, settings = _configuration(config, overrides, changes)  # before anything slow is loaded
    given = None if run_dir is None else _path(run_dir)
    if go_on and given is None:
        raise UsageError("to go on with a run needs its folder: give run_dir (--run-dir DIR).")
    from dream import wiring

    if given is not None:
        with _saying_how_to_go_on(given):
            return wiring.train(settings, given, progress=progress, go_on=go_on)
    folder = default_run_dir(name)
    try:
        with _saying_how_to_go_on(folder):
            return wiring.train(settings, folder, progress=progress)
    except BaseException:
        with suppress(OSError):  # goes only if the run never began
            folder.rmdir()
        raise


def _configuration(
    config: RunConfig | str | Path, overrides: Sequence[str], changes: dict[str, Any]
) -> tuple[str, RunConfig]:
    """The name for a run folder, and the configuration with all changes laid over it."""
    if isinstance(config, RunConfig):
        name, settings = "run", configuration.with_overrides(config, overrides)
    else:
        settings = configuration.load(config, overrides)
        name = Path(config).stem
    return name, configuration.merged(settings, changes) if changes else settings


def resume(run_dir: str | Location, overrides: Sequence[str] = (), *, progress: bool = True) -> Result:
    """Goes on from the newest commit of `run_dir`, to the same networks as if it had never stopped.

    `overrides` may extend the run (`iterations=4000`). Raises RunFolderError when there is no run,
    CheckpointError when no commit can be read, ConfigError for an override that cannot be applied.
    """
    folder = _path(run_dir)
    with _saying_how_to_go_on(folder):
        from dream import wiring

        return wiring.resume(folder, overrides, progress=progress)


def evaluate(
    run_dir: str | Location, iterations: Sequence[int] | None = None, average: str | None = None
) -> list[Evaluation]:
    """Exact exploitability of the average strategy of a stored run, after each of `iterations`.

    `iterations` None is the last one; `average` (`bank` or `network`) None is the algorithm's own. Raises
    RunFolderError, ConfigError.
    """
    folder = _path(run_dir)
    from dream import wiring

    return list(wiring.evaluate(folder, iterations, average))


def load_policy(run_dir: str | Location, iteration: int | None = None) -> Policy:
    """The average strategy of a run (after `iteration`; None is the last) as an OpenSpiel policy."""
    folder = _path(run_dir)
    from dream import wiring

    return wiring.policy(folder, iteration)
