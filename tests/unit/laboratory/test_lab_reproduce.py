"""The published experiments: well formed, with the papers' figures; their tables say what they should."""

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pytest

from actors.games import registry
from dream import config
from dream.laboratory import tables
from dream.laboratory.experiments import Arm, ArmCurves, SeedCurve
from dream.laboratory.reproduce import NAMES, study_called
from dream.laboratory.reproduce.budgets import GAMES
from dream.laboratory.seed_task import SOLVE
from dream.laboratory.settings import LabSettings
from dream.laboratory.study import Comparison, Study, run_study, table_row

PUBLISHED = {
    "ccs-main": {
        "kuhn: weyl against iid": 27.64,
        "leduc: weyl against iid": 24.59,
        "goofspiel-4: weyl against iid": 4.27,
        "liars-dice: weyl against iid": -0.19,
        "kuhn: antithetic against iid": -0.5,
    },
    "ccs-decks": {"6 cards": 27.65, "10 cards": 34.01, "12 cards": 19.05},
    "ccs-composition": {
        "vanilla: weyl against iid": (17.5, 24.3),
        "discounted: weyl against iid": (17.5, 24.3),
        "linear: weyl against iid": (17.5, 24.3),
        "linear iid against vanilla iid": 24.16,
        "linear weyl against vanilla iid": 42.59,
    },
    "ccs-long": {"leduc: weyl against iid": 24.5},
}
SEEDS = {"ccs-main": 200, "ccs-decks": 50, "ccs-composition": 100}
TOUCHES = {"ccs-decks": {30_000}, "ccs-composition": {300_000}, "ccs-long": {3_000_000}}


@pytest.mark.parametrize("name", NAMES)
def test_experiments_are_well_formed(name: str) -> None:
    study = study_called(name)
    arms = {arm.name: arm for arm in study.arms}
    assert study.name == name
    assert len(arms) == len(study.arms)
    assert len({str(arm.job) for arm in study.arms}) == len(study.arms), "two arms are the same setting"
    compared = {arm for each in study.comparisons for arm in (each.baseline, each.other)}
    assert compared == set(arms)
    assert len({(each.label, each.iterate) for each in study.comparisons}) == len(study.comparisons)
    assert {each.iterate for each in study.comparisons} <= set(study.iterates)
    for each in study.comparisons:
        assert arms[each.baseline].panel == arms[each.other].panel
    for game in {arm.job["settings"]["game"] for arm in study.arms if study.task == SOLVE}:
        registry.describe(game)


@pytest.mark.parametrize("name", NAMES)
def test_the_published_figures(name: str) -> None:
    study = study_called(name)
    found = {each.label: each.published for each in study.comparisons if each.published is not None}
    assert found == PUBLISHED.get(name, {})
    assert study.seeds == SEEDS.get(name, study.seeds)
    touches = {arm.job["touches"] for arm in study.arms if study.task == SOLVE}
    assert touches == TOUCHES.get(name, touches)


def test_the_page_lists_every_experiment() -> None:
    page = (Path(__file__).parents[3] / "docs" / "laboratory.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([a-z-]+)` \| .* \| (\d+) \|$", page, re.MULTILINE)
    assert rows == [(name, str(study_called(name).seeds)) for name in NAMES]


def test_tabular_jobs_are_sound() -> None:
    for name in NAMES:
        study = study_called(name)
        for arm in study.arms:
            if study.task == SOLVE:
                LabSettings.model_validate(arm.job["settings"])
                assert arm.job["points"][-1] == arm.job["touches"]
                assert arm.warm_up == {**arm.job, "touches": 1, "points": [1]}


def test_goofspiel_has_chance() -> None:
    """With a fixed order of prizes the streams would have nothing to draw."""
    game = registry.load(GAMES["goofspiel-4"][0])
    assert game.description.max_chance_outcomes > 1


def test_deep_arms_train_what_they_say() -> None:
    for arm in study_called("deep-chance").arms:
        game, algorithm, learner, chance = arm.name.split()
        settings = config.load(arm.job["preset"], [*arm.job["overrides"], "seed=3"])
        assert (settings.game, settings.algorithm, settings.sampling.chance) == (game, algorithm, chance)
        assert settings.advantage.learner == learner
        assert algorithm == "sd-cfr" or settings.baseline.learner == learner
        assert settings.iterations % settings.evaluation.every == 0


# --- tables ------------------------------------------------------------------------------------------------


def curves(name: str, final: list[float]) -> ArmCurves:
    seeds = [
        SeedCurve(k, np.array([1, 10]), np.array([1, 10]), np.array([2 * end, end]), np.array([9 * end, 3 * end]))
        for k, end in enumerate(final, 1)
    ]
    return ArmCurves(Arm(name, "game", {}), tuple(seeds))


BOTH = {"a": curves("a", [1.0, 2.0, 3.0, 2.0]), "b": curves("b", [0.8, 1.5, 2.4, 1.3])}


@pytest.mark.parametrize(
    ("published", "difference", "excluded"),
    [
        (None, None, None),
        (25.0, 0.0, False),
        (24.0, 1.0, False),
        (60.0, -35.0, True),
        ((20.0, 30.0), 0.0, False),
        ((35.0, 50.0), -10.0, True),
        ((0.0, 5.0), 20.0, True),
    ],
)
def test_a_row_sets_ours_beside_the_published(published, difference, excluded) -> None:
    row = table_row(Comparison("b against a", "a", "b", published=published), BOTH)
    assert row["reduction_percent"] == pytest.approx(25.0)
    assert row["difference_percent"] == (None if difference is None else pytest.approx(difference))
    assert row["excludes_published"] is excluded
    if difference is None:
        assert row["difference_z"] is None
    else:
        error = (row["high_percent"] - row["low_percent"]) / (2 * 1.959964)
        assert row["difference_z"] == pytest.approx(row["difference_percent"] / np.hypot(error, error), rel=1e-5)
    assert (row["baseline_chips"], row["other_chips"], row["seeds"]) == pytest.approx((2.0, 1.5, 4))
    assert row["significant"] is True


