"""The loop and the run, against fakes that write down what is asked of them."""

import os
import signal
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from buffers.frames import decode, encode
from dream.config import load
from dream.identity import SETTLED, identity
from dream.methods import METHODS
from dream.training import cfr
from dream.training.clerk import AtOnce, Beside, Clerk
from dream.training.interrupt import Interrupt, listening
from dream.training.run import Run


class World:
    """Bank, runtime, store and recorder in one; `calls` holds what was done, in order."""

    def __init__(self, stop_in: int | None = None) -> None:
        self.calls: list[Any] = []
        self.states = 0
        self.interrupt = Interrupt(lambda text: self.calls.append(("told", text)))
        self._stop_in = stop_in
        self.clerk: Clerk = AtOnce()
        self.networks = SimpleNamespace(
            put_segment=lambda kind, first, entries: self.calls.append(("networks", kind, first, len(entries)))
        )
        self.checkpoints = SimpleNamespace(
            commit=lambda t, parts, meta: self.calls.append(("commit", t, sorted(parts), set(meta) - SETTLED)),
            prune=lambda keep: self.calls.append(("prune", keep)),
        )

    # the bank
    def profile(self) -> str:
        return "profile"

    def weigh(self, iteration: int) -> None:
        self.calls.append(("weigh", iteration))

    def append(self, player: int, parameters: Any) -> None:
        self.calls.append(("append", player))

    def snapshot(self) -> dict[str, Any]:
        return {}

    def begin_snapshot(self) -> Any:
        return dict

    # the runtime
    def sample(self, iteration: int, traversers: Any, profile: Any) -> None:
        assert profile == "profile"
        for traverser in traversers:
            self.states += 10
            self.calls.append(("sample", iteration, traverser))
        if iteration == self._stop_in:
            self.interrupt.handle(signal.SIGTERM, None)

    def fit_advantages(self, iteration: int, players: Any) -> list[Any]:
        self.calls.append(("fit", iteration, tuple(players)))
        return [{} for _ in players]

    def fit_baseline(self, iteration: int, profile: Any) -> None:
        self.calls.append(("baseline", iteration))

    def take_metrics(self) -> dict[str, float]:
        return {"loss/advantage_0": 1.0}

    # the recorder
    def record(self, report: Any) -> None:
        self.calls.append(("record", report.iteration, report.states, report.evaluation is not None))

    def flush(self) -> None:
        self.calls.append(("flush",))

    def evaluate(self, iteration: int) -> Any:
        self.calls.append(("evaluate", iteration))
        keys = ("nash_conv_chips", "exploitability_chips", "exploitability_milli")
        return lambda: (dict.fromkeys(keys, 0.0) | {"unit": "mA/g", "average": "bank"}, {"loss/average_0": 2.0})

    def run(self, *overrides: str) -> Run:
        config = load("kuhn-dream-quick", overrides)
        parts: Any = self
        return Run(config, "f00d", parts, parts, parts, parts, self.interrupt, self.evaluate, self.clerk)

    def of(self, *kinds: str) -> list[Any]:
        return [call for call in self.calls if call[0] in kinds]


def train(world: World, run: Run, algorithm: str = "dream", updates: Any = cfr.ALTERNATING) -> None:
    runtime: Any = world
    cfr.train(run, runtime, METHODS[algorithm], updates)


def test_alternating_updates_let_the_second_player_meet_the_first_ones_new_strategy() -> None:
    world = World()
    train(world, world.run("iterations=1", "evaluation.every=1", "checkpoint.every=1", "checkpoint.keep=3"))
    assert world.calls == [
        ("weigh", 1),  # sigma^1 enters the average before anything is learnt
        ("sample", 1, 0),
        ("fit", 1, (0,)),
        ("append", 0),
        ("sample", 1, 1),
        ("fit", 1, (1,)),
        ("append", 1),
        ("baseline", 1),  # once, after both players
        ("evaluate", 1),
        ("record", 1, 20, True),
        ("networks", "advantage_0", 1, 1),  # networks and metrics before the commit that needs them
        ("networks", "advantage_1", 1, 1),
        ("flush",),
        ("commit", 1, ["bank"], {"fingerprint", "seconds"}),
        ("prune", 3),
    ]


def test_simultaneous_updates_sample_for_both_players_before_either_learns() -> None:
    world = World()
    train(world, world.run("iterations=1", "checkpoint.every=1"), "sd-cfr", cfr.SIMULTANEOUS)
    order = [("sample", 1, 0), ("sample", 1, 1), ("fit", 1, (0, 1)), ("append", 0), ("append", 1)]
    assert world.of("sample", "fit", "append", "baseline") == order


