"""The wheel: built from the sources, unpacked elsewhere, it imports and finds its presets."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PACKAGES = ("buffers", "actors", "learners", "dream")
PROGRAM = """
import sys
from pathlib import Path
import buffers, actors, learners, dream
import dream.cli
from dream.config import load, preset_names
target = Path(sys.argv[1])
for package in (buffers, actors, learners, dream):
    assert Path(package.__file__).is_relative_to(target), package.__file__
assert "leduc-dream" in preset_names()
for name in preset_names():
    load(name)
import dream.wiring
assert dream.wiring.System.build(load("kuhn-dream-quick")).game.description.num_actions == 2
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built offline, by the setuptools of this environment, from a copy without build remains."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in (*PACKAGES, "pyproject.toml", "README.md", "LICENSE"):
        target = REPOSITORY / name
        assert target.exists(), f"{name} is missing from the repository"
        subprocess.run(["cp", "-r", target, source], check=True)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--no-index"),
            *("--quiet", "--disable-pip-version-check", "--wheel-dir", folder, source),
        ],
        text=True,
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("dream_cfr-*.whl")
    return built


@pytest.mark.slow
def test_the_wheel_ships_packages_presets_and_types(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    presets = [path.name for path in (REPOSITORY / "dream" / "presets").glob("*.yaml")]
    assert presets
    for name in [f"dream/presets/{preset}" for preset in presets] + [f"{package}/py.typed" for package in PACKAGES]:
        assert name in names
    sources = {str(p.relative_to(REPOSITORY)) for package in PACKAGES for p in (REPOSITORY / package).rglob("*.py")}
    assert {name for name in names if name.endswith(".py")} == sources
    entry = next(name for name in names if name.endswith("entry_points.txt"))
    assert "dream = dream.cli:main" in zipfile.ZipFile(wheel).read(entry).decode()


@pytest.mark.slow
def test_the_wheel_works_from_an_empty_folder(wheel: Path, tmp_path: Path) -> None:
    target, empty = tmp_path / "installed", tmp_path / "empty"
    empty.mkdir()
    install = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--quiet", "--target", target, wheel]
    done = subprocess.run([*install, "--disable-pip-version-check"], text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    program = f"import sys; sys.path.insert(0, {str(target)!r})\n{PROGRAM}"
    done = subprocess.run([sys.executable, "-c", program, str(target)], cwd=empty, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
