"""Plots and inspection of runs made by hand on disk."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from dream import cli, config, inspection, plotting
from dream.errors import UsageError
from dream.store import RunFolder

PNG = b"\x89PNG\r\n\x1a\n"


def make_run(path: Path, unit: str = "mA/g", evaluated: bool = True) -> Path:
    """Six iterations of Kuhn with an evaluation at every second one, and one commit."""
    run = RunFolder.create(path, config.to_yaml(config.load("kuhn-sd-cfr-quick")))
    for player in (0, 1):
        entries = [{"w": np.full(3, t, "<f4")} for t in range(1, 7)]
        run.networks.put_segment(f"advantage_{player}", 1, entries)
    for t in range(1, 7):
        record: dict[str, object] = {"iteration": t, "states": 50 * t, "seconds": 0.1 * t, "buffer_fill": 0.5}
        if evaluated and t % 2 == 0:
            chips = 1.0 / t
            record |= {"exploitability_chips": chips, "exploitability_milli": 1000 * chips, "unit": unit}
            record |= {"nash_conv_chips": 2 * chips, "average": "bank"}
        run.metrics.append(record)
    run.metrics.close()
    run.checkpoints.commit(6, {"loop": {"iteration": 6}})
    return path


def test_curve_is_read_against_each_axis(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    assert plotting.read_curve(run, "states").x == [100, 200, 300]
    assert plotting.read_curve(run, "iterations").x == [2, 4, 6]
    assert plotting.read_curve(run, "seconds").x == pytest.approx([0.2, 0.4, 0.6])
    assert plotting.read_curve(run, "states").exploitability_milli == pytest.approx([500, 250, 1000 / 6])


@pytest.mark.parametrize("log", [False, True])
def test_picture_has_a_legend_and_units(tmp_path: Path, log: bool) -> None:
    runs = [make_run(tmp_path / name) for name in ("first-seed", "second-seed")]
    plotting.draw(runs, tmp_path / "new" / "curve.svg", log=log)
    plotting.draw(runs, tmp_path / "curve.png", log=log)
    assert (tmp_path / "curve.png").read_bytes().startswith(PNG)
    # matplotlib draws text as outlines and keeps the text itself in comments
    svg = (tmp_path / "new" / "curve.svg").read_text()
    for text in ("first-seed", "second-seed", "exploitability (mA/g)", "states visited"):
        assert text in svg


def test_plots_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    first, second = make_run(tmp_path / "a"), make_run(tmp_path / "b", unit="mbb/g")
    with pytest.raises(UsageError, match="mA/g, mbb/g"):
        plotting.draw([first, second], tmp_path / "curve.png")
    with pytest.raises(UsageError, match=r"no evaluations to plot: train with evaluation\.every above 0"):
        plotting.draw([make_run(tmp_path / "c", evaluated=False)], tmp_path / "curve.png")
    assert not (tmp_path / "curve.png").exists()


def test_plot_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, picture = make_run(tmp_path / "run"), tmp_path / "curve.png"
    with pytest.raises(SystemExit) as left:
        cli.main(["plot", str(run), "--x", "iterations", "-o", str(picture)])
    assert left.value.code == 0
    assert picture.exists()
    assert "mA/g against iterations" in capsys.readouterr().out


def inspect(*arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    with pytest.raises(SystemExit) as left:
        cli.main(["inspect", *arguments])
    return int(left.value.code or 0), capsys.readouterr().out


def test_inspect_tells_where_a_run_stands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path / "run")
    status, out = inspect(str(run), "--json", "--verify", capsys=capsys)
    document = json.loads(out)
    assert status == 0
    assert (document["game"], document["algorithm"], document["damaged"]) == ("kuhn", "sd-cfr", [])
    assert (document["completed_iterations"], document["newest_commit"]) == (6, 6)
    assert document["last_evaluation"]["iteration"] == 6
    assert document["newest_metrics"]["buffer_fill"] == 0.5
    sizes = document["disk_bytes"]
    assert sizes["total"] == sum(size for name, size in sizes.items() if name != "total")
    assert sizes["metrics.jsonl"] == (run / "metrics.jsonl").stat().st_size
    assert "newest_commit: 6" in inspect(str(run), capsys=capsys)[1]


def test_verify_finds_a_flipped_bit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path / "run")
    victim = next((run / "iterations" / "advantage_1").glob("*.frame"))
    content = bytearray(victim.read_bytes())
    content[-1] ^= 1
    victim.write_bytes(bytes(content))
    status, out = inspect(str(run), "--verify", "--json", capsys=capsys)
    assert status == 1
    assert any(victim.name in each for each in json.loads(out)["damaged"])
    assert inspect(str(run), capsys=capsys)[0] == 0


def test_strategy_at_a_state_is_found_by_its_string() -> None:
    import pyspiel
    from open_spiel.python.policy import UniformRandomPolicy

    policy = UniformRandomPolicy(pyspiel.load_game("kuhn_poker"))
    found = inspection.state_strategy(policy, "2pb")
    assert (found["player"], found["state"]) == (0, "2pb")
    assert [each["probability"] for each in found["actions"]] == [0.5, 0.5]
    assert [each["name"] for each in found["actions"]] == ["Pass", "Bet"]
    with pytest.raises(UsageError, match="did you mean '2pb'"):
        inspection.state_strategy(policy, "2pbb")


def test_search_of_a_huge_game_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    import pyspiel
    from open_spiel.python.policy import UniformRandomPolicy

    monkeypatch.setattr(inspection, "_SEARCH_LIMIT", 10)
    with pytest.raises(UsageError, match="first 10 histories"):
        inspection.state_strategy(UniformRandomPolicy(pyspiel.load_game("kuhn_poker")), "2pb")
