"""Every iteration's networks, kept for ever.

    <root>/<kind>/00000001-00000010.frame

A *kind* is one sequence of networks (`advantage_0`, `baseline`, `average_1`). Its iterations lie in segments
that follow each other without a gap. A segment stores each parameter once, stacked over its iterations, so
that many iterations are read as few large arrays.

Order of writes, so that a kill at any moment leaves a consistent store:
- A segment appears whole (atomic rename) and only directly behind the newest one. It is written before the
  commit that relies on it, so the store may be ahead of the newest commit and is never behind it.
- A resume first calls `truncate_after(kind, t)` with the commit's iteration t. It rewrites the segment that
  straddles t under its shorter name first and then deletes from the newest segment to the oldest. After a
  kill in between, the shorter segment is covered by the longer one, which still counts; the next resume
  truncates again.
- Since networks are cut back to the commit that a resume uses, a commit newer than the networks is no longer
  usable: `checkpoints.load_newest(before=min(newest(kind) for all kinds) + 1)` never picks such a one.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dream.store.errors import NetworkStoreError, StorageError
from dream.store.frame_files import FrameError, read_frame, write_frame
from dream.store.places import Location, at

Parameters = dict[str, NDArray[Any]]

ADVANTAGES = ("advantage_0", "advantage_1")  # the kinds that every run stores

_SEGMENT = re.compile(r"(\d{8})-(\d{8})\.frame")
_PREFIX = "parameter:"
_KIND = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True, order=True)
class Segment:
    """The iterations `first` to `last`, both included, of one kind."""

    first: int
    last: int

    @property
    def name(self) -> str:
        """File name."""
        return f"{self.first:08d}-{self.last:08d}.frame"


class NetworkStore:
    """Networks of every iteration under one folder; one writer, any number of readers."""

    def __init__(self, path: Location) -> None:
        self.path = path

    def put_segment(self, kind: str, first: int, entries: Sequence[Parameters]) -> None:
        """Stores the parameters of iterations `first`, `first` + 1, ...

        All entries have the same names, shapes and dtypes. Raises NetworkStoreError where they do not, where
        `first` does not directly follow the newest stored iteration, or where the disk does not take them.
        """
        folder = self._folder(kind)
        newest = self.newest(kind)
        if newest is not None and first != newest + 1:
            raise NetworkStoreError(
                f"{folder} ends at iteration {newest}: the next segment begins at {newest + 1}, not {first} "
                "(a resume calls truncate_after first)"
            )
        segment = Segment(first, first + len(entries) - 1)
        stacked = _stack(kind, entries)
        try:
            at(folder).make()
            at(folder).clean()
            self._write(kind, segment, stacked)
        except OSError as error:
            raise NetworkStoreError(f"cannot write {folder / segment.name}: {error.strerror}") from error

    def get(self, kind: str, iteration: int) -> Parameters:
        """The parameters of one iteration. Raises NetworkStoreError where it is not stored or damaged."""
        return {name: array[0] for name, array in self.stack(kind, iteration, iteration).items()}

    def stack(self, kind: str, first: int, last: int) -> Parameters:
        """The parameters of iterations `first` to `last` (both included), each [last - first + 1, ...].

        Raises NetworkStoreError where one of them is not stored or a segment is damaged.
        """
        spans: list[tuple[Segment, slice]] = []
        expected = first
        for segment in self._segments(kind):
            if segment.last < first or segment.first > last:
                continue
            if segment.first > expected:
                break
            spans.append((segment, slice(expected - segment.first, min(last, segment.last) - segment.first + 1)))
            expected = segment.last + 1
        if expected <= last or last < first:
            raise NetworkStoreError(
                f"{self._folder(kind)} does not hold iteration {expected} (asked for {first} to {last}; "
                f"newest is {self.newest(kind)})"
            )

        def piece(span: tuple[Segment, slice]) -> Parameters:
            return {name: array[span[1]] for name, array in self._read(kind, span[0]).items()}

        pieces = at(self._folder(kind)).each(piece, spans)
        return {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}

    def newest(self, kind: str) -> int | None:
        """The last stored iteration; None where there is none."""
        segments = self._segments(kind)
        return segments[-1].last if segments else None

    def segments(self, kind: str) -> int:
        """How many segments are stored: each commit writes one."""
        return len(self._segments(kind))

    def gaps(self, kind: str, last: int) -> list[tuple[int, int]]:
        """The spans (first, last) of iterations from 1 to `last` that are not stored."""
        gaps, expected = [], 1
        for segment in self._segments(kind):
            if segment.first > expected:
                gaps.append((expected, min(segment.first - 1, last)))
            expected = segment.last + 1
        if expected <= last:
            gaps.append((expected, last))
        return [gap for gap in gaps if gap[0] <= last]

    def kinds(self) -> list[str]:
        """Sorted names of the stored kinds."""
        return [name for name in at(self.path).names() if _KIND.fullmatch(name)]

    def truncate_after(self, kind: str, iteration: int) -> None:
        """Removes every iteration after `iteration`; what a resume does before it goes on."""
        folder = self._folder(kind)
        segments = self._all_segments(kind)
        for segment in self._segments(kind):
            if segment.first <= iteration < segment.last:
                kept = iteration - segment.first + 1
                stored = {name: array[:kept] for name, array in self._read(kind, segment).items()}
                self._write(kind, Segment(segment.first, iteration), stored)
        for segment in sorted(segments, reverse=True):
            if segment.last > iteration:
                at(folder / segment.name).remove()

    def verify(self) -> list[str]:
        """One sentence for every damaged segment and every gap; empty where all is sound."""
        problems = []
        for kind in self.kinds():
            expected = 1
            for segment in self._segments(kind):
                if segment.first != expected:
                    problems.append(f"{self._folder(kind)} lacks iterations {expected} to {segment.first - 1}")
                expected = segment.last + 1
                try:
                    self._read(kind, segment)
                except NetworkStoreError as error:
                    problems.append(str(error))
        return problems

    def _folder(self, kind: str) -> Location:
        if not _KIND.fullmatch(kind):
            raise NetworkStoreError(f"a kind is made of a-z, 0-9 and _ and begins with a letter, not {kind!r}")
        return self.path / kind

    def _all_segments(self, kind: str) -> list[Segment]:
        matches = (_SEGMENT.fullmatch(name) for name in at(self._folder(kind)).names())
        return sorted(Segment(int(match[1]), int(match[2])) for match in matches if match)

    def _segments(self, kind: str) -> list[Segment]:
        """Segments in order; one that a longer one covers (an interrupted truncation) is left out."""
        counted: list[Segment] = []
        for segment in self._all_segments(kind):
            if counted and segment.first == counted[-1].first:
                counted[-1] = segment
            elif not counted or segment.last > counted[-1].last:
                counted.append(segment)
        return counted

    def _write(self, kind: str, segment: Segment, stacked: Parameters) -> None:
        arrays = {_PREFIX + name: array for name, array in stacked.items()}
        head = {"kind": kind, "first": segment.first, "last": segment.last}
        write_frame(self._folder(kind) / segment.name, head | arrays)

    def _read(self, kind: str, segment: Segment) -> Parameters:
        path = self._folder(kind) / segment.name
        try:
            stored = read_frame(path, copy=False)
        except StorageError:  # says nothing about the segment
            raise
        except (FrameError, OSError) as error:
            raise NetworkStoreError(f"{path} is damaged ({error}): restore it from a copy of the run") from error
        if (stored.get("kind"), stored.get("first"), stored.get("last")) != (
            kind,
            segment.first,
            segment.last,
        ):
            raise NetworkStoreError(f"{path} holds another segment than its name says: restore it from a copy")
        return {name.removeprefix(_PREFIX): v for name, v in stored.items() if name.startswith(_PREFIX)}


def _stack(kind: str, entries: Sequence[Parameters]) -> Parameters:
    if not entries:
        raise NetworkStoreError(f"a segment of {kind} needs at least one iteration")
    first = _signature(entries[0])
    for number, entry in enumerate(entries):
        if _signature(entry) != first:
            raise NetworkStoreError(f"entry {number} of a segment of {kind} differs from entry 0 in names or shapes")
    return {name: np.stack([entry[name] for entry in entries]) for name in entries[0]}


def _signature(entry: Parameters) -> list[tuple[str, tuple[int, ...], str]]:
    return [(name, array.shape, array.dtype.str) for name, array in sorted(entry.items())]
