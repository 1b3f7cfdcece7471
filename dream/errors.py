"""Errors that a user may cause or must read: shown as one message, never as a traceback."""

from __future__ import annotations

from typing import ClassVar


class DreamError(Exception):
    """An expected failure with a message for the user; `exit_status` is what the command line returns."""

    exit_status: ClassVar[int] = 1


class DivergenceError(DreamError):
    """A network's fit ended in a loss or weights that are not finite."""


class UsageError(DreamError, ValueError):
    """The request itself is at fault (a wrong name, value or folder): exit status 2."""

    exit_status: ClassVar[int] = 2


class ConfigError(UsageError):
    """A configuration that cannot be run; the message names every fault, one a line."""


class UnavailableError(UsageError):
    """Asked for something that this version does not have."""
