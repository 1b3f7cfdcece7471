"""Named experiments: each module holds one `STUDY`, the published figures included."""

from __future__ import annotations

from importlib import import_module

from dream.config import unknown
from dream.errors import UsageError
from dream.laboratory.study import Study

__all__ = ["NAMES", "study_called"]

NAMES = (
    "ccs-main",
    "ccs-decks",
    "ccs-composition",
    "ccs-persistence",
    "ccs-own-streams",
    "ccs-control-variate",
    "ccs-long",
    "pftrl",
    "deep-chance",
)


def study_called(name: str) -> Study:
    """The study of a name. Raises UsageError, with the nearest name, for one that does not exist."""
    if name not in NAMES:
        raise UsageError(unknown("experiment", name, NAMES))
    study: Study = import_module(f"{__name__}.{name.replace('-', '_')}").STUDY
    return study
