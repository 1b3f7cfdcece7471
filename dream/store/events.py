"""Where TensorBoard's event files are written, and how they get to the run.

Event files grow by appending, so they are written on this machine. A local run's lie in the run; one on object
storage gets copies, put whole before each commit and at the end. What a kill loses came after the last commit, and a
resume writes those points again.
"""

import tempfile
from functools import cached_property
from pathlib import Path

from dream.store.places import Location, at


class EventFiles:
    """The event files of a run, `path/<axis>/<file>`. One writer."""

    def __init__(self, path: Location) -> None:
        self.path = path
        self._published: dict[Path, int] = {}

    @cached_property
    def folder(self) -> Path:
        """The folder of this machine in which they are written: their own, or a temporary one."""
        return self.path if isinstance(self.path, Path) else Path(self._temporary.name)

    def names(self) -> list[str]:
        """Names of all event files that the run has."""
        axes = [self.path / axis for axis in at(self.path).names()]
        return [name for axis in axes if at(axis).is_folder() for name in at(axis).names()]

    def publish(self) -> None:
        """Puts the files that have grown to where the run lies. Raises OSError."""
        if isinstance(self.path, Path):
            return
        grown = [
            (file, size)
            for file in sorted(self.folder.glob("*/*"))
            if (size := file.stat().st_size) != self._published.get(file)
        ]
        at(self.path).each(self._put, [file for file, _ in grown])
        self._published.update(grown)

    def _put(self, file: Path) -> int:
        return at(self.path / file.parent.name / file.name).write([file.read_bytes()])

    @cached_property
    def _temporary(self) -> "tempfile.TemporaryDirectory[str]":
        return tempfile.TemporaryDirectory(prefix="dream-tensorboard-")

    def close(self) -> None:
        """Publishes, and removes the temporary folder; the files are closed."""
        try:
            self.publish()
        finally:
            if "_temporary" in self.__dict__:
                self._temporary.cleanup()
                del self.__dict__["_temporary"], self.__dict__["folder"]
