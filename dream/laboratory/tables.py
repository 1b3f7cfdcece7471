"""A study's document as the table that people read: on a terminal, or as Markdown for a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["footnotes", "lines", "markdown"]

_NOTHING = "-"
_WORDS = {None: _NOTHING, True: "YES", False: "no"}


def lines(document: dict[str, Any]) -> list[dict[str, str]]:
    """One mapping of heading to text for each comparison; columns without any entry are left out."""
    rows = [_line(row) for row in document["rows"]]
    empty = {head for head in (rows[0] if rows else {}) if all(row[head] == _NOTHING for row in rows)}
    return [{head: text for head, text in row.items() if head not in empty} for row in rows]


def footnotes(document: dict[str, Any]) -> list[str]:
    """What must be known to read the table."""
    notes = [f"Chips are NashConv / 2; intervals are 95 %, 10,000 paired resamples. x counts {document['counted']}."]
    if any(row["excludes_published"] for row in document["rows"]):
        notes.append("excluded YES: the interval excludes the published value.")
    if any(row["difference_z"] is not None for row in document["rows"]):
        notes.append("z: the difference over the standard error of the difference of two experiments like this one.")
    if document["seeds"] < document["planned_seeds"]:
        notes.append(f"The experiment has {document['planned_seeds']:,} seeds; the interval of a few is too narrow.")
    return [*notes, *document["notes"]]


def markdown(rows: Sequence[dict[str, str]]) -> str:
    """Rows with equal keys as a Markdown table; all but the first column to the right."""
    heads = list(rows[0])
    body = [heads, ["---", *["---:"] * (len(heads) - 1)], *([row[head] for head in heads] for row in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in body)


def _line(row: dict[str, Any]) -> dict[str, str]:
    return {
        "comparison": row["comparison"],
        "iterate": row["iterate"],
        "seeds": f"{row['seeds']:,}",
        "baseline": f"{row['baseline_chips']:.5f}",
        "other": f"{row['other_chips']:.5f}",
        "published chips": _pair(row["published_baseline_chips"], row["published_other_chips"], "", " and "),
        "lower by %": f"{row['reduction_percent']:.2f}",
        "95 % interval": _pair(row["low_percent"], row["high_percent"], ".2f", " to "),
        "published %": _published(row["published_percent"]),
        "difference": _number(row["difference_percent"], "+.2f"),
        "z": _number(row["difference_z"], "+.1f"),
        "excluded": _WORDS[row["excludes_published"]],
        "claim": row["claim"] or _NOTHING,
        "d": _number(row["cohen_d"], ".2f"),
        "t-test p": _number(row["t_test_p"], ".1e"),
        "Wilcoxon p": _number(row["wilcoxon_p"], ".1e"),
    }


def _number(value: float | None, form: str) -> str:
    return _NOTHING if value is None else format(value, form)


def _pair(first: float | None, second: float | None, form: str, joint: str) -> str:
    if first is None or second is None:
        return _NOTHING
    return f"{first:{form}}{joint}{second:{form}}"


def _published(value: float | list[float] | None) -> str:
    return _pair(value[0], value[1], "", " to ") if isinstance(value, list) else _number(value, "")
