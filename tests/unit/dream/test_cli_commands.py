"""The command line: exit status, what goes to which stream, and messages; training itself is a fake here."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import dream
from dream import api, cli
from dream.config import RunConfig
from dream.results import Evaluation, Result

Run = Callable[..., tuple[int, str, str]]


def evaluation(iteration: int) -> Evaluation:
    return {
        "iteration": iteration,
        "states": 100 * iteration,
        "seconds": 0.5 * iteration,
        "nash_conv_chips": 0.5,
        "exploitability_chips": 0.25,
        "exploitability_milli": 250.0,
        "unit": "mA/g",
        "average": "bank",
    }


class FakeWiring(types.ModuleType):
    """Stands in for dream.wiring: checks types, remembers calls, returns what was asked of it."""

    def __init__(self) -> None:
        super().__init__("dream.wiring")
        self.calls: list[tuple[str, Any]] = []
        self.interrupted = False
        self.error: BaseException | None = None

    def _result(self, folder: Path) -> Result:
        print("a library talks on standard output")
        if self.error:
            raise self.error
        return Result(folder, 7, 700, 3.5, [evaluation(3), evaluation(6)], self.interrupted)

    def train(self, config: RunConfig, folder: Path, *, progress: bool, go_on: bool = False) -> Result:
        assert isinstance(config, RunConfig)
        self.calls.append(("going on" if go_on else "train", (config, folder, progress)))
        return self._result(folder)

    def resume(self, folder: Path, overrides: Sequence[str], *, progress: bool) -> Result:
        self.calls.append(("resume", (folder, list(overrides), progress)))
        return self._result(folder)

    def evaluate(self, folder: Path, iterations: Sequence[int] | None, average: str | None) -> list[Evaluation]:
        self.calls.append(("evaluate", (folder, iterations, average)))
        return [evaluation(t) for t in iterations or [7]]

    def predict_sizes(self, config: RunConfig) -> list[dict[str, Any]]:
        return [{"part": "advantage buffer", "bytes": 1234567}]

    def describe_game(self, name: str) -> dict[str, Any]:
        return {"game": name, "actions": 3}


@pytest.fixture
def wiring(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeWiring:
    fake = FakeWiring()
    monkeypatch.setitem(sys.modules, "dream.wiring", fake)
    monkeypatch.setattr(dream, "wiring", fake, raising=False)
    monkeypatch.chdir(tmp_path)
    return fake


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            cli.main(arguments)
        captured = capsys.readouterr()
        return int(left.value.code or 0), captured.out, captured.err

    return call


def test_train_reports_in_words(run: Run, wiring: FakeWiring) -> None:
    status, out, _ = run("train", "kuhn-dream-quick", "seed=4", "--run-dir", "here", "--quiet")
    assert status == 0
    assert "250.00 mA/g" in out
    assert "run folder: here" in out
    [(_, (config, folder, progress))] = wiring.calls
    assert (config.seed, folder, progress) == (4, Path("here"), False)


def test_train_takes_a_cluster_and_goes_on_where_asked(run: Run, wiring: FakeWiring) -> None:
    run("train", "kuhn-dream-quick", "--runtime", "ray", "--address", "auto", "--run-dir", "here", "--resume")
    [(what, (config, folder, _))] = wiring.calls
    assert (what, config.runtime.kind, config.runtime.address, folder) == ("going on", "ray", "auto", Path("here"))


def test_json_is_one_document_and_all_else_goes_to_standard_error(run: Run, wiring: FakeWiring) -> None:
    status, out, err = run("train", "kuhn-dream-quick", "--json")
    document = json.loads(out)
    assert status == 0
    assert "a library talks" in err
    assert (document["iteration"], document["completed_iterations"], document["interrupted"]) == (6, 7, False)
    assert [each["iteration"] for each in document["evaluations"]] == [3, 6]
    for key, value in evaluation(6).items():
        assert document[key] == value


def test_json_stays_alone_when_compiled_code_prints(
    wiring: FakeWiring, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def describe(name: str) -> dict[str, Any]:
        os.write(1, b"from a compiled library\n")
        return {"game": name}

    monkeypatch.setattr(wiring, "describe_game", describe)
    with pytest.raises(SystemExit):
        cli.main(["games", "leduc", "--json"])
    captured = capfd.readouterr()
    assert json.loads(captured.out) == {"game": "leduc"}
    assert "from a compiled library" in captured.err


def test_default_run_folders_carry_the_preset_and_never_collide(run: Run, wiring: FakeWiring) -> None:
    for _ in range(3):
        assert run("train", "kuhn-dream-quick")[0] == 0
    folders = [arguments[1] for _, arguments in wiring.calls]
    assert len(set(folders)) == 3
    assert all(folder.parent == Path("runs") and folder.name.startswith("kuhn-dream-quick-2") for folder in folders)


def test_a_run_that_never_began_leaves_no_folder(run: Run, wiring: FakeWiring, tmp_path: Path) -> None:
    from actors.games.description import GameError

    wiring.error = GameError("kun has three players.")
    status, _, err = run("train", "kuhn-dream-quick")
    assert (status, err.splitlines()[-1]) == (2, "error: kun has three players.")
    assert list((tmp_path / "runs").iterdir()) == []


def test_interrupted_after_a_commit_is_130(run: Run, wiring: FakeWiring) -> None:
    wiring.interrupted = True
    status, out, err = run("resume", "here", "iterations=9", "--json")
    assert status == 130
    assert json.loads(out)["interrupted"] is True
    assert "dream resume here" in err
    assert wiring.calls == [("resume", (Path("here"), ["iterations=9"], True))]


def expected_errors() -> list[tuple[BaseException, int]]:
    from buffers.frames import FrameError
    from dream.errors import DreamError, UsageError
    from dream.store.errors import CheckpointError, RunFolderError

    return [
        (DreamError("of dream"), 1),
        (UsageError("of usage"), 2),
        (RunFolderError("of the folder"), 2),
        (CheckpointError("of the commit"), 1),
        (FrameError("of the frame"), 1),
        (OSError(28, "No space left on device"), 1),
        (KeyboardInterrupt(), 130),
    ]


@pytest.mark.parametrize("number", range(7))
def test_expected_errors_are_one_message_and_a_status(run: Run, wiring: FakeWiring, number: int) -> None:
    wiring.error, wanted = expected_errors()[number]
    status, out, err = run("resume", "here", "--json")
    assert (status, out) == (wanted, "")
    assert "Traceback" not in err
    assert str(wiring.error) in err


def test_an_interrupt_tells_how_to_go_on_where_there_is_a_run(run: Run, wiring: FakeWiring, tmp_path: Path) -> None:
    wiring.error = KeyboardInterrupt()
    (tmp_path / "begun").mkdir()
    for command in (["resume", "begun"], ["train", "kuhn-dream", "--run-dir", "begun"], ["train", "kuhn-dream"]):
        wiring.error = KeyboardInterrupt()
        assert run(*command)[2].splitlines()[-1] == "interrupted"
    (tmp_path / "begun" / "config.yaml").touch()
    for command in (["resume", "begun"], ["train", "kuhn-dream", "--run-dir", "begun"]):
        wiring.error = KeyboardInterrupt()
        told = run(*command)[2].splitlines()[-1]
        assert told == "interrupted; the run goes on from its last commit: dream resume begun"


@pytest.mark.parametrize(
    ("number", "unhandled"), [(signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)]
)
def test_an_interrupt_that_a_library_turned_into_another_error_is_one(
    run: Run, wiring: FakeWiring, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, unhandled: Any
) -> None:
    def describe(name: str) -> dict[str, Any]:
        try:
            signal.raise_signal(number)
        except KeyboardInterrupt:
            raise ImportError("cannot load module more than once per process") from None
        raise AssertionError("no interrupt")

    monkeypatch.setattr(wiring, "describe_game", describe)
    # A process that a shell started in the background inherits SIGINT ignored.
    before = signal.signal(number, unhandled)
    try:
        status, out, err = run("games", "leduc")
        assert (status, out, err) == (130, "", "interrupted\n")
        assert signal.getsignal(number) is unhandled
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize("arguments", [["presets"], ["config", "leduc-dream"], ["presets", "--json"]])
def test_a_reader_that_leaves_early_is_no_error(arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "dream.cli", *arguments]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


def test_a_fault_of_ours_is_not_hidden(wiring: FakeWiring) -> None:
    wiring.error = ZeroDivisionError("a bug")
    with pytest.raises(ZeroDivisionError):
        cli.main(["resume", "here"])


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["trian"], "Did you mean 'train'"),
        (["train", "kuhn-dream", "--jsn"], "--json"),
        (["train", "kuhn-draem"], "did you mean 'kuhn-dream'"),
        (["train", "kuhn-dream", "iteratons=3"], "did you mean 'iterations'"),
        (["train", "kuhn-dream", "--runtime", "ray", "sampling.chance=weyl"], "use runtime.kind=local"),
        (["train", "kuhn-dream", "--runtime", "local", "--address", "auto"], "use runtime.kind=ray"),
        (["train", "kuhn-dream", "--resume"], "--run-dir DIR"),
        (["train", "kuhn-dream", "--runtime", "locl"], "did you mean 'local'"),
        (["train", "kuhn-dream", "--run-dir", "s33://bucket/run"], "did you mean s3://bucket/run"),
        (["eval", "here", "--by", "exploitabilty"], "did you mean 'exploitability'"),
        (["eval", "here", "--average", "banc"], "did you mean 'bank'"),
        (["eval", "here", "--iterations", "1,x"], "neither 'all' nor numbers"),
        (["eval", "here", "--iterations", "0"], "count from 1"),
        (["eval", "here", "--iterations", "all"], "no run at here"),
        (["train", "kuhn-dream", "--run-dir", ""], "'' names no run folder"),
        (["train", "kuhn-dream", "--run-dir", "~no-such-user/run"], "no such user"),
        (["resume", ""], "'' names no run folder"),
        (["eval", ""], "'' names no run folder"),
        (["inspect", "here", "--iteration", "3"], "--iteration goes with --state"),
        (["inspect", "here"], "no run at here"),
        (["plot", "here", "--x", "state"], "did you mean 'states'"),
        (["plot", "here", "-o", "curve.doc"], ".png"),
        (["plot", "here"], "no run at here"),
    ],
)
def test_bad_usage_is_2_with_the_remedy(run: Run, wiring: FakeWiring, arguments: list[str], part: str) -> None:
    status, out, err = run(*arguments)
    assert (status, out) == (2, "")
    assert part in err
    assert wiring.calls == []


def test_eval_reports_the_last_and_all(run: Run, wiring: FakeWiring) -> None:
    status, out, _ = run("eval", "here", "--iterations", "5,2", "--average", "network", "--json")
    document = json.loads(out)
    assert (status, document["iteration"]) == (0, 5)
    assert [each["iteration"] for each in document["evaluations"]] == [2, 5]
    assert wiring.calls == [("evaluate", (Path("here"), [2, 5], "network"))]


def test_config_prints_yaml_that_train_takes(run: Run, wiring: FakeWiring, tmp_path: Path) -> None:
    status, out, _ = run("config", "leduc-dream", "seed=5", "--sizes")
    (tmp_path / "mine.yaml").write_text(out)
    assert status == 0
    assert "# advantage buffer  1,234,567" in out
    assert dream.load(tmp_path / "mine.yaml") == dream.load("leduc-dream", ["seed=5"])
    assert json.loads(run("config", "leduc-dream", "--json")[1])["game"] == "leduc"


def test_lists_are_json_too(run: Run, wiring: FakeWiring) -> None:
    listed = json.loads(run("presets", "--json")[1])
    assert {"leduc-dream", "kuhn-deep-cfr-paper"} <= {each["preset"] for each in listed}
    units = {each["game"]: each["unit"] for each in json.loads(run("games", "--json")[1])}
    assert (units["leduc"], units["fhp"]) == ("mA/g", "mbb/g")
    assert json.loads(run("games", "leduc", "--json")[1]) == {"game": "leduc", "actions": 3}
    assert "leduc" in run("games")[1]


@pytest.mark.parametrize("command", ["train", "resume", "eval", "inspect", "plot", "games", "config"])
def test_help_shows_an_example(run: Run, command: str) -> None:
    status, out, _ = run(command, "--help")
    assert status == 0
    assert f"\n    dream {command} " in out


def test_api_takes_nested_changes_and_ready_configurations(wiring: FakeWiring) -> None:
    api.train("kuhn-dream-quick", run_dir="a", sampling={"traversals": 3}, seed=8)
    api.train(dream.load("kuhn-dream"), run_dir="b", overrides=["seed=2"], progress=False)
    (_, (first, _, _)), (_, (second, _, _)) = wiring.calls
    assert (first.sampling.traversals, first.sampling.epsilon, first.seed) == (3, 0.5, 8)
    assert second.seed == 2


def test_a_home_folder_is_found(wiring: FakeWiring, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    api.train("kuhn-dream-quick", run_dir="~/a")
    api.resume(Path("~/a"))
    api.evaluate("~/a")
    assert [call[1][1] if call[0] == "train" else call[1][0] for call in wiring.calls] == [tmp_path / "a"] * 3


@pytest.mark.parametrize("what", [None, {"game": "kuhn"}, 7])
def test_what_is_no_configuration_or_folder_is_refused(wiring: FakeWiring, what: Any) -> None:
    with pytest.raises(dream.ConfigError, match=r"name of a preset, the path of a YAML file or a RunConfig"):
        api.train(what)
    with pytest.raises(dream.UsageError, match="names no run folder"):
        api.resume(what)
    with pytest.raises(dream.ConfigError, match="overrides must be a list"):
        api.train("kuhn-dream", overrides="seed=3")
    with pytest.raises(dream.ConfigError, match=r"nested here: sampling: \{traversals: \.\.\.\}"):
        api.train("kuhn-dream", **{"sampling.traversals": 1})
    assert wiring.calls == []


def test_every_public_name_is_there_and_every_error_is_one() -> None:
    for name in dream.__all__:
        assert getattr(dream, name).__name__ == name
    errors = [getattr(dream, name) for name in dream.__all__ if name.endswith("Error")]
    assert [each.__name__ for each in errors if not issubclass(each, dream.DreamError)] == ["GameError"]
    usage = (Path(__file__).parents[3] / "docs" / "usage.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`(?:dream\.)?([A-Z]\w+Error)`", usage)) - {"ValueError"} == {
        each.__name__ for each in errors
    }


def test_a_result_without_evaluations_says_so() -> None:
    result = Result(Path("here"), 4, 40, 1.0)
    assert (result.exploitability_milli, result.unit, result.last) == (None, None, None)
    assert result.as_json()["iteration"] == 4
    assert result.as_json()["exploitability_chips"] is None


@pytest.mark.parametrize("module", ["dream", "dream.cli"])
def test_importing_loads_nothing_heavy(module: str) -> None:
    code = (
        f"import sys, {module}\n"
        "heavy = {'torch', 'ray', 'pyspiel', 'matplotlib', 'tensorboard', 'numpy'} & set(sys.modules)\n"
        "sys.exit(', '.join(sorted(heavy)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
