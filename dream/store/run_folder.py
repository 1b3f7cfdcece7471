"""The folder of a run.

    RUN/
      config.yaml            the resolved configuration; a folder is a run if and only if it holds this
      metrics.jsonl          one object per iteration
      lock                   held by the process that trains the run
      iterations/<kind>/     every iteration's networks (iterations.py)
      checkpoints/           commits: what is needed to go on (checkpoint.py)
      tensorboard/           event files

Order of writes in an iteration that commits, so that a kill at any moment leaves a run that can go on:
1. the iteration's networks (`networks.put_segment`), 2. its metrics record (`metrics.append`, then `sync`),
3. the commit (`checkpoints.commit`), 4. pruning of older commits. Networks and metrics may thus be ahead of
the newest commit, never behind it; a resume cuts them back to the commit (`truncate_after`).
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from dream.store import atomic
from dream.store.checkpoint import CheckpointStore
from dream.store.errors import RunFolderError
from dream.store.iterations import NetworkStore
from dream.store.metrics import MetricsLog

_CONFIG = "config.yaml"
_LOCK = "lock"
_held: set[int] = set()  # descriptors of held locks: a forked child closes its copies


class RunFolder:
    """A run on disk. Made by `create` or `open`; reading needs no lock, writing happens inside `lock()`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: str | Path, config_text: str) -> "RunFolder":
        """A new run in a folder that is empty or not there yet. Raises RunFolderError for any other."""
        run = cls(Path(path))
        if run.path.exists() and not run.path.is_dir():
            raise RunFolderError(f"{path} is a file, not a folder: choose another one with --run-dir")
        try:
            run._refuse_content()
            atomic.make_folder(run.path)
        except OSError as error:
            raise RunFolderError(f"cannot make the folder {path}: {error.strerror}") from error
        with run.lock():  # two runs created at once: the second finds the first's config.yaml
            run._refuse_content()
            run.write_config(config_text)
        return run

    @classmethod
    def open(cls, path: str | Path) -> "RunFolder":
        """An existing run. Raises RunFolderError, naming what is missing, where there is none."""
        run = cls(Path(path))
        if not run.path.is_dir():
            raise RunFolderError(f"there is no run at {path}: no such folder")
        if not (run.path / _CONFIG).is_file():
            raise RunFolderError(f"{path} is not a run folder: {_CONFIG} is missing")
        return run

    @staticmethod
    def holds_run(path: str | Path) -> bool:
        """Whether there is a run at `path`."""
        return (Path(path) / _CONFIG).is_file()

    @property
    def config_text(self) -> str:
        """The resolved configuration, YAML."""
        return (self.path / _CONFIG).read_text(encoding="utf-8")

    def write_config(self, text: str) -> None:
        """Replaces config.yaml atomically (a resume that changes settings)."""
        atomic.write_atomic(self.path / _CONFIG, [text.encode()])

    @cached_property
    def metrics(self) -> MetricsLog:
        """metrics.jsonl."""
        return MetricsLog(self.path / "metrics.jsonl")

    @cached_property
    def networks(self) -> NetworkStore:
        """Every iteration's networks."""
        return NetworkStore(self.path / "iterations")

    @cached_property
    def checkpoints(self) -> CheckpointStore:
        """The commits."""
        return CheckpointStore(self.path / "checkpoints")

    @property
    def board_folder(self) -> Path:
        """Where TensorBoard's event files lie."""
        return self.path / "tensorboard"

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Holds the run for writing, until the block ends or the process dies.

        Raises RunFolderError naming the process that holds it. Removes leftovers of killed writers.
        """
        descriptor = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            self._seize(descriptor)
            _held.add(descriptor)
            os.truncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
            atomic.remove_leftovers(self.path)
            yield
        finally:
            _held.discard(descriptor)
            os.close(descriptor)

    def _seize(self, descriptor: int) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
            raise RunFolderError(
                f"{self.path} is being trained by process {holder}: wait until it ends, or stop it first"
            ) from None

    def _refuse_content(self) -> None:
        found = [name for name in atomic.names(self.path) if name != _LOCK]
        if _CONFIG in found:
            raise RunFolderError(
                f"{self.path} already holds a run: go on with it by `dream resume {self.path}`, "
                "or choose another folder with --run-dir"
            )
        if found:
            raise RunFolderError(
                f"{self.path} is not empty (it holds {found[0]}): choose another folder with --run-dir"
            )


def _forget_locks() -> None:
    for descriptor in _held:
        with contextlib.suppress(OSError):
            os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_forget_locks)
