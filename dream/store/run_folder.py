"""The folder of a run: a path, or the URL of object storage (places.py).

    RUN/
      config.yaml            the resolved configuration; a folder is a run if and only if it holds this
      metrics.jsonl          one object per iteration
      lock                   held by the process that trains the run (flock.py; lease.py on object storage)
      iterations/<kind>/     every iteration's networks (iterations.py)
      checkpoints/           commits: what is needed to go on (checkpoint.py)
      tensorboard/           event files

Order of writes in an iteration that commits, so that a kill at any moment leaves a run that can go on:
1. the iteration's networks (`networks.put_segment`), 2. its metrics record (`metrics.append`, then `sync`),
3. the commit (`checkpoints.commit`), 4. pruning of older commits. Networks and metrics may thus be ahead of
the newest commit, never behind it; a resume cuts them back to the commit (`truncate_after`).
"""

import contextlib
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from dream import config as configuration
from dream.config import RunConfig
from dream.errors import ConfigError
from dream.store.checkpoint import CheckpointStore
from dream.store.errors import RunFolderError, StorageError
from dream.store.events import EventFiles
from dream.store.iterations import NetworkStore
from dream.store.metrics import MetricsLog
from dream.store.places import Location, Warn, at, locate

_CONFIG = "config.yaml"
_LOCK = "lock"


def _unheard(_: str) -> None:
    """Where nobody listens."""


class RunFolder:
    """A stored run. Made by `create` or `open`; reading needs no lock, writing happens inside `lock()`."""

    def __init__(self, path: Location) -> None:
        self.path = path

    @classmethod
    def create(cls, path: str | Location, config_text: str, warn: Warn = _unheard) -> "RunFolder":
        """A new run in a folder that is empty or not there yet. Raises RunFolderError for any other.

        `warn` is that of `lock`.
        """
        run = cls(locate(path))
        try:
            if at(run.path).is_file():
                raise RunFolderError(f"{path} is a file, not a folder: choose another one with --run-dir")
            run._refuse_content()
            at(run.path).make()
        except OSError as error:
            raise RunFolderError(f"cannot make the folder {path}: {error.strerror}") from error
        with run.lock(warn):  # two runs created at once: the second finds the first's config.yaml
            run._refuse_content()
            run.write_config(config_text)
        return run

    @classmethod
    def open(cls, path: str | Location) -> "RunFolder":
        """An existing run. Raises RunFolderError, naming what is missing, where there is none."""
        run = cls(locate(path))
        try:
            if not at(run.path).is_folder():
                raise RunFolderError(f"there is no run at {path}: no such folder")
            if not at(run.path / _CONFIG).is_file():
                raise RunFolderError(f"{path} is not a run folder: {_CONFIG} is missing")
        except OSError as error:
            raise RunFolderError(f"cannot read {path}: {error.strerror}") from error
        return run

    @staticmethod
    def holds_run(path: str | Location) -> bool:
        """Whether there is a run at `path`."""
        try:
            return at(locate(path) / _CONFIG).is_file()
        except OSError as error:
            raise RunFolderError(f"cannot read {path}: {error.strerror}") from error

    @property
    def name(self) -> str:
        """The last part of its path or URL."""
        return self.path.resolve().name if isinstance(self.path, Path) else self.path.name

    @property
    def config_text(self) -> str:
        """The resolved configuration, YAML."""
        return at(self.path / _CONFIG).read().decode()

    def config(self) -> RunConfig:
        """The resolved configuration. Raises ConfigError for one that cannot be read or is none."""
        source = str(self.path / _CONFIG)
        try:
            text = self.config_text
        except StorageError:
            raise
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read {source}: {error}") from None
        return configuration.load_text(text, source)

    def write_config(self, text: str) -> None:
        """Replaces config.yaml atomically (a resume that changes settings)."""
        at(self.path / _CONFIG).write([text.encode()])

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

    @cached_property
    def events(self) -> EventFiles:
        """TensorBoard's event files."""
        return EventFiles(self.path / "tensorboard")

    @property
    def board_folder(self) -> Path:
        """The folder of this machine in which TensorBoard's event files are written."""
        return self.events.folder

    def sizes(self) -> dict[str, int]:
        """Bytes of each entry of the folder, and of all together as `total`."""
        sizes = at(self.path).sizes()
        return {**sizes, "total": sum(sizes.values())}

    @contextlib.contextmanager
    def lock(self, warn: Warn = _unheard) -> Iterator[None]:
        """Holds the run for writing, until the block ends or the process dies.

        Raises RunFolderError naming the process that holds it. Removes leftovers of killed writers. On object
        storage `warn` is told of a lock that is waited for or taken over, and whatever is written inside the block
        raises RunFolderError once another process has taken the lock over.
        """
        with contextlib.ExitStack() as held:
            try:
                held.enter_context(at(self.path).lock(_LOCK, warn))
                at(self.path).clean()
            except OSError as error:
                raise RunFolderError(f"cannot lock {self.path}: {error.strerror}") from error
            yield

    def _refuse_content(self) -> None:
        found = [name for name in at(self.path).names() if name != _LOCK]
        if _CONFIG in found:
            raise RunFolderError(
                f"{self.path} already holds a run: go on with it by `dream resume {self.path}`, "
                "or choose another folder with --run-dir"
            )
        if found:
            raise RunFolderError(
                f"{self.path} is not empty (it holds {found[0]}): choose another folder with --run-dir"
            )
