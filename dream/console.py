"""What the commands share: options, where output goes, and tables. Standard output holds results and nothing else."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import typer

from dream import config as configuration
from dream.errors import UsageError

__all__ = ["Json", "Quiet", "choice", "emit", "outline", "say", "table", "work"]

Json = Annotated[bool, typer.Option("--json", help="One JSON document on standard output, all else on standard error.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]


def say(message: str) -> None:
    """A line on standard error."""
    typer.echo(message, err=True)


def emit(document: Any) -> None:
    """The one JSON document of `--json`."""
    typer.echo(json.dumps(document, allow_nan=False))


@contextlib.contextmanager
def work(as_json: bool) -> Iterator[None]:
    """With `--json`, sends everything printed meanwhile to standard error, by compiled libraries too."""
    if not as_json:
        yield
        return
    sys.stdout.flush()
    kept = os.dup(1)
    try:
        os.dup2(2, 1)
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def choice(option: str, value: str, allowed: Sequence[str]) -> None:
    """Raises UsageError, with the nearest valid value, where `value` is not one of `allowed`."""
    if value not in allowed:
        raise UsageError(configuration.unknown(f"{option} value", value, allowed))


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.6g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return "-" if value is None else str(value)


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Rows with equal keys as aligned text under a heading; numbers to the right."""
    if not rows:
        return "(none)"
    heads = list(rows[0])
    cells = [heads, *([_cell(row.get(head)) for head in heads] for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(heads))]
    right = [isinstance(rows[0][head], int | float) for head in heads]
    lines = (
        "  ".join(
            text.rjust(width) if numeric else text.ljust(width)
            for text, width, numeric in zip(line, widths, right, strict=True)
        )
        for line in cells
    )
    return "\n".join(line.rstrip() for line in lines)


def outline(document: Any, depth: int = 0) -> Iterator[str]:
    """A nested document as indented `key: value` lines."""
    pad = "  " * depth
    for key, value in document.items():
        if isinstance(value, dict) and value:
            yield f"{pad}{key}:"
            yield from outline(value, depth + 1)
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            yield f"{pad}{key}:"
            yield from (f"{pad}  {line}" for line in table(value).splitlines())
        elif isinstance(value, list):
            yield f"{pad}{key}: {', '.join(map(_cell, value)) or 'none'}"
        else:
            yield f"{pad}{key}: {_cell(value)}"
