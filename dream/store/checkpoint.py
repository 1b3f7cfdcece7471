"""Commits: everything needed to go on from an iteration, written so that the newest one always loads.

    <root>/<iteration, 8 digits>[-<n>]/<part>.frame ... manifest.frame

A commit is a folder of its own that nothing else ever writes into. Its parts are written and made
durable first, and `manifest.frame` last, atomically: it lists every part with size and checksum, and the
commit exists from the moment it is there. A folder without a manifest is the remains of a kill (or of a
removal, which begins with the manifest).

Which commit wins: every manifest carries a `sequence` number, larger than that of every commit that was there
when it was written, and the largest sequence wins, whatever the iteration. So when commit 20 is damaged and a
run goes on from commit 10, the next commit wins over 20 even if it is of iteration 15, and even if somebody
repairs 20. A later commit of the same iteration is written beside the old one (`00000020-2`) and replaces it
once it is complete. Nothing else is ever deleted but by `prune`.
"""

import contextlib
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dream.store.errors import CheckpointError, StorageError, StoreError
from dream.store.frame_files import FrameError, Seal, Snapshot, damage, read_frame, write_frame
from dream.store.places import Location, at

_FOLDER = re.compile(r"(\d{8})(?:-(\d+))?")
_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_MANIFEST = "manifest.frame"
_LAYOUT = 1
_ADVICE = "restore it from a copy, or leave it"


class Parts(Mapping[str, Snapshot]):
    """The parts of a commit by name; each is read and decoded when it is asked for."""

    def __init__(self, folder: Location, names: list[str]) -> None:
        self._folder = folder
        self._names = names

    def __getitem__(self, name: str) -> Snapshot:
        if name not in self._names:
            raise KeyError(name)
        path = self._folder / f"{name}.frame"
        try:
            return read_frame(path)
        except StorageError:
            raise
        except (FrameError, OSError) as error:
            raise CheckpointError(f"{path} cannot be used: {error}") from error

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


@dataclass(frozen=True)
class Commit:
    """A commit whose files were all found sound.

    `damaged` holds one sentence for each damaged file met before this commit was found (of commits that would
    have won over it, and unreadable manifests of any): whoever resumes must show them. `unfinished` does so
    for folders without a manifest, the usual remains of a kill during a commit.
    """

    iteration: int
    parts: Mapping[str, Snapshot]
    meta: Snapshot
    path: Location
    damaged: list[str] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Manifest:
    folder: Location
    iteration: int
    sequence: int
    seals: dict[str, Seal]
    meta: Snapshot


