"""Games of every kind train from their name: exploitability falls below half of uniform play's."""

from pathlib import Path

import pytest
from oracles import python_games
from oracles.tiny_runs import exploitabilities

import dream

LEDUC_LIKE = (
    "universal_poker(betting=limit,numPlayers=2,numRounds=2,blind=1 1,firstPlayer=1 1,numSuits=2,numRanks=3,"
    "numHoleCards=1,numBoardCards=0 1,raiseSize=2 4,maxRaises=2 2)"
)
GOOFSPIEL = "goofspiel(imp_info=True,num_cards=4,points_order=descending)"  # simultaneous

# Explicit, so that tuning a preset does not decide these tests.
LEARNERS = [
    "sampling.epsilon=0.5",
    "advantage.network.hidden=[64,64,64]",
    "advantage.buffer=merged",
    "advantage.steps=60",
    "advantage.learning_rate=3e-3",
    "advantage.reset_every=0",
    "baseline.network.hidden=[64,64,64]",
    "baseline.steps=60",
    "baseline.batch=512",
    "baseline.learning_rate=3e-3",
]
CASES = {
    "liars-dice": ("liars_dice(numdice=1)", 40, ["sampling.traversals=3000"]),
    "goofspiel-4": (GOOFSPIEL, 15, ["sampling.traversals=1000"]),
    "leduc-like": (LEDUC_LIKE, 15, ["sampling.traversals=600"]),
}


def train(folder: Path, game: str, iterations: int, *settings: str) -> dream.Result:
    overrides = [
        f"game={game}",
        f"iterations={iterations}",
        "evaluation.every=1",
        "checkpoint.every=100",
        "runtime.threads=1",
        *LEARNERS,
        *settings,
    ]
    return dream.train("leduc-dream-quick", run_dir=folder, overrides=overrides, progress=False)


def assert_learns(result: dream.Result, unit: str) -> None:
    curve = exploitabilities(result.evaluations)
    assert curve[result.iteration] < 0.5 * curve[1], curve  # the first average is uniform play
    assert result.unit == unit


def test_a_game_written_in_python_learns(tmp_path: Path) -> None:
    python_games.register()
    result = train(tmp_path, python_games.SECRET, 8, "sampling.traversals=300")
    assert_learns(result, "m/g")
    policy = dream.load_policy(tmp_path)
    assert policy.game.get_type().short_name == python_games.SECRET


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_games_learn(tmp_path: Path, name: str) -> None:
    game, iterations, settings = CASES[name]
    result = train(tmp_path, game, iterations, *settings)
    assert_learns(result, "mbb/g" if "poker" in game else "m/g")
