"""Seeds in worker processes: all run once, kept as they end, read back; what fails says which seed and why."""

import io
import json
import os
from pathlib import Path

import numpy as np
import pytest
from oracles import lab_tasks

from dream.laboratory.experiments import Arm, ArmCurves, SeedCurve, on_common_grid, run_seeds
from dream.laboratory.pool import Job, SeedError, run_jobs
from dream.laboratory.seed_progress import Lines, Silent, make_seed_progress
from dream.laboratory.seeds_store import SeedStore, digest
from dream.store.errors import StoreError

ARMS = (Arm("low one", "game", {"level": 1.0}), Arm("high one", "game", {"level": 2.0}))


def ran(folder: Path) -> list[list[str]]:
    """(level, seed, process) of every run of the quick task."""
    path = folder / "runs" / "ran"
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def run(folder: Path, seeds: range, arms: tuple[Arm, ...] = ARMS, **options) -> dict[str, ArmCurves]:
    return run_seeds(arms, seeds, folder, "oracles.lab_tasks:quick", workers=2, **options)


def test_every_arm_has_every_seed_and_none_runs_twice(tmp_path: Path) -> None:
    curves = run(tmp_path, range(1, 4))
    assert [curve.seed for curve in curves["low one"].seeds] == [1, 2, 3]
    assert curves["high one"].final("average") == pytest.approx([2.001, 2.002, 2.003])
    assert np.isnan(curves["high one"].final("last")).all()
    assert len(ran(tmp_path)) == 6
    again = run(tmp_path, range(1, 6))
    assert [curve.seed for curve in again["low one"].seeds] == [1, 2, 3, 4, 5]
    assert sorted((level, seed) for level, seed, _ in ran(tmp_path)) == sorted(
        (level, str(seed)) for level in ("1.0", "2.0") for seed in range(1, 6)
    )
    processes = {process for *_, process in ran(tmp_path)}
    assert len(processes) <= 4
    assert str(os.getpid()) not in processes


def test_a_changed_setting_is_another_experiment(tmp_path: Path) -> None:
    run(tmp_path, range(1, 3))
    changed = (Arm("low one", "game", {"level": 1.5}), ARMS[1])
    curves = run(tmp_path, range(1, 3), changed)
    assert curves["low one"].final("average") == pytest.approx([1.501, 1.502])
    assert [level for level, *_ in ran(tmp_path)].count("2.0") == 2, "the other arm's seeds are kept"
    assert [level for level, *_ in ran(tmp_path)].count("1.5") == 2


def test_the_same_setting_under_another_name_is_not_run_again(tmp_path: Path) -> None:
    run(tmp_path, range(1, 3))
    renamed = (Arm("another name", "another panel", {"level": 1.0}), ARMS[1])
    assert run(tmp_path, range(1, 3), renamed)["another name"].final("average") == pytest.approx([1.001, 1.002])
    assert len(ran(tmp_path)) == 4


def test_what_is_finished_is_read_while_others_write(tmp_path: Path) -> None:
    run(tmp_path, range(1, 3))
    (low,) = (tmp_path / "seeds").glob("low-one-*.jsonl")
    holder = SeedStore(tmp_path / "seeds", "low one", json.loads(low.read_text().splitlines()[0])["setting"])
    with holder.writing():
        assert len(run(tmp_path, range(1, 3))["low one"].seeds) == 2
        with pytest.raises(StoreError, match="another process"):
            run(tmp_path, range(1, 4))


def test_warm_ups_come_first_and_only_where_seeds_are_missing(tmp_path: Path) -> None:
    arms = (Arm("low one", "game", {"level": 1.0}, {"level": 9.0}), ARMS[1])
    run(tmp_path, range(1, 3), arms)
    assert ran(tmp_path)[0][:2] == ["9.0", "0"]
    run(tmp_path, range(1, 3), arms)
    assert len(ran(tmp_path)) == 5


@pytest.mark.parametrize(
    ("task", "job", "message"),
    [
        ("failing", {"raises": "value"}, "seed 3 of arm failed: ValueError: seed three is no good"),
        ("failing", {"raises": "runtime"}, "seed 3 of arm failed: Traceback(.|\n)*seed three is no good"),
        ("dying", {}, "seed 3 of arm failed: its process ended with status -9"),
    ],
)
def test_a_seed_that_fails_is_named_and_the_others_are_kept(tmp_path: Path, task: str, job: dict, message: str) -> None:
    arm = Arm("arm", "game", job)
    with pytest.raises(SeedError, match=message):
        run_seeds([arm], range(1, 6), tmp_path, f"oracles.lab_tasks:{task}", workers=1)
    (file,) = (tmp_path / "seeds").iterdir()
    seeds = [json.loads(line)["seed"] for line in file.read_text().splitlines()[1:]]
    assert seeds == [1, 2]


def test_leaving_early_ends_the_processes(tmp_path: Path) -> None:
    jobs = [Job("arm", {"level": 1.0}, seed) for seed in range(50)]
    results = run_jobs("oracles.lab_tasks:slow", jobs, tmp_path, 2)
    next(results)
    results.close()
    processes = {line.split()[2] for line in (tmp_path / "ran").read_text().splitlines()}
    assert processes
    assert not [process for process in processes if Path(f"/proc/{process}").exists()]


class InterruptedProgress(Silent):
    """Ctrl-C after three seeds."""

    def __init__(self) -> None:
        self.count = 0

    def update(self, words: str) -> None:
        self.count += 1
        if self.count == 3:
            raise KeyboardInterrupt


