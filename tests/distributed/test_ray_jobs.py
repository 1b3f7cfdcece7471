"""A training job sent to a cluster by `ray job submit`: it runs, is stopped, and goes on by the same command."""

import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from oracles.ray_nodes import STORE_BYTES, iterations, own_folder, until
from oracles.tiny_runs import ENDLESS, RESERVOIR, assert_same_in_one_process, environment

from dream.store import RunFolder

RUN = ["kuhn-os-sd-cfr-quick", *RESERVOIR, "sampling.chunk=16", "runtime.workers=2", ENDLESS]
SECONDS = 240
BIN = Path(sys.executable).parent


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


class Head:
    """`ray start --head` with a job server."""

    def __init__(self, log: Path) -> None:
        dashboard, client, agent = free_ports(3)
        self.address = f"http://127.0.0.1:{dashboard}"
        self.log = log
        self._environment = environment() | {
            "RAY_JOB_STOP_WAIT_TIME_S": "200",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "PATH": f"{BIN}:{os.environ['PATH']}",
        }
        ports = {"port": 0, "dashboard-port": dashboard, "ray-client-server-port": client}
        ports |= {"dashboard-agent-listen-port": agent, "num-cpus": 2, "object-store-memory": STORE_BYTES}
        arguments = [f"--{name}={value}" for name, value in ports.items()]
        with log.open("wb") as file:
            self._process = subprocess.Popen(
                [BIN / "ray", "start", "--head", "--block", "--disable-usage-stats", *arguments],
                stdout=file,
                stderr=file,
                env=self._environment,
            )

    def ready(self) -> bool:
        assert self._process.poll() is None, self.log.read_text()
        return self.job("list", check=False).returncode == 0

    def job(self, verb: str, *arguments: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
        """`ray job VERB`."""
        command = [str(BIN / "ray"), "job", verb, "--address", self.address, *arguments]
        done = subprocess.run(command, env=self._environment, text=True, capture_output=True, timeout=SECONDS)
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done

    def status(self, job: str) -> str:
        return self.job("status", job).stdout

    def close(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@pytest.fixture
def head(tmp_path: Path) -> Iterator[Head]:
    with own_folder():  # ends what is left
        head = Head(tmp_path / "head.log")
        try:
            until(head.ready, SECONDS, head.log.read_text)
            yield head
        finally:
            head.close()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_job_is_stopped_with_a_commit_and_goes_on_by_the_same_command(head: Head, tmp_path: Path) -> None:
    run = tmp_path / "run"
    submit = ["dream", "train", *RUN, "--run-dir", str(run), "--resume"]  # a job's cluster is found by itself
    head.job("submit", "--submission-id", "first", "--no-wait", "--", *submit)
    until(lambda: iterations(run) >= 3, SECONDS, lambda: head.job("logs", "first").stdout)
    head.job("stop", "first")
    assert "'first' was stopped" in head.status("first")
    logs = head.job("logs", "first").stdout
    assert "SIGTERM: finishing the iteration, then committing" in logs
    assert "interrupted and committed" in logs
    done = RunFolder.open(run).checkpoints.load_newest().iteration
    assert 3 <= done == iterations(run)

    head.job("submit", "--submission-id", "second", "--no-wait", "--", *submit)
    until(lambda: iterations(run) > done, SECONDS, lambda: head.job("logs", "second").stdout)
    head.job("stop", "second")
    done = RunFolder.open(run).checkpoints.load_newest().iteration
    last = [*submit, f"iterations={done + 2}"]
    head.job("submit", "--submission-id", "last", "--", *last)  # waits for its end
    assert "'last' succeeded" in head.status("last")
    assert RunFolder.open(run).checkpoints.load_newest().iteration == done + 2
    assert_same_in_one_process(run, RUN, tmp_path / "whole")
