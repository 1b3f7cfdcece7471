"""Enumerated games on disk: a tree that took seconds to walk is read back in milliseconds.

One frame per game in $DREAM_CACHE, or $XDG_CACHE_HOME/dream, or ~/.cache/dream. The name is a digest of the game string
and OpenSpiel's version. Games written in Python are never kept: their code may change under the same name.
A cache that cannot be read or written is no error: the game is walked again.
"""

import hashlib
import os
import tempfile
from dataclasses import fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyspiel

from actors.games.description import GameDescription
from actors.games.enumeration import enumerate_game
from actors.games.tree import TreeGame
from actors.games.tree_arrays import TreeArrays
from buffers import frames

_LAYOUT = 1  # of the arrays in a frame: raised with every change of TreeArrays
_SMALL = 20_000  # histories below which walking is as fast as reading


def load_tree(game: Any, description: GameDescription, limit: int) -> TreeGame:
    """The tree of `game` from the cache, else walked, and kept where that saves time. Raises as `enumerate_game`."""
    if not _compiled(game):
        return enumerate_game(game, description, limit)
    path = _path(description.game_string)
    arrays = _read(path, limit)
    if arrays is not None:
        return TreeGame(description, arrays)
    tree = enumerate_game(game, description, limit)
    if tree.arrays.nodes >= _SMALL:
        _write(path, tree.arrays)
    return tree


def _compiled(game: Any) -> bool:
    """Whether OpenSpiel's compiled code alone decides how the game goes."""
    inner = game.get_parameters().get("game")
    if isinstance(inner, dict):
        game = pyspiel.load_game(inner["name"])
    return type(game) is pyspiel.Game


def _path(game_string: str) -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    folder = Path(os.environ.get("DREAM_CACHE") or str(Path(base) / "dream"))
    identity = f"{_LAYOUT} {version('open_spiel')} {game_string}"
    return folder / "trees" / f"{hashlib.blake2b(identity.encode(), digest_size=16).hexdigest()}.frame"


def _read(path: Path, limit: int) -> TreeArrays | None:
    """The arrays of a sound frame; None where there is none, or one beyond `limit` histories."""
    try:
        stored = frames.decode(path.read_bytes(), str(path))
    except (OSError, frames.FrameError):
        return None
    if len(stored["player"]) > limit:
        return None
    views = (stored.pop("views0"), stored.pop("views1"))
    names, counts = stored.pop("names"), stored.pop("num_states")
    return TreeArrays(**stored, views=views, names=tuple(names), num_states=(counts[0], counts[1]))


def _write(path: Path, arrays: TreeArrays) -> None:
    plain = {field.name: getattr(arrays, field.name) for field in fields(arrays)}
    views = plain.pop("views")
    plain |= {"views0": views[0], "views1": views[1]}
    plain |= {"names": list(arrays.names), "num_states": list(arrays.num_states)}
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", suffix=".partial", delete=False) as file:
            temporary = Path(file.name)
            frames.write(file, plain)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
