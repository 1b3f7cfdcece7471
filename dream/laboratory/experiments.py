"""Many seeds of several settings: run in parallel, kept as they finish, read back as arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dream
from dream.laboratory.pool import Finished, Job, cores, run_jobs
from dream.laboratory.seed_progress import SeedProgress, Silent
from dream.laboratory.seeds_store import SeedStore

__all__ = ["Arm", "ArmCurves", "SeedCurve", "on_common_grid", "run_seeds"]

SEEDS_FOLDER = "seeds"


@dataclass(frozen=True)
class Arm:
    """One setting of an experiment.

    `job` is what the task is given with each seed, and with the version of dream the identity of its results;
    `panel` groups arms into one picture; `warm_up` is a job that takes no time but compiles everything.
    """

    name: str
    panel: str
    job: Mapping[str, Any]
    warm_up: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class SeedCurve:
    """One seed's exploitability (NashConv / 2, chips) along its budget; all [k].

    `x` counts node touches (or what the task says instead). `last` is the last iterate's, NaN where unknown.
    """

    seed: int
    x: NDArray[np.int64]
    iterations: NDArray[np.int64]
    average: NDArray[np.float64]
    last: NDArray[np.float64]
    diagnostics: Mapping[str, Any] = field(default_factory=dict)

    def of(self, iterate: str) -> NDArray[np.float64]:
        """The curve of the `average` or the `last` iterate."""
        return self.average if iterate == "average" else self.last


@dataclass(frozen=True)
class ArmCurves:
    """The finished seeds of one arm, in the order of their numbers."""

    arm: Arm
    seeds: tuple[SeedCurve, ...]

    def final(self, iterate: str) -> NDArray[np.float64]:
        """[n] exploitability in chips at the end of the budget, seed by seed."""
        return np.array([curve.of(iterate)[-1] for curve in self.seeds])

    def on_grid(self, iterate: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(x [k], exploitability [n, k]) of all seeds at common budgets."""
        grid, (values,) = on_common_grid(iterate, self)
        return grid, values


def on_common_grid(iterate: str, *arms: ArmCurves) -> tuple[NDArray[np.float64], list[NDArray[np.float64]]]:
    """(x [k], exploitability [n, k] of each arm): all seeds at common budgets, linear in log x in between.

    Seeds overshoot a budget by different amounts, since an iteration is never cut; the grid lies where the first seed
    has its points, inside the range that all seeds cover.
    """
    seeds = [curve for arm in arms for curve in arm.seeds]
    low = max(float(curve.x[0]) for curve in seeds)
    high = min(float(curve.x[-1]) for curve in seeds)
    grid = np.unique(np.clip(seeds[0].x.astype(np.float64), max(low, 1.0), max(high, 1.0)))
    rows = [np.interp(np.log(grid), np.log(np.maximum(curve.x, 1)), curve.of(iterate)) for curve in seeds]
    return grid, np.split(np.stack(rows), np.cumsum([len(arm.seeds) for arm in arms])[:-1])


def run_seeds(
    arms: Sequence[Arm],
    seeds: Sequence[int],
    folder: Path,
    task: str,
    *,
    workers: int | None = None,
    progress: SeedProgress | None = None,
) -> dict[str, ArmCurves]:
    """Runs `task` for every arm and seed that `folder` does not hold yet, and returns all by the arm's name.

    Each seed is kept as soon as it ends: a kill or Ctrl-C loses only those that were running, and the same call
    goes on. Seeds are run in the order of their numbers, all arms of one before the next, so that an experiment
    that was stopped is paired. `workers` None is one per core.

    Raises SeedError for a seed that fails, StoreError for damaged or busy files; KeyboardInterrupt with a note.
    """
    shown = progress or Silent()
    stores = {arm.name: SeedStore(folder / SEEDS_FOLDER, arm.name, _identity(arm, task)) for arm in arms}
    with ExitStack() as held:
        kept = {name: store.read() for name, store in stores.items()}
        for name in [name for name, found in kept.items() if not set(seeds) <= found.keys()]:
            held.enter_context(stores[name].writing())  # what is finished is read while others write
            kept[name] = stores[name].read()
        jobs = [Job(arm.name, dict(arm.job), seed) for seed in seeds for arm in arms if seed not in kept[arm.name]]
        warm_ups = _warm_ups(arms, jobs)
        if warm_ups:
            shown.note("compiling what is not in the cache yet")
        with closing(run_jobs(task, jobs, folder / "runs", workers or cores(), warm_ups)) as results:
            _keep(results, stores, kept, len(arms) * len(seeds), len(jobs), shown)
    return {arm.name: ArmCurves(arm, tuple(_curve(seed, kept[arm.name][seed]) for seed in seeds)) for arm in arms}


def _warm_ups(arms: Sequence[Arm], jobs: Sequence[Job]) -> list[Job]:
    pending = {job.arm for job in jobs}
    return [Job(arm.name, dict(arm.warm_up), 0) for arm in arms if arm.warm_up is not None and arm.name in pending]


def _keep(
    results: Iterable[Finished],
    stores: Mapping[str, SeedStore],
    kept: Mapping[str, dict[int, dict[str, Any]]],
    total: int,
    missing: int,
    progress: SeedProgress,
) -> None:
    """Stores each result as it comes, and adds it to `kept`."""
    done = total - missing
    if done:
        progress.note(f"{done:,} of {total:,} seeds were finished earlier")
    progress.start(total, done)
    try:
        for finished in results:
            job = finished.job
            stores[job.arm].append(job.seed, finished.result)
            kept[job.arm][job.seed] = finished.result
            done += 1
            progress.update(f"{job.arm} seed {job.seed}: {finished.result['average'][-1]:.5f} chips")
    except KeyboardInterrupt as stop:
        stop.add_note(f"{done:,} of {total:,} seeds are kept; the same command goes on with the others")
        raise
    finally:
        progress.close()


def _identity(arm: Arm, task: str) -> dict[str, Any]:
    return {"task": task, "job": dict(arm.job), "dream": dream.__version__}


def _curve(seed: int, result: Mapping[str, Any]) -> SeedCurve:
    last = [np.nan if value is None else value for value in result["last"]]
    return SeedCurve(
        seed,
        np.array(result["x"], np.int64),
        np.array(result["iterations"], np.int64),
        np.array(result["average"], np.float64),
        np.array(last, np.float64),
        result.get("diagnostics", {}),
    )
