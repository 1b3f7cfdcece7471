"""The presets: all there, readable, and as published where they say so."""

from __future__ import annotations

import itertools

import pytest

from dream import config as configuration
from dream.methods import METHODS

NAMES = [
    f"{game}-{algorithm}{kind}"
    for game, algorithm, kind in itertools.product(
        ("kuhn", "leduc"), ("dream", "sd-cfr", "os-sd-cfr", "deep-cfr", "dream-avg"), ("", "-paper", "-quick")
    )
]
LEDUC_PAPER = [name for name in NAMES if name.startswith("leduc") and name.endswith("-paper")]


@pytest.mark.parametrize("name", NAMES)
def test_preset_is_what_its_name_says(name: str) -> None:
    config = configuration.load(name)
    plain = name.removesuffix("-paper").removesuffix("-quick")
    assert plain == f"{config.game}-{config.algorithm}"
    text = configuration.preset_text(name)
    assert text.startswith("# ")
    assert configuration.preset_summary(name).endswith("on 2 cores.")
    assert ("published settings" in text) == name.endswith("-paper")
    assert configuration.from_mapping(configuration.parse(configuration.to_yaml(config))) == config


def test_there_are_no_presets_that_the_table_does_not_know() -> None:
    assert set(NAMES) <= set(configuration.preset_names())


@pytest.mark.parametrize("name", LEDUC_PAPER)
def test_paper_presets_hold_the_published_numbers(name: str) -> None:
    config = configuration.load(name)
    external = METHODS[config.algorithm].sampler == "external"
    assert config.sampling.traversals == (346 if external else 900)
    assert config.sampling.epsilon == 0.5
    advantage, baseline = config.advantage, config.baseline
    assert advantage.network.hidden == baseline.network.hidden == (64, 64, 64)
    assert (advantage.buffer, advantage.capacity, advantage.reset_every) == ("reservoir", 2_000_000, 1)
    assert (advantage.steps, advantage.batch, advantage.learning_rate, advantage.clip) == (
        3000,
        2048,
        1e-3,
        1,
    )
    assert (baseline.steps, baseline.batch, baseline.capacity, baseline.merge) == (1000, 512, 200_000, False)
    if METHODS[config.algorithm].average == "network":
        assert (config.average.loss, config.average.capacity, config.average.batch) == (
            "mse",
            2_000_000,
            2048,
        )


def test_quick_presets_are_shorter() -> None:
    for name in (each for each in NAMES if each.endswith("-quick")):
        quick, full = configuration.load(name), configuration.load(name.removesuffix("-quick"))
        assert quick.iterations < full.iterations, name


def test_methods_agree_with_the_configuration() -> None:
    assert list(METHODS) == [row.name for row in METHODS.values()]
    for name, method in METHODS.items():
        assert f"leduc-{name}" in NAMES
        overrides = [f"algorithm={name}", "sampling.backend=simulator", "baseline.merge=true"]
        refused = False
        try:
            configuration.load("leduc-sd-cfr-paper", overrides)
        except configuration.ConfigError:
            refused = True
        assert refused == method.baseline, name
        merged = configuration.load("leduc-sd-cfr-paper", [f"algorithm={name}", "average.buffer=merged"])
        assert bool(configuration.tree_settings(merged)) == (method.average == "network"), name
