"""Command line: `python -m benchmarks [NAME...] [--json]`."""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import sys
from collections.abc import Callable, Iterable

import torch
from rich.console import Console
from rich.table import Table

from benchmarks import cluster, exact, keeping, learning, playing, ranks, tabular
from benchmarks.measure import Budget, Result

Benchmark = Callable[[Budget], list[Result]]

BENCHMARKS: dict[str, Benchmark] = {
    "tree_sampler": playing.tree_sampler,
    "simulator": playing.simulator,
    "advantage_learner": learning.advantage_learner,
    "baseline_learner": learning.baseline_learner,
    "data_parallel": ranks.data_parallel,
    "exact_exploitability": exact.exact_exploitability,
    "stored_average": exact.stored_average,
    "buffers": keeping.buffers,
    "openspiel_deep_cfr": playing.openspiel_deep_cfr,
    "tabular_solvers": tabular.tabular_solvers,
    "cluster_overhead": cluster.overhead,
    "cluster_workers": cluster.workers,
    "cluster_scale": cluster.scale,
}


def table(results: Iterable[Result]) -> Table:
    """Results as they are printed."""
    shown = Table(title="Medians over interleaved rounds; processor seconds of one thread (cluster_*: wall clock)")
    for heading in ("benchmark", "case", "ours", "bare limit", "bare", "ratio", "target", ""):
        shown.add_column(heading, justify="right" if heading in ("ours", "bare", "ratio") else "left")
    for result in results:
        ratio = "" if math.isnan(result.ratio) else f"{result.ratio:,.2f}"
        mark = {True: "reached", False: "missed", None: ""}[result.reached]
        unit = result.unit
        ours, bare = _speed(result.ours, unit), _speed(result.bare, unit)
        shown.add_row(result.benchmark, result.case, ours, result.bare_limit, bare, ratio, result.target, mark)
    return shown


def _speed(rate: float, unit: str) -> str:
    """Rates per second; slow whole jobs as the time that one takes."""
    if rate == 0.0:
        return ""
    return (
        f"{1000 / rate:,.1f} ms each" if unit in ("evaluations", "averages", "iterations") else f"{rate:,.0f} {unit}/s"
    )


def main(arguments: list[str] | None = None) -> int:
    """Runs the benchmarks named, or all; the table goes to standard error with --json, else to standard output."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(BENCHMARKS)}; all by default")
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")
    parser.add_argument("--slice", type=float, default=Budget().slice_seconds, help="seconds of a contestant's turn")
    parser.add_argument("--rounds", type=int, default=Budget().rounds, help="turns of every contestant")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.names if name not in BENCHMARKS]:
        parser.error(f"unknown benchmark {unknown[0]!r}: allowed are {', '.join(BENCHMARKS)}")
    torch.set_num_threads(1)
    notes = Console(stderr=True)
    results: list[Result] = []
    for name in options.names or BENCHMARKS:
        notes.print(f"{name} ...", style="dim")
        try:
            results += BENCHMARKS[name](Budget(options.slice, options.rounds))
        except ImportError as error:
            notes.print(f"{name}: skipped, {error}")
    wide = None if sys.stdout.isatty() else 230
    Console(stderr=options.json, width=wide).print(table(results))
    if options.json:
        print(json.dumps({"machine": _machine(), "results": [r.document() for r in results]}, indent=2))
    return 0


def _machine() -> dict[str, object]:
    return {
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


if __name__ == "__main__":
    sys.exit(main())
