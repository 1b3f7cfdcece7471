"""Ray on this machine: several nodes of a cluster of our own, and runs of the command on it, watched and killed.

Ports are free ones and the folder is our own, so that no other Ray on the machine is touched.
"""

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from oracles.tiny_runs import command, environment

STORE_BYTES = 100 * 2**20
_ALIVE = "ALIVE"


@contextlib.contextmanager
def own_folder() -> Iterator[Path]:
    """Ray's files go to a folder of our own (a short path: sockets lie there); no address or token leaks in or out.

    Whatever was started meanwhile knows the folder by its environment, and is ended.
    """
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        changed = {"RAY_TMPDIR": folder, "RAY_ADDRESS": None, "RAY_NAMESPACE": None, "RAY_AUTH_MODE": "disabled"}
        before = {name: os.environ.get(name) for name in changed}
        try:
            _set(changed)
            yield Path(folder)
        finally:
            _set(before)
            for process in processes(folder):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)


def _set(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


class Nodes:
    """A head without CPUs and as many nodes as are added. `close` ends their processes."""

    def __init__(self, store_bytes: int = STORE_BYTES) -> None:
        from ray.cluster_utils import Cluster

        self._cluster = Cluster()
        self._store_bytes = store_bytes
        quick = {"health_check_period_ms": 1000, "health_check_failure_threshold": 10}
        self.add(0, include_dashboard=False, include_log_monitor=False, _system_config=quick)

    @property
    def address(self) -> str:
        return str(self._cluster.address)

    def add(self, cpus: int, **settings: Any) -> str:
        """The id of a new node."""
        settings = {"object_store_memory": self._store_bytes, **settings}
        return str(self._cluster.add_node(num_cpus=cpus, **settings).node_id)

    def grow_to(self, count: int) -> None:
        """Adds nodes of two CPUs until there are `count` besides the head."""
        while len(self.removable) < count:
            self.add(2)

    @property
    def removable(self) -> list[str]:
        """The ids of all nodes but the head."""
        return [node.node_id for node in self._cluster.worker_nodes]

    def remove(self, node_id: str) -> None:
        """As a machine that loses its power."""
        (node,) = (node for node in self._cluster.worker_nodes if node.node_id == node_id)
        self._cluster.remove_node(node, allow_graceful=False)

    def actors(self) -> dict[str, tuple[int, str]]:
        """The living parts of all runs: process and node by the part's name."""
        found = {}
        for actor in self._cluster.global_state.actor_table(None).values():
            if actor["State"] == _ALIVE:
                found[actor["Name"].rpartition(".")[0]] = (int(actor["Pid"]), str(actor["Address"]["NodeID"]))
        return found

    def unfinished(self) -> list[str]:
        """Parts that are alive or wait to be."""
        table = self._cluster.global_state.actor_table(None).values()
        return [actor["Name"] for actor in table if actor["State"] != "DEAD"]

    def close(self) -> None:
        self._cluster.shutdown()


class Driver:
    """`dream ARGUMENTS` in a process of its own, whose messages go to a file."""

    def __init__(self, log: Path, *arguments: str | Path) -> None:
        self._log = log
        with log.open("ab") as file:
            self.process = subprocess.Popen(
                command(*arguments), stdout=file, stderr=file, env=environment(), start_new_session=True
            )

    @property
    def said(self) -> str:
        return self._log.read_text()

    def wait(self, seconds: float) -> int:
        """The exit status. AssertionError, with what the process said, when it does not come."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"not over after {seconds:g} s:\n{self.said}") from None

    def stop(self, seconds: float) -> None:
        """SIGTERM: the run commits and ends. AssertionError when it does not."""
        self.process.send_signal(signal.SIGTERM)
        assert self.wait(seconds) == 130, self.said

    def until(self, what: Callable[[], Any], seconds: float) -> Any:
        """What `what()` returns once it is true. AssertionError when the process ends before, or after `seconds`."""

        def ready() -> Any:
            if value := what():
                return value
            assert self.process.poll() is None, f"ended with {self.process.returncode}:\n{self.said}"
            return None

        return until(ready, seconds, lambda: self.said)

    def kill(self) -> None:
        """SIGKILL for it and what it started; fine when it is over."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def until(what: Callable[[], Any], seconds: float, said: Callable[[], str] = str) -> Any:
    """What `what()` returns once it is true; AssertionError after `seconds`."""
    deadline = time.monotonic() + seconds
    while not (value := what()):
        assert time.monotonic() < deadline, f"nothing after {seconds:g} s\n{said()}"
        time.sleep(0.02)
    return value


def iterations(folder: Path) -> int:
    """How far a run that goes on has come, by the lines of its metrics."""
    path = folder / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def processes(folder: Path | str) -> list[int]:
    """All that were started while Ray's folder was `folder`, daemons included."""
    mark, found = f"RAY_TMPDIR={folder}\0".encode(), []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if mark in path.read_bytes():
                found.append(int(path.parent.name))
    return found


def gone(process: int) -> bool:
    """Whether a process has ended; one that nobody has waited for yet has."""
    try:
        return "\nState:\tZ" in Path(f"/proc/{process}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
