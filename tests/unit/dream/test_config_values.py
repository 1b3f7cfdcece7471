"""The configuration: defaults, overrides, cross-field rules, messages that name fault and remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dream import config as configuration
from dream.config import ConfigError, RunConfig, load

MINIMAL = {"game": "kuhn", "algorithm": "sd-cfr", "iterations": 3}


def fault(*overrides: str, preset: str = "leduc-dream") -> str:
    with pytest.raises(ConfigError) as caught:
        load(preset, overrides)
    return str(caught.value)


def test_defaults_are_the_published_ones() -> None:
    config = configuration.from_mapping(MINIMAL)
    assert (config.seed, config.sampling.epsilon, config.sampling.updates) == (1, 0.5, "alternating")
    assert config.advantage.network.hidden == (64, 64, 64)
    assert (config.advantage.batch, config.advantage.learning_rate, config.advantage.reset_every) == (
        2048,
        1e-3,
        1,
    )
    assert (config.baseline.capacity, config.baseline.steps, config.baseline.batch) == (200_000, 1000, 512)
    assert (config.checkpoint.every, config.checkpoint.keep, config.runtime.kind) == (10, 2, "auto")


def test_configuration_is_frozen() -> None:
    config = configuration.from_mapping(MINIMAL)
    with pytest.raises(ValueError, match="frozen"):
        config.seed = 2  # type: ignore[misc]


def test_overrides_reach_nested_keys_and_later_ones_win() -> None:
    config = load(
        "leduc-dream",
        ["sampling.traversals=7", "advantage.network.hidden=[8, 8]", "sampling.traversals=9", "seed=0"],
    )
    assert (config.sampling.traversals, config.advantage.network.hidden, config.seed) == (9, (8, 8), 0)
    assert config.sampling.epsilon == 0.5


@pytest.mark.parametrize(("text", "value"), [("1e-4", 1e-4), ("0.25", 0.25), ("5E-2", 0.05), ("1", 1.0)])
def test_numbers_may_be_written_as_people_write_them(text: str, value: float) -> None:
    assert load("leduc-dream", [f"advantage.learning_rate={text}"]).advantage.learning_rate == value


def test_game_strings_with_commas_and_equals_signs_are_values() -> None:
    game = "goofspiel(num_cards=4,imp_info=True,points_order=descending)"
    assert load("kuhn-dream", [f"game={game}"]).game == game


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("sampling.epsilon=2", ["sampling.epsilon=2", "above 0 and at most 1"]),
        ("sampling.epsilon=0", ["above 0 and at most 1"]),
        ("sampling.traversals=0", ["sampling.traversals=0", "at least 1", "traversals"]),
        ("advantage.fine_tune_steps=0", ["advantage.fine_tune_steps=0", "at least 1"]),
        ("seed=-1", ["seed=-1", "at least 0"]),
        ("seed=true", ["seed", "whole number", "true"]),
        ("iterations=1.5", ["iterations=1.5", "whole number"]),
        ("sampling.epsilon=.nan", ["sampling.epsilon=nan"]),
        ("sampling.traversal=4", ["'sampling.traversal'", "'sampling.traversals'"]),
        ("traversals=4", ["'traversals'", "sampling.traversals"]),
        ("iteratons=4", ["'iteratons'", "'iterations'"]),
        ("samplng.epsilon=1", ["'samplng.epsilon'", "'sampling.epsilon'"]),
        ("foo.bar=1", ["'foo.bar'", "Allowed here: game, algorithm"]),
        ("algorithm=draem", ["'draem'", "'dream'", "os-sd-cfr"]),
        ("sampling.chance=weil", ["'weil'", "'weyl'", "antithetic"]),
        ("advantage=4", ["'advantage' is a section", "advantage.steps"]),
        ("advantage.network.hidden=[0]", ["advantage.network.hidden", "width of 0", "from 1 to"]),
        ("runtime.learner_gpus=1.5", ["runtime.learner_gpus", "1.5 is neither whole nor below 1; use 1 or 2"]),
        ("advantage.network.hidden=[]", ["advantage.network.hidden"]),
        ("advantage.learning_rate=[1", ["advantage.learning_rate", "not valid YAML"]),
        ("nonsense", ["'nonsense'", "KEY=VALUE"]),
        ("=3", ["KEY=VALUE"]),
        ("game=", ["game", "text"]),
    ],
)
def test_faults_name_the_key_the_value_and_what_is_allowed(override: str, parts: list[str]) -> None:
    message = fault(override)
    for part in parts:
        assert part in message
    assert "pydantic" not in message
    assert "validation error" not in message


def test_a_fault_inside_a_list_is_told_once() -> None:
    assert len(fault("advantage.network.hidden=[a]").splitlines()) == 1


def test_all_faults_are_named_at_once() -> None:
    message = fault("sampling.epsilon=2", "iterations=0", "sampling.chance=no")
    assert all(key in message for key in ("sampling.epsilon", "iterations", "sampling.chance"))


@pytest.mark.parametrize(
    ("preset", "overrides", "part"),
    [
        ("leduc-dream", ["runtime.kind=ray", "sampling.chance=weyl"], "sampling.chance=weyl"),
        ("leduc-dream", ["runtime.kind=local", "runtime.address=auto"], "runtime.address=auto"),
        ("leduc-dream", ["sampling.sampler=external"], "algorithm=dream"),
        ("leduc-dream-avg", ["sampling.sampler=exact"], "algorithm=dream-avg"),
        ("leduc-sd-cfr", ["sampling.sampler=exact", "sampling.chance=weyl"], "sampling.chance=weyl"),
        ("leduc-sd-cfr", ["sampling.backend=simulator"], "advantage.buffer=merged"),
        (
            "leduc-dream-paper",
            ["sampling.backend=simulator", "baseline.learner=table"],
            "baseline.learner=table",
        ),
        ("leduc-dream-paper", ["advantage.capacity=100"], "less than one batch"),
        ("leduc-dream-paper", ["baseline.capacity=100"], "less than one batch"),
        ("leduc-deep-cfr-paper", ["average.capacity=100"], "less than one batch"),
        ("leduc-sd-cfr-paper", ["evaluation.by=exploitability", "sampling.backend=simulator"], "evaluation.by=expl"),
        (
            "leduc-sd-cfr-paper",
            ["runtime.shards=9", "advantage.capacity=8", "advantage.batch=8"],
            "runtime.shards=9 is more than advantage.capacity=8 rows",
        ),
        (
            "leduc-deep-cfr-paper",
            ["runtime.shards=9", "average.capacity=8", "average.batch=8"],
            "runtime.shards=9 is more than average.capacity=8 rows",
        ),
    ],
)
def test_settings_that_do_not_go_together_are_refused(preset: str, overrides: list[str], part: str) -> None:
    assert part in fault(*overrides, preset=preset)


def test_settings_of_unused_parts_are_not_refused() -> None:
    load("leduc-sd-cfr-paper", ["sampling.backend=simulator", "baseline.merge=true", "average.buffer=merged"])
    load("leduc-sd-cfr", ["sampling.sampler=exact"])
    load("leduc-sd-cfr", ["runtime.shards=9", "advantage.capacity=8"])  # merged: no reservoir
    load("leduc-sd-cfr-paper", ["runtime.shards=9", "average.capacity=8", "average.batch=8"])


def test_tree_settings_lists_what_needs_an_enumerated_game() -> None:
    assert configuration.tree_settings(load("leduc-dream-paper")) == []
    assert configuration.tree_settings(load("leduc-dream", ["baseline.merge=true"])) == [
        "advantage.buffer=merged",
        "baseline.merge=true",
    ]
    measured = load("leduc-dream-paper", ["evaluation.by=exploitability"])
    assert configuration.tree_settings(measured) == ["evaluation.by=exploitability"]


def test_fits_start_afresh_on_schedule() -> None:
    advantage = load("leduc-sd-cfr-paper", ["advantage.reset_every=10", "advantage.fine_tune_steps=5"]).advantage
    assert [t for t in range(1, 25) if advantage.starts_afresh(t)] == [1, 11, 21]
    assert (advantage.steps_in(11), advantage.steps_in(12)) == (3000, 5)
    never = load("leduc-sd-cfr-paper", ["advantage.reset_every=0"]).advantage
    assert [t for t in range(1, 25) if never.starts_afresh(t)] == [1]
    assert never.steps_in(2) == 3000


def test_threads_are_resolved_to_the_cores_there_are() -> None:
    resolved = configuration.resolve(configuration.from_mapping(MINIMAL))
    assert resolved.runtime.threads >= 1
    assert configuration.resolve(resolved) == resolved


def test_nested_changes_merge_into_sections() -> None:
    config = configuration.merged(load("leduc-dream"), {"sampling": {"traversals": 5}, "seed": 9})
    assert (config.sampling.traversals, config.sampling.epsilon, config.seed) == (5, 0.5, 9)
    with pytest.raises(ConfigError, match=r"sampling\.traversal.*sampling\.traversals"):
        configuration.merged(config, {"sampling": {"traversal": 5}})
    with pytest.raises(ConfigError, match=r"nested here: sampling: \{traversals: \.\.\.\}"):
        configuration.merged(config, {"sampling.traversals": 5})
    with pytest.raises(ConfigError, match=r"nested here: advantage: \{network: \{hidden: \.\.\.\}\}"):
        configuration.merged(config, {"advantage.network.hidden": [5]})


@pytest.mark.parametrize("overrides", ["seed=3", [3], "seed"])
def test_overrides_are_a_list_of_texts(overrides: Any) -> None:
    with pytest.raises(ConfigError, match="overrides must be a list of KEY=VALUE texts"):
        load("leduc-dream", overrides)


@pytest.mark.parametrize("what", [None, 3, MINIMAL])
def test_what_is_no_configuration_is_refused(what: Any) -> None:
    with pytest.raises(ConfigError, match=r"name of a preset, the path of a YAML file or a RunConfig, not \w+;"):
        load(what)


def test_every_key_has_a_description_and_numbers_have_bounds() -> None:
    for key, info in configuration.keys().items():
        assert info.description, key
        if info.annotation in (int, float):
            assert any(hasattr(rule, "le") for rule in info.metadata), key
            assert any(hasattr(rule, "ge") or hasattr(rule, "gt") for rule in info.metadata), key


# --- files -------------------------------------------------------------------------------------------------


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    return path


def test_a_file_is_read_and_faults_name_it(tmp_path: Path) -> None:
    path = written(tmp_path, "game: kuhn\nalgorithm: dream\niterations: 5\n")
    assert load(path, ["seed=3"]).seed == 3
    written(tmp_path, "game: kuhn\nalgoritm: dream\n")
    with pytest.raises(ConfigError) as caught:
        load(path)
    message = str(caught.value)
    assert all(part in message for part in ("mine.yaml", "'algoritm'", "'algorithm'", "iterations is missing"))


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("- 1\n- 2\n", "no keys and values"),
        ("", "no keys and values"),
        ("game: [\n", "not valid YAML"),
        ("seed: 1\nseed: 2\n", "appears twice"),
        ("!!python/object/apply:os.system ['true']\n", "not valid YAML"),
        ("game: kuhn\nalgorithm: dream\niterations: 5\nsampling: 3\n", "sampling must be a section"),
        ("1: 2\n", "the key 1 is int, not text. Allowed here: game, algorithm"),
        ("~: 3\n", "the key None is NoneType, not text"),
        ("sampling: {on: 3}\n", "the key True in sampling is bool, not text. Allowed here: sampling.traversals"),
        ("advantage: {network: {3: 1}}\n", "the key 3 in advantage.network is int, not text"),
        (f"game: {'[' * 3000}\n", "nested too deeply"),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, text: str, part: str) -> None:
    with pytest.raises(ConfigError, match=part):
        load(written(tmp_path, text))


def test_missing_files_and_unknown_presets_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no configuration file"):
        load(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match="unknown preset 'leduc-draem'; did you mean 'leduc-dream'"):
        load("leduc-draem")


CHANGES: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "seed": st.integers(0, 2**63 - 1),
        "game": st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1),
        "sampling": st.fixed_dictionaries(
            {},
            optional={
                "epsilon": st.floats(0, 1, exclude_min=True),
                "traversals": st.integers(1, 10**8),
                "updates": st.sampled_from(["alternating", "simultaneous"]),
            },
        ),
        "advantage": st.fixed_dictionaries(
            {},
            optional={
                "network": st.fixed_dictionaries(
                    {
                        "hidden": st.lists(st.integers(1, 512), min_size=1, max_size=4),
                        "layer_norm": st.booleans(),
                    }
                ),
                "fine_tune_steps": st.none() | st.integers(1, 100),
                "learning_rate": st.floats(1e-12, 1),
            },
        ),
    },
)


@given(CHANGES, st.booleans())
def test_written_yaml_reads_back_equal(changes: dict[str, Any], comments: bool) -> None:
    config = configuration.merged(configuration.from_mapping(MINIMAL), changes)
    text = configuration.to_yaml(config, comments=comments)
    values = configuration.parse(text)
    assert configuration.from_mapping(values) == config


def test_nearest_ignores_case_and_admits_ignorance() -> None:
    assert configuration.nearest("Leduc-Dream", ["leduc-dream", "kuhn-dream"]) == "leduc-dream"
    assert configuration.nearest("zzz", ["leduc-dream"]) is None


def test_config_type_is_public() -> None:
    import dream

    assert dream.RunConfig is RunConfig
    assert dream.load("kuhn-dream").game == "kuhn"
    with pytest.raises(AttributeError, match="tarin"):
        _ = dream.tarin
