"""Enumerated games on disk: same arrays, never a damaged or a foreign one, never a game written in Python."""

from dataclasses import fields

import numpy as np
import pytest
from oracles import python_games

from actors.games import registry, tree_cache
from actors.games.enumeration import TooLargeError
from actors.games.tree import TreeGame

GAME = "goofspiel-5"  # 26,931 histories


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DREAM_CACHE", str(tmp_path))
    return tmp_path


def frames_in(cache):
    return sorted(cache.rglob("*.frame"))


def forbid_walking(monkeypatch):
    def walk(*_):
        raise AssertionError("the game was walked again")

    monkeypatch.setattr(tree_cache, "enumerate_game", walk)


def assert_same(one: TreeGame, other: TreeGame) -> None:
    for field in fields(one.arrays):
        left, right = getattr(one.arrays, field.name), getattr(other.arrays, field.name)
        if isinstance(left, np.ndarray):
            assert left.dtype == right.dtype
            assert np.array_equal(left, right), field.name
        elif field.name == "views":
            assert all(np.array_equal(a, b) for a, b in zip(left, right, strict=True))
        else:
            assert left == right, field.name


def test_a_kept_game_is_read_back_and_not_walked(cache, monkeypatch):
    walked = registry.load(GAME, "tree")
    assert len(frames_in(cache)) == 1
    forbid_walking(monkeypatch)
    assert_same(walked, registry.load(GAME, "tree"))


def test_a_damaged_frame_is_walked_again_and_replaced(cache, monkeypatch):
    walked = registry.load(GAME, "tree")
    (path,) = frames_in(cache)
    sound = path.read_bytes()
    path.write_bytes(sound[: len(sound) // 2])
    assert_same(walked, registry.load(GAME, "tree"))
    assert path.read_bytes() == sound


def test_the_limit_holds_for_kept_games_too(cache):
    registry.load(GAME, "tree")
    game, description = registry.open_game(GAME)
    with pytest.raises(TooLargeError):
        tree_cache.load_tree(game, description, 26_930)


def test_small_games_and_games_in_python_are_not_kept(cache, monkeypatch):
    python_games.register()
    monkeypatch.setattr(tree_cache, "_SMALL", 0)
    registry.load(python_games.SECRET, "tree")
    assert frames_in(cache) == []
    registry.load("kuhn", "tree")
    assert len(frames_in(cache)) == 1


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DREAM_CACHE", str(tmp_path / "file"))
    assert registry.load(GAME, "tree").num_states > 0
