"""Every preset can be joined into a running system, and says how large it gets."""

import pytest

from dream import config, wiring


@pytest.mark.slow
def test_every_preset_builds_its_system() -> None:
    names = config.preset_names()
    assert len(names) >= 30  # Kuhn and Leduc, five algorithms, three settings
    for name in names:
        settings = config.load(name)
        system = wiring.System.build(config.resolve(settings))
        sizes = wiring.sizes(system)
        assert all(row["rows"] > 0 and row["bytes"] > 0 for row in sizes), name
        assert ("transitions" in {row["part"] for row in sizes}) == (settings.algorithm in ("dream", "dream-avg"))
        networked = settings.algorithm in ("dream-avg", "deep-cfr")
        assert ("strategy rows, player 0" in {row["part"] for row in sizes}) == networked