def test_a_row_of_the_last_iterate() -> None:
    row = table_row(Comparison("b against a", "a", "b", "last"), BOTH)
    assert (row["baseline_chips"], row["other_chips"]) == pytest.approx((6.0, 4.5))


def test_a_table_for_people() -> None:
    comparisons = [
        Comparison("b against a", "a", "b", published=(40.0, 60.0), published_chips=(2.1, 1.4)),
        Comparison("last", "a", "b", "last", claim="helps"),
    ]
    document = {
        "rows": [table_row(each, BOTH) for each in comparisons],
        "counted": "touches",
        "seeds": 4,
        "planned_seeds": 9,
        "notes": ["A note."],
    }
    first, second = tables.lines(document)
    assert first["published chips"] == "2.1 and 1.4"
    assert (first["published %"], first["difference"], first["excluded"]) == ("40.0 to 60.0", "-15.00", "YES")
    assert (first["lower by %"], first["95 % interval"].split(" to ")[0][:2]) == ("25.00", "20")
    assert (second["published %"], second["excluded"], second["claim"], second["iterate"]) == (
        "-",
        "-",
        "helps",
        "last",
    )
    page = tables.markdown([first, second]).splitlines()
    assert page[0].startswith("| comparison | iterate | seeds | baseline |")
    assert page[1].startswith("| --- | ---: |")
    assert page[2].startswith("| b against a | average | 4 | 2.00000 | 1.50000 |")
    notes = tables.footnotes(document)
    assert any("excludes the published" in note for note in notes)
    assert any("has 9 seeds" in note for note in notes)
    assert notes[-1] == "A note."
    alone = {**document, "rows": document["rows"][1:]}
    assert "published %" not in tables.lines(alone)[0], "columns without entries are left out"


def small(name: str, touches: int) -> Study:
    """A study with every arm cut to `touches`."""
    study = study_called(name)
    arms = tuple(
        dataclasses.replace(arm, job={**arm.job, "touches": touches, "points": [touches // 2, touches]})
        for arm in study.arms
    )
    return dataclasses.replace(study, arms=arms)


@pytest.mark.parametrize("name", ["ccs-long", pytest.param("pftrl", marks=pytest.mark.slow)])
def test_documents_and_pictures(tmp_path: Path, name: str) -> None:
    """With a task that makes its curves up."""
    study = dataclasses.replace(small(name, 5000), task="oracles.lab_tasks:curve")
    document = run_study(study, 2, tmp_path, workers=1)
    assert len(document["rows"]) == len(study.comparisons)
    assert document == json.loads((tmp_path / f"{name}.json").read_text())
    assert {arm["diagnostics"]["chance_nodes"] for arm in document["arms"].values()} == {4.0}
    assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_an_experiment_from_end_to_end(tmp_path: Path) -> None:
    """ccs-decks with 2,000 touches and three seeds; its numbers are those of the solver called by hand."""
    from dream.laboratory.solve import solve

    study = small("ccs-decks", 2000)
    document = run_study(study, 3, tmp_path, workers=1)
    assert (tmp_path / "ccs-decks.json").is_file()
    assert (tmp_path / "ccs-decks.png").read_bytes().startswith(b"\x89PNG")
    row = document["rows"][0]
    assert row["published_percent"] == 27.65
    arm = next(arm for arm in study.arms if arm.name == row["other"])
    settings = LabSettings.model_validate(arm.job["settings"])
    by_hand = [solve(settings, seed, 2000, [1000, 2000]).average[-1] for seed in (1, 2, 3)]
    assert document["arms"][row["other"]]["average"]["exploitability_chips"] == by_hand
    assert row["other_chips"] == pytest.approx(np.mean(by_hand))
    assert run_study(study, 3, tmp_path, workers=1) == document


@pytest.mark.slow
def test_a_deep_seed_goes_on_after_a_kill(tmp_path: Path) -> None:
    """Interrupted after a commit or broken beyond repair, a seed ends as one that nothing happened to."""
    import dream
    from dream.lab_training import train_seed
    from dream.laboratory.seeds_store import digest

    overrides = ["sampling.traversals=20", "advantage.learner=table", "evaluation.every=2", "checkpoint.every=2"]
    job = {"preset": "kuhn-sd-cfr-quick", "overrides": [*overrides, "iterations=6"]}
    whole = train_seed(job, 5, tmp_path / "whole")
    assert whole["iterations"] == [2, 4, 6]
    assert whole["x"] == sorted(whole["x"])
    assert not list((tmp_path / "whole").iterdir()), "finished runs are removed"

    run = tmp_path / "cut" / f"kuhn-sd-cfr-quick-{digest(job)}-seed-5"
    settings = config.load(job["preset"], [*job["overrides"], "seed=5"])
    dream.train(config.with_overrides(settings, ["iterations=4"]), run_dir=run, progress=False)
    (run / "config.yaml").write_text(config.to_yaml(settings))
    assert train_seed(job, 5, tmp_path / "cut") == whole
    run.mkdir(parents=True)
    (run / "something").write_text("no run")
    assert train_seed(job, 5, tmp_path / "cut") == whole
