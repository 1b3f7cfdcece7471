"""Buffers against bare copies of the same columns: rows per second of one thread."""

from __future__ import annotations

import numpy as np

from actors.games import registry
from actors.games.tree import TreeGame
from benchmarks.learning import regression_rows, transition_rows
from benchmarks.measure import Budget, Result, Work, compare
from buffers.circular import Circular
from buffers.merged import Merged
from buffers.reservoir import Reservoir
from buffers.rows import Column, Rows, RowSchema, regression_schema, transition_schema

COPY = "bare copies of the columns"


def bare_copies(schema: RowSchema, rows: Rows, capacity: int) -> Work:
    """Copies the columns chunk after chunk into preallocated arrays, wrapping at the end."""
    count = len(rows[schema.names[0]])
    slots = schema.allocate(capacity)
    for column in slots.values():
        column.fill(1)  # touch the pages
    at = 0

    def work() -> float:
        nonlocal at
        if at + count > capacity:
            at = 0
        for name, column in slots.items():
            column[at : at + count] = rows[name]
        at += count
        return count

    return work


def adding(buffer: Reservoir | Circular | Merged, chunks: list[Rows]) -> Work:
    """Adds the chunks in turn."""
    turn = 0

    def work() -> float:
        nonlocal turn
        rows = chunks[turn % len(chunks)]
        turn += 1
        buffer.add(rows)
        return len(rows["action" if "action" in rows else "key"])

    return work


def filled(buffer: Reservoir | Circular, chunks: list[Rows]) -> Work:
    """`adding` to a buffer that is full already."""
    work = adding(buffer, chunks)
    while buffer.seen < buffer.capacity:
        work()
    return work


def buffers(budget: Budget, chunk: int = 4096, capacity: int = 500_000) -> list[Result]:
    """Leduc rows in chunks: a reservoir that fills up, a full one, the circular and the merged buffer."""
    game = registry.load("leduc", "tree")
    assert isinstance(game, TreeGame)
    actions = game.description.num_actions
    advantage = regression_schema(game.state_column, actions)
    transition = transition_schema(game.history_column)
    packed = regression_schema(Column("key", np.uint8, (27,)), actions)
    rows = [regression_rows(game, chunk, seed) for seed in range(32)]
    packed_rows = [r | {"key": np.zeros((chunk, 27), np.uint8)} for r in rows]
    transitions = [transition_rows(game, chunk, seed) for seed in range(32)]
    cases: list[tuple[str, Work, RowSchema, Rows]] = [
        ("Reservoir, filling", _refilling(advantage, rows, capacity), advantage, rows[0]),
        ("Reservoir, seen 1 to 20 x capacity", _overfilling(advantage, rows, capacity // 20), advantage, rows[0]),
        ("Reservoir, filling, 27-byte keys", _refilling(packed, packed_rows, capacity), packed, packed_rows[0]),
        ("Circular", filled(Circular(transition, capacity), transitions), transition, transitions[0]),
        ("Merged", adding(Merged(game.num_states, actions), rows), advantage, rows[0]),
    ]
    results = []
    for case, ours, schema, example in cases:
        bare = {COPY: bare_copies(schema, example, capacity)}
        name = f"{case}, chunks of {chunk:,}"
        results += compare("buffers", name, "rows", ours, bare, budget)
    return results


def _refilling(schema: RowSchema, chunks: list[Rows], capacity: int) -> Work:
    """Adds to a reservoir that is emptied whenever it is full; its memory stays allocated."""
    buffer = Reservoir(schema, capacity)
    fill = filled(buffer, chunks)
    empty = Reservoir(schema, capacity).snapshot()

    def work() -> float:
        if buffer.seen + 8 * len(chunks[0]["key"]) > buffer.capacity:
            buffer.restore(empty)
        return fill() + fill() + fill() + fill()

    return work


def _overfilling(schema: RowSchema, chunks: list[Rows], capacity: int) -> Work:
    """From full to twenty times as many rows offered: most of the later ones are rejected by their priority."""

    def work() -> float:
        buffer = Reservoir(schema, capacity)
        fill = adding(buffer, chunks)
        offered = 0.0
        while offered < 20 * capacity:
            offered += fill()
        buffer.settle()
        return offered

    return work
