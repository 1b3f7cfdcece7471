"""`dream lab`: documents, exit status, streams, messages. The solver is made up, but where a test says `real`."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from oracles import tiny_runs

from dream import cli
from dream.laboratory import arguments, seed_task
from dream.laboratory.reproduce import NAMES
from dream.laboratory.settings import LabSettings

Run = Callable[..., tuple[int, str, str]]
TINY = ("--touches", "2000", "--seeds", "2", "--points", "4", "--workers", "1")


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seed_task, "SOLVE", "oracles.lab_tasks:curve")


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            cli.main(["lab", *arguments])
        captured = capfd.readouterr()
        return int(left.value.code or 0), captured.out, captured.err

    return call


def test_real_seeds_in_one_document(run: Run, tmp_path: Path) -> None:
    status, out, err = run("solve", "kuhn", "--chance", "weyl", "--update", "linear", *TINY, "--json")
    document = json.loads(out)
    assert status == 0
    assert "seeds 2/2" in err
    assert document["settings"]["chance"] == "weyl"
    assert "every node entered" in document["counted"]
    assert [seed["seed"] for seed in document["seeds"]] == [1, 2]
    for seed in document["seeds"]:
        assert 2000 <= seed["touches"] < 2100
        assert 0 < seed["exploitability_chips"] < 0.5
        assert [point["touches"] for point in seed["curve"]] == sorted(point["touches"] for point in seed["curve"])
        assert seed["curve"][-1] == {key: seed[key] for key in seed["curve"][-1]}
        assert seed["diagnostics"]["chance_nodes"] == 4
    mean = sum(seed["exploitability_chips"] for seed in document["seeds"]) / 2
    assert document["mean_exploitability_chips"] == pytest.approx(mean, rel=0.05)
    assert list((tmp_path / "runs/lab/seeds").glob("kuhn-es-mccfr-linear-weyl-*.jsonl"))


def test_solve_in_words(run: Run, made_up: None) -> None:
    status, out, _ = run("solve", "kuhn", "epsilon=0.3", "--algorithm", "os-mccfr", *TINY, "--quiet")
    assert status == 0
    assert "kuhn os-mccfr epsilon=0.3, 2 seed(s); x counts node touches: every node entered" in out
    assert "chips (NashConv / 2, mean of the seeds)" in out


def test_full_width_solvers_need_one_seed(run: Run, made_up: None) -> None:
    status, out, _ = run("solve", "kuhn", "--algorithm", "cfr", "--touches", "20000", "--json", "--quiet")
    assert status == 0
    assert len(json.loads(out)["seeds"]) == 1


def test_finished_seeds_are_not_run_again(run: Run, made_up: None, tmp_path: Path) -> None:
    run("solve", "kuhn", *TINY)
    (file,) = (tmp_path / "runs/lab/seeds").iterdir()
    before = file.read_bytes()
    _, _, err = run("solve", "kuhn", *TINY)
    assert "2 of 2 seeds were finished earlier" in err
    assert file.read_bytes() == before
    run("solve", "kuhn", *TINY, "--seeds", "3")
    assert file.read_bytes().startswith(before)
    assert file.read_bytes().count(b"\n") == before.count(b"\n") + 1


def test_compare_sets_the_first_against_the_others(run: Run, made_up: None) -> None:
    common = ("compare", "kuhn", "--vary", "update=vanilla,linear", "--vary", "chance=iid,weyl", *TINY, "--out", "here")
    status, out, _ = run(*common, "--json")
    document = json.loads(out)
    assert status == 0
    assert list(document["arms"]) == [f"update={u} chance={c}" for u in ("vanilla", "linear") for c in ("iid", "weyl")]
    assert [row["baseline"] for row in document["rows"]] == ["update=vanilla chance=iid"] * 3
    row = document["rows"][0]
    ours = [document["arms"][row[arm]]["average"]["exploitability_chips"] for arm in ("baseline", "other")]
    assert row["reduction_percent"] == pytest.approx(100 * (1 - sum(ours[1]) / sum(ours[0])))
    assert row["excludes_published"] is None
    assert json.loads(Path("here", f"{document['name']}.json").read_text()) == document
    assert Path(document["picture"]).read_bytes().startswith(b"\x89PNG")
    status, out, _ = run(*common, "--quiet", "--iterate", "last")
    assert status == 0
    assert "update=linear chance=weyl against update=vanilla chance=iid" in out


def test_list_names_every_experiment_and_setting(run: Run) -> None:
    status, out, _ = run("list")
    assert status == 0
    assert all(name in out for name in (*NAMES, *LabSettings.model_fields) if name != "game")
    status, out, _ = run("list", "--json")
    document = json.loads(out)
    assert [each["experiment"] for each in document["experiments"]] == list(NAMES)
    defaults = {each["setting"]: each["default"] for each in document["settings"]}
    assert (defaults["algorithm"], defaults["update"], defaults["anchor_every"]) == ("required", "vanilla", "0")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("solve", "kuhn", "--algorithm", "es-mcfr"), "unknown algorithm 'es-mcfr'; did you mean 'es-mccfr'?"),
        (("solve", "kuhn", "--chance", "wyl"), "unknown chance 'wyl'; did you mean 'weyl'?"),
        (("solve", "kuhn", "--update", "lineal"), "unknown update 'lineal'; did you mean 'linear'?"),
        (("solve", "kuhn", "epsilom=0.5"), "unknown setting 'epsilom'; did you mean 'epsilon'?"),
        (("solve", "kuhn", "epsilon"), "'epsilon' is not of the form KEY=VALUE"),
        (("solve", "kuhn", "--algorithm", "os-mccfr", "epsilon=2"), "epsilon=2 is not valid: it must be a number, at "),
        (("solve", "kuhn", "--algorithm", "os-mccfr", "epsilon=true"), "epsilon=True: must be a number, not true"),
        (("solve", "kuhn", "epsilon=0.5"), "epsilon=0.5 does not go with algorithm=es-mccfr"),
        (("solve", "khun"), "khun"),
        (("compare", "kuhn"), "nothing to compare"),
        (("compare", "kuhn", "--vary", "chance=iid"), "nothing to compare"),
        (("compare", "kuhn", "--vary", "chance=iid,wyl"), "unknown chance 'wyl'; did you mean 'weyl'?"),
        (("compare", "kuhn", "--vary", "change=iid,weyl"), "unknown setting 'change'; did you mean 'chance'?"),
        (("compare", "kuhn", "--vary", "chance=iid,weyl", "--vary", "chance=iid,weyl"), "chance is given twice"),
        (("compare", "kuhn", "--vary", "chance=iid,weyl", "--iterate", "lst"), "did you mean 'last'?"),
        (("reproduce", "ccs-mian"), "unknown experiment 'ccs-mian'; did you mean 'ccs-main'?"),
    ],
)
def test_wrong_words_are_named_with_the_nearest_right_one(run: Run, words: tuple[str, ...], message: str) -> None:
    status, out, err = run(*words, "--json")
    assert (status, out) == (2, "")
    assert message in err
    assert not Path("runs").exists()


def test_a_game_too_large_to_enumerate_fails_in_one_message(run: Run) -> None:
    status, out, err = run("solve", "goofspiel(num_cards=8)", *TINY, "--json", "--quiet")
    assert (status, out) == (1, "")
    assert "error: seed 0 of" in err
    assert "GameError" in err
    assert "Traceback" not in err


def test_values_of_a_grid() -> None:
    assert arguments.grid(["epsilon=0.1,1e-3", "control_variate=true,false"]) == [
        {"epsilon": 0.1, "control_variate": True},
        {"epsilon": 0.1, "control_variate": False},
        {"epsilon": 1e-3, "control_variate": True},
        {"epsilon": 1e-3, "control_variate": False},
    ]


@pytest.mark.slow
def test_ctrl_c_keeps_what_is_done_and_the_same_command_goes_on(tmp_path: Path) -> None:
    words: list[Any] = [
        "lab",
        "solve",
        "kuhn",
        "--seeds",
        "60",
        "--touches",
        "500000",
        "--out",
        tmp_path,
        "--workers",
        "2",
    ]
    process = subprocess.Popen(
        tiny_runs.command(*words),
        env=tiny_runs.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    limit = time.monotonic() + 120
    while sum(file.read_bytes().count(b"\n") for file in tmp_path.glob("seeds/*")) < 3:
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < limit
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert "of 60 seeds are kept; the same command goes on with the others" in err
    assert "Traceback" not in err
    again = tiny_runs.dream(*words[:-4], "--out", tmp_path, "--json")
    assert again.returncode == 0
    document = json.loads(again.stdout)
    assert "seeds were finished earlier" in again.stderr
    assert [seed["seed"] for seed in document["seeds"]] == list(range(1, 61))
    assert all(math.isfinite(seed["exploitability_chips"]) for seed in document["seeds"])
