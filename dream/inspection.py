"""The health of a run on disk, and the strategy it has learnt, without training anything."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from dream import config as configuration
from dream.errors import UsageError
from dream.results import EVALUATION_KEYS
from dream.store.iterations import ADVANTAGES
from dream.store.places import Location
from dream.store.run_folder import RunFolder
from dream.store.standing import lacking, lost_commits, metrics_gap

if TYPE_CHECKING:
    from open_spiel.python.policy import Policy

__all__ = ["completed_iterations", "damage", "evaluations", "health", "state_strategy"]

# Histories walked in search of an information state before giving up.
_SEARCH_LIMIT = 500_000


def evaluations(folder: RunFolder) -> list[dict[str, Any]]:
    """Every evaluation of the run so far, from metrics.jsonl, with the keys of `results.Evaluation`."""
    return [
        {key: record.get(key) for key in EVALUATION_KEYS}
        for record in folder.metrics.read()
        if record.get("exploitability_milli") is not None
    ]


def completed_iterations(folder: RunFolder) -> int:
    """The last iteration of which every network is stored; 0 for a run that has just begun."""
    return min(folder.networks.newest(kind) or 0 for kind in ADVANTAGES)


def health(run_dir: str | Location) -> dict[str, Any]:
    """What a run is, where it stands and what it occupies.

    Bytes are of stored files; `newest_metrics` is the last line of metrics.jsonl.
    Raises RunFolderError where there is no run.
    """
    folder = RunFolder.open(run_dir)
    config = folder.config()
    records = folder.metrics.read()
    evaluated = evaluations(folder)
    commits = folder.checkpoints.iterations()
    return {
        "run_dir": str(folder.path),
        "game": config.game,
        "algorithm": config.algorithm,
        "seed": config.seed,
        "planned_iterations": config.iterations,
        "completed_iterations": completed_iterations(folder),
        "commits": commits,
        "newest_commit": commits[-1] if commits else None,
        "networks": {kind: folder.networks.newest(kind) for kind in folder.networks.kinds()},
        "last_evaluation": evaluated[-1] if evaluated else None,
        "disk_bytes": folder.sizes(),
        "newest_metrics": records[-1] if records else None,
    }


def damage(run_dir: str | Location) -> list[str]:
    """Reads every frame of every commit and network segment: one sentence for each damaged or missing file.

    Missing is what the newest commit needs: networks from the first iteration on, of both players, their metrics,
    and the commits themselves.
    """
    folder = RunFolder.open(run_dir)
    every = folder.config().checkpoint.every
    newest = max(folder.checkpoints.iterations(), default=0)  # before the networks: a run may be training
    problems = [*folder.checkpoints.verify(), *folder.networks.verify(), *lacking(folder, newest)]
    return problems + [each for each in (lost_commits(folder, every), metrics_gap(folder, newest)) if each]


def state_strategy(policy: Policy, text: str) -> dict[str, Any]:
    """The strategy of `policy` at the information state whose OpenSpiel string is `text`.

    Returns `state`, `player` and `actions`, a list of {action, name, probability} over the legal ones. Raises
    UsageError, with the nearest string, where the game has no such state or is too large to search.
    """
    seen: set[str] = set()
    for state in _decisions(policy.game):
        found = state.information_state_string()
        if found == text:
            return _strategy_at(policy, state, text)
        seen.add(found)
    near = configuration.nearest(text, sorted(seen))
    hint = f"; did you mean {near!r}?" if near else f". One that exists is {min(seen)!r}." if seen else "."
    raise UsageError(f"the game has no information state {text!r}{hint}")


def _strategy_at(policy: Policy, state: Any, text: str) -> dict[str, Any]:
    player = state.current_player()
    probabilities = policy.action_probabilities(state)
    actions = [
        {
            "action": int(action),
            "name": state.action_to_string(player, action),
            "probability": float(probabilities.get(action, 0.0)),
        }
        for action in state.legal_actions()
    ]
    return {"state": text, "player": player, "actions": actions}


def _decisions(game: Any) -> Iterator[Any]:
    """Every decision node, depth first. Raises UsageError beyond the search limit."""
    stack = [game.new_initial_state()]
    for _ in range(_SEARCH_LIMIT):
        if not stack:
            return
        state = stack.pop()
        if state.is_terminal():
            continue
        if not state.is_chance_node():
            yield state
        stack.extend(state.child(action) for action in reversed(state.legal_actions()))
    if stack:
        raise UsageError(f"the state was not found among the first {_SEARCH_LIMIT:,} histories of the game.")