def test_an_interrupt_says_what_is_kept(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt) as stopped:
        run(tmp_path, range(1, 11), progress=InterruptedProgress())
    assert stopped.value.__notes__ == ["3 of 20 seeds are kept; the same command goes on with the others"]
    processes = {process for *_, process in ran(tmp_path)}
    assert not [process for process in processes if Path(f"/proc/{process}").exists()]
    lines = sum(len(file.read_text().splitlines()) - 1 for file in (tmp_path / "seeds").iterdir())
    assert lines == 3
    assert len(run(tmp_path, range(1, 11))["low one"].seeds) == 10


# --- the store ---------------------------------------------------------------------------------------------


def store(tmp_path: Path, **identity) -> SeedStore:
    return SeedStore(tmp_path, "Leduc, weyl", identity or {"setting": 1})


def test_a_line_cut_by_a_kill_is_dropped_and_mended(tmp_path: Path) -> None:
    one = store(tmp_path)
    with one.writing():
        one.append(1, lab_tasks.result({"level": 1.0}, 1))
        one.append(2, lab_tasks.result({"level": 1.0}, 2))
    whole = one.path.read_bytes()
    assert one.path.name == f"leduc-weyl-{digest({'setting': 1})}.jsonl"
    lines = [0, *(at + 1 for at, byte in enumerate(whole) if byte == ord("\n"))]
    cuts = {max(0, min(len(whole), line + shift)) for line in lines for shift in (-1, 0, 1, 20)}
    for length in sorted(cuts):
        one.path.write_bytes(whole[:length])
        finished = max(0, whole[:length].count(b"\n") - 1)
        assert sorted(one.read()) == [1, 2][:finished]
        with one.writing():
            one.append(7, {"x": [1]})
        assert sorted(one.read()) == [*[1, 2][:finished], 7]


def test_a_damaged_line_in_the_middle_is_named(tmp_path: Path) -> None:
    one = store(tmp_path)
    with one.writing():
        one.append(1, {"x": [1]})
        one.append(2, {"x": [2]})
    one.path.write_bytes(one.path.read_bytes().replace(b'{"seed": 1', b'{"sXed": 1'))
    with pytest.raises(StoreError, match="line 2 is damaged"):
        one.read()


def test_a_file_of_another_setting_or_format_is_refused(tmp_path: Path) -> None:
    one, other = store(tmp_path), store(tmp_path, setting=2)
    with one.writing():
        pass
    one.path.rename(other.path)
    with pytest.raises(StoreError, match="another setting"):
        other.read()
    other.path.write_bytes(other.path.read_bytes().replace(b'"format": 1', b'"format": 9'))
    with pytest.raises(StoreError, match="format 9"):
        other.read()


def test_one_process_writes_at_a_time(tmp_path: Path) -> None:
    one = store(tmp_path)
    with one.writing(), pytest.raises(StoreError, match="another process"), store(tmp_path).writing():
        pass
    with pytest.raises(RuntimeError, match="inside writing"):
        one.append(1, {})


def test_the_digest_does_not_depend_on_the_order_of_keys() -> None:
    assert digest({"a": 1, "b": {"c": 2, "d": 3}}) == digest({"b": {"d": 3, "c": 2}, "a": 1})
    assert digest({"a": 1}) != digest({"a": 2})


# --- curves and progress -----------------------------------------------------------------------------------


def test_seeds_are_brought_to_common_budgets() -> None:
    def curve(seed: int, x: list[int], y: list[float]) -> SeedCurve:
        return SeedCurve(seed, np.array(x), np.array(x), np.array(y), np.array(y) * 2)

    arm = ArmCurves(ARMS[0], (curve(1, [0, 10, 1000], [3.0, 2.0, 1.0]), curve(2, [0, 100, 900], [3.0, 2.0, 1.0])))
    grid, values = arm.on_grid("average")
    assert grid.tolist() == [1.0, 10.0, 900.0]
    assert values[1] == pytest.approx([3.0, 2.5, 1.0])
    assert values[0, 2] == pytest.approx(2.0 - (np.log(900) - np.log(10)) / np.log(100))
    assert arm.on_grid("last")[1] == pytest.approx(2 * values)
    other = ArmCurves(ARMS[1], (curve(1, [5, 100], [3.0, 1.0]),))
    grid, (first, second) = on_common_grid("average", arm, other)
    assert grid.tolist() == [5.0, 10.0, 100.0]
    assert first[1] == pytest.approx([3.0 - np.log(5) / np.log(100), 2.5, 2.0])
    assert second[0] == pytest.approx([3.0, 3.0 - 2.0 * np.log(2) / np.log(20), 1.0])


def test_lines_of_progress_are_rare_and_the_last_is_shown() -> None:
    stream, now = io.StringIO(), [0.0]
    lines = Lines(stream, lambda: now[0])
    lines.start(100, 90)
    for _ in range(10):
        now[0] += 1.0
        lines.update("arm")
    assert stream.getvalue().splitlines() == ["seeds 95/100  arm  5 s left", "seeds 100/100  arm  0 s left"]


def test_progress_is_silent_or_in_lines_where_there_is_no_terminal() -> None:
    assert isinstance(make_seed_progress(quiet=True), Silent)
    assert isinstance(make_seed_progress(stream=io.StringIO()), Lines)