def test_commits_and_evaluations_are_due_when_configured_and_at_the_end() -> None:
    world = World()
    run = world.run("iterations=5", "evaluation.every=2", "checkpoint.every=3")
    train(world, run)
    assert [call[1] for call in world.of("evaluate")] == [2, 4, 5]
    assert [call[1] for call in world.of("commit")] == [3, 5]
    assert [call[1:] for call in world.of("networks")][::2] == [("advantage_0", 1, 3), ("advantage_0", 4, 2)]
    assert (run.done, run.interrupted) == (5, False)


def test_nothing_is_committed_twice() -> None:
    world = World()
    train(world, world.run("iterations=4", "checkpoint.every=2"))
    assert [call[1] for call in world.of("commit")] == [2, 4]


def test_an_interrupted_run_finishes_the_iteration_and_commits() -> None:
    world = World(stop_in=2)
    run = world.run("iterations=5", "checkpoint.every=100", "evaluation.every=0")
    with pytest.raises(KeyboardInterrupt):  # both samples of iteration 2 handle a signal: the second stops at once
        train(world, run)
    assert world.of("commit") == []

    world = World()
    run = world.run("iterations=5", "checkpoint.every=100", "evaluation.every=0")
    iterations = run.iterations()
    assert next(iterations) == 1
    run.finish(1)
    world.interrupt.handle(signal.SIGTERM, None)
    assert list(iterations) == []
    assert (run.done, run.interrupted) == (1, True)
    assert [call[1] for call in world.of("commit")] == [1]
    assert "SIGTERM: finishing the iteration" in world.of("told")[0][1]


def test_a_stop_in_the_last_iteration_is_no_interruption() -> None:
    world = World()
    run = world.run("iterations=1", "checkpoint.every=100")
    for t in run.iterations():
        world.interrupt.handle(signal.SIGINT, None)
        run.finish(t)
    assert not run.interrupted
    assert [call[1] for call in world.of("commit")] == [1]


@pytest.fixture
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    assert {number: signal.getsignal(number) for number in before} == before, "handlers are put back"


def test_signals_are_heard_inside_the_block_only(handlers: None) -> None:
    told: list[str] = []
    with listening(told.append) as interrupt:
        os.kill(os.getpid(), signal.SIGTERM)
        assert interrupt.requested
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert len(told) == 1


def test_other_threads_train_without_handlers(handlers: None) -> None:
    heard: list[Any] = []

    def train_there() -> None:
        with listening(heard.append) as interrupt:
            heard.append(interrupt.requested)

    thread = threading.Thread(target=train_there)
    thread.start()
    thread.join()
    assert heard == [False]


def test_a_commit_says_whose_it_is() -> None:
    config = load("kuhn-dream-quick", ["seed=5"])
    said = identity(config, "f00d")
    assert set(said) == SETTLED | {"fingerprint"}
    assert (said["game"], said["seed"], said["fingerprint"]) == ("kuhn", 5, "f00d")
    assert said["advantage.network.hidden"] == [64, 64, 64]
    assert decode(b"".join(bytes(chunk) for chunk in encode(said))) == said, "a frame holds it"


def test_beside_training_everything_is_done_in_the_same_order() -> None:
    """What is told to the store and the recorder does not depend on who carries it out."""
    told = []
    for clerk in (AtOnce(), Beside()):
        world = World()
        world.clerk = clerk
        train(world, world.run("iterations=6", "evaluation.every=2", "checkpoint.every=3"))
        clerk.close()
        told.append(world.of("record", "networks", "flush", "commit", "prune"))
    assert told[0] == told[1]


def test_training_goes_on_while_a_commit_is_written_and_waits_before_the_next() -> None:
    world = World()
    world.clerk = Beside()
    trained, first = threading.Event(), world.checkpoints.commit

    def commit(t: int, parts: Any, meta: Any) -> None:
        if t == 2:
            assert trained.wait(20), "iteration 3 was not trained beside the commit of iteration 2"
        first(t, parts, meta)

    def sample(iteration: int, traversers: Any, profile: Any) -> None:
        World.sample(world, iteration, traversers, profile)
        if iteration == 3:
            trained.set()

    world.checkpoints.commit, world.sample = commit, sample  # type: ignore[method-assign]
    train(world, world.run("iterations=4", "checkpoint.every=2"))
    order = [call[:2] for call in world.of("sample", "commit")]
    assert order.index(("sample", 3)) < order.index(("commit", 2)) < order.index(("commit", 4))


def test_a_failure_beside_training_reaches_the_run_and_nothing_behind_it_is_done() -> None:
    world = World()
    world.clerk = Beside()

    def full(t: int, parts: Any, meta: Any) -> None:
        raise OSError(28, "No space left on device")

    world.checkpoints.commit = full
    with pytest.raises(OSError, match="No space left"):
        train(world, world.run("iterations=9", "checkpoint.every=2"))
    world.clerk.close()
    assert not world.of("prune")
    assert max(call[1] for call in world.of("record")) <= 2
