"""metrics.jsonl: one JSON object per iteration, in order, appended.

A line counts once its newline is on disk: a last line cut by a kill is dropped by readers and overwritten by
the next append. On a local disk appended lines reach the operating system at once (they survive a kill of the
process) and the disk at `sync` (they survive a loss of power). Object storage knows no appending: there the file is
written again as a whole, at `sync` and about twice a minute, and a kill loses the lines since (objects.py).
"""

import json
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self, cast

from dream.store.errors import MetricsError
from dream.store.places import Appender, Location, at

Record = dict[str, Any]

# An evaluation's keys: all in a record, or none.
_MEASURES = ("nash_conv_chips", "exploitability_chips", "exploitability_milli")
_LABELS = ("unit", "average")


class MetricsLog:
    """The file of a run's measurements. Readers need no lock; there is one writer.

    Each record holds at least `iteration` (int), which grows from line to line, `states` and `seconds`; those
    of evaluated iterations hold all of an evaluation's keys.
    """

    def __init__(self, path: Location) -> None:
        self.path = path
        self._file: Appender | None = None

    def append(self, record: Mapping[str, Any]) -> None:
        """Adds one line. Raises ValueError for a record without an int `iteration`, or with NaN."""
        if not isinstance(record.get("iteration"), int):
            raise ValueError(f"a metrics record needs an int 'iteration', not {record.get('iteration')!r}")
        line = json.dumps(record, allow_nan=False) + "\n"
        if self._file is None:
            self._file = at(self.path).appender()
        self._file.append(line.encode())

    def read(self) -> list[Record]:
        """All complete records, in order. Raises MetricsError for a damaged line that is not the last."""
        if self._file is not None:
            self._file.publish()
        try:
            lines = at(self.path).read().split(b"\n")[:-1]
        except FileNotFoundError:
            return []
        return [self._parse(number, line) for number, line in enumerate(lines, start=1)]

    def truncate_after(self, iteration: int) -> list[Record]:
        """Drops, atomically, every record after `iteration`; returns those that stay."""
        self.close()
        kept = [record for record in self.read() if record["iteration"] <= iteration]
        if at(self.path).size() is not None:
            at(self.path).write([(json.dumps(record) + "\n").encode() for record in kept])
        return kept

    def sync(self) -> None:
        """Makes all appended lines durable; to be called before a commit of the same iterations."""
        if self._file is not None:
            self._file.sync()

    def close(self) -> None:
        """Closes the file; a later append opens it again."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _parse(self, number: int, line: bytes) -> Record:
        try:
            record = json.loads(line)
        except ValueError:
            record = None
        if not isinstance(record, dict) or not _is_integer(record.get("iteration")):
            fault: str | None = "is not a metrics record"
        else:
            fault = _fault(record)
        if fault:
            raise MetricsError(f"{self.path} line {number} {fault}: remove that line, or restore the file")
        return cast(Record, record)


def _fault(record: Record) -> str | None:
    """What readers could not use in a record, in a few words."""
    missing = [key for key in ("states", "seconds") if not _is_number(record.get(key))]
    if missing:
        return f"has no number as {' and '.join(missing)}"
    evaluated = [key for key in (*_MEASURES, *_LABELS) if key in record]
    if evaluated and len(evaluated) < len(_MEASURES) + len(_LABELS):
        return f"holds half an evaluation ({', '.join(evaluated)})"
    scalars = [key for key in record if "/" in key] + (list(_MEASURES) if evaluated else [])
    wrong = [key for key in scalars if not (record[key] is None or _is_number(record[key]))]
    wrong += [key for key in _LABELS if evaluated and not isinstance(record[key], str)]
    return f"has a wrong value of {', '.join(wrong)}" if wrong else None


def _is_integer(entry: Any) -> bool:
    return isinstance(entry, int) and not isinstance(entry, bool)


def _is_number(entry: Any) -> bool:
    return isinstance(entry, int | float) and not isinstance(entry, bool)