class CheckpointStore:
    """The commits under one folder; one writer, any number of readers."""

    def __init__(self, path: Location) -> None:
        self.path = path

    def commit(self, iteration: int, parts: Mapping[str, Snapshot], meta: Snapshot | None = None) -> Location:
        """Writes one commit and returns its folder; where this raises, there is none.

        Networks and metrics up to `iteration` must be durable before (see run_folder.py). Raises
        CheckpointError where the disk does not take it (full, over quota, read-only): the files of this
        commit are removed again, and earlier commits are as they were.
        """
        for name in parts:
            if not _PART.fullmatch(name) or f"{name}.frame" == _MANIFEST:
                raise CheckpointError(f"{name!r} cannot name a part: use letters, digits, '_', '.', '-'")
        earlier = self._folders()
        folder = self._free_folder(iteration)
        try:
            at(folder).make()

            def write(name: str) -> Seal:
                return write_frame(folder / f"{name}.frame", parts[name], in_place=True)

            seals = dict(zip(parts, at(folder).each(write, list(parts)), strict=True))
            at(folder).settle()
            manifest = self._manifest_snapshot(iteration, self._next_sequence(), seals, meta or {})
            write_frame(folder / _MANIFEST, manifest)
        except OSError as error:
            raise self._failure(folder, parts, error) from error
        except BaseException:  # an interrupt or a part that cannot be encoded: no half commit stays either
            _discard(folder)
            raise
        for old in earlier:
            if _iteration_of(old) == iteration and old != folder:
                _discard(old)
        return folder

    def load_newest(self, before: int | None = None) -> Commit:
        """The newest sound commit, of an iteration smaller than `before` where that is given.

        Every file of it is read and compared with the manifest. Newer commits that are damaged are named in
        `damaged` and left as they are. Raises CheckpointError, naming every problem, where no commit is
        usable.
        """
        damaged: list[str] = []
        unfinished: list[str] = []
        manifests = self._manifests(damaged, unfinished, before)
        for manifest in manifests:
            problems = _problems(manifest)
            if not problems:
                parts = Parts(manifest.folder, list(manifest.seals))
                return Commit(manifest.iteration, parts, manifest.meta, manifest.folder, damaged, unfinished)
            damaged += problems
        found = "; ".join(damaged + unfinished) or "there is none"
        raise CheckpointError(f"no usable commit in {self.path}: {found}")

    def any(self) -> bool:
        """Whether a manifest exists, readable or not. Without one the run was killed before its first commit."""
        return any(at(folder / _MANIFEST).size() is not None for folder in self._folders())

    def iterations(self) -> list[int]:
        """Sorted iterations of which a readable manifest exists; contents are not checked."""
        return sorted({manifest.iteration for manifest in self._manifests([], [], None)})

    def verify(self) -> list[str]:
        """Reads everything; one sentence for each damaged file, empty where all commits are sound."""
        damaged: list[str] = []
        for manifest in self._manifests(damaged, [], None):
            damaged += _problems(manifest)
        return damaged

    def prune(self, keep: int) -> None:
        """Removes all but the newest `keep` commits (at least 1), each by its manifest first.

        Only commits whose files are all there with their right size count among those kept, so the older ones
        stay until enough newer ones are complete. Folders of earlier iterations than the oldest kept one that
        have no readable manifest (remains of kills, damaged commits) go as well.
        """
        if keep < 1:
            raise ValueError(f"keep is {keep}; at least 1 commit must be kept")
        manifests = self._manifests([], [], None)
        complete = [manifest for manifest in manifests if not _incomplete(manifest)]
        if len(complete) < keep:
            return
        oldest = complete[keep - 1]
        for manifest in manifests:
            if manifest.sequence < oldest.sequence:
                _discard(manifest.folder)
        readable = {manifest.folder for manifest in manifests}
        for folder in self._folders():
            if folder not in readable and _iteration_of(folder) < oldest.iteration:
                _discard(folder)

    def _folders(self) -> list[Location]:
        return [self.path / name for name in at(self.path).names() if _FOLDER.fullmatch(name)]

    def _free_folder(self, iteration: int) -> Location:
        """A folder for this iteration that holds no commit; remains of a kill are cleared away."""
        number = 1
        while True:
            folder = self.path / (f"{iteration:08d}" if number == 1 else f"{iteration:08d}-{number}")
            if _MANIFEST not in at(folder).names():
                at(folder).discard()
                return folder
            number += 1

    def _manifests(self, damaged: list[str], unfinished: list[str], before: int | None) -> list[_Manifest]:
        """Readable manifests, newest first; problems of the others are added to the two lists."""
        found = []
        for folder in self._folders():
            if before is not None and _iteration_of(folder) >= before:
                continue
            path = folder / _MANIFEST
            try:
                found.append(_read_manifest(folder))
            except FileNotFoundError:
                unfinished.append(f"{folder} has no {_MANIFEST}: its commit was not finished (or that file was lost)")
            except StorageError:  # says nothing about the commit
                raise
            except (FrameError, OSError, KeyError, AttributeError, TypeError, ValueError) as error:
                damaged.append(f"{path} is damaged ({error}): {_ADVICE}")
        return sorted(found, key=lambda manifest: manifest.sequence, reverse=True)

    def _next_sequence(self) -> int:
        """Above every sequence there is, also in manifests that cannot be read: hence the clock."""
        readable = [manifest.sequence for manifest in self._manifests([], [], None)]
        return max(time.time_ns() // 1000, max(readable, default=0) + 1)

    def _manifest_snapshot(self, iteration: int, sequence: int, seals: dict[str, Seal], meta: Snapshot) -> Snapshot:
        listed: dict[str, Any] = {name: {"bytes": s.bytes, "checksum": s.checksum} for name, s in seals.items()}
        return {
            "layout": _LAYOUT,
            "iteration": iteration,
            "sequence": sequence,
            "parts": listed,
            "meta": meta,
        }

    def _failure(self, folder: Location, parts: Mapping[str, Snapshot], error: OSError) -> CheckpointError:
        _discard(folder)
        free = at(self.path).free_bytes()
        room = "" if free is None else f", {free:,} are free"
        return CheckpointError(
            f"cannot write a commit to {folder}: {error.strerror or error}; "
            f"about {_array_bytes(parts):,} bytes are needed{room}; earlier commits are intact"
        )


def _array_bytes(value: Any) -> int:
    """Bytes of all arrays in nested dicts and lists: nearly all of what a commit takes."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, Mapping):
        return sum(_array_bytes(entry) for entry in value.values())
    if isinstance(value, list | tuple):
        return sum(_array_bytes(entry) for entry in value)
    return 0


def _discard(folder: Location) -> None:
    """Removes a commit as far as that goes; first its manifest, so that a rest of it is no commit."""
    with contextlib.suppress(OSError, StoreError):  # a lost lock: the folder may be its new holder's by now
        at(folder / _MANIFEST).remove()
    with contextlib.suppress(OSError, StoreError):
        at(folder).discard()


def _iteration_of(folder: Location) -> int:
    return int(folder.name[:8])


def _read_manifest(folder: Location) -> _Manifest:
    stored = read_frame(folder / _MANIFEST)
    if stored.get("layout") != _LAYOUT:
        raise ValueError(f"layout {stored.get('layout')!r}, this version reads {_LAYOUT}")
    if stored["iteration"] != _iteration_of(folder):
        raise ValueError(f"it belongs to iteration {stored['iteration']}")
    listed: Any = stored["parts"]
    seals = {name: Seal(entry["bytes"], entry["checksum"]) for name, entry in listed.items()}
    iteration, sequence, meta = stored["iteration"], stored["sequence"], stored["meta"]
    if not (isinstance(iteration, int) and isinstance(sequence, int) and isinstance(meta, dict)):
        raise TypeError("its fields have other types than written")
    return _Manifest(folder, iteration, sequence, seals, meta)


def _problems(manifest: _Manifest) -> list[str]:
    """A sentence for each part that is not what the manifest says."""

    def problem(name: str) -> str | None:
        path = manifest.folder / f"{name}.frame"
        what = damage(path, manifest.seals[name])
        return f"{path} {what}: {_ADVICE}" if what else None

    return [found for found in at(manifest.folder).each(problem, list(manifest.seals)) if found]


def _incomplete(manifest: _Manifest) -> bool:
    sizes = at(manifest.folder).sizes()
    return any(sizes.get(f"{name}.frame") != seal.bytes for name, seal in manifest.seals.items())
