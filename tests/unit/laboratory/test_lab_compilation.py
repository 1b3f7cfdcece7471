"""Compiled code is kept where it can be written, found again, and never taken from other sources."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dream.laboratory.kernels import compilation

PROGRAM = """
from dream.laboratory.kernels.randomness import mix
import numpy as np
mix(np.uint64(3))
print(sum(mix.stats.cache_hits.values()), sum(mix.stats.cache_misses.values()))
"""


@pytest.fixture
def folder_of(monkeypatch):
    """What `cache_folder` finds under some $DREAM_CACHE."""

    def find(root):
        monkeypatch.setenv("DREAM_CACHE", str(root))
        compilation.cache_folder.cache_clear()
        return compilation.cache_folder()

    yield find
    compilation.cache_folder.cache_clear()


def test_the_folder_is_named_by_the_sources(folder_of, tmp_path, monkeypatch):
    folder = folder_of(tmp_path)
    assert folder is not None
    assert folder.parent == tmp_path / "kernels"
    assert folder_of(tmp_path) == folder
    copy = tmp_path / "sources"
    copy.mkdir()
    for source in Path(compilation.__file__).parent.glob("*.py"):
        (copy / source.name).write_bytes(source.read_bytes())
    monkeypatch.setattr(compilation, "__file__", str(copy / "compilation.py"))
    assert folder_of(tmp_path) == folder
    (copy / "chance.py").write_text("changed")
    assert folder_of(tmp_path) != folder


def test_without_a_folder_kernels_compile_all_the_same(folder_of, tmp_path):
    file = tmp_path / "file"
    file.write_text("no folder")
    assert folder_of(file) is None

    @compilation.kernel
    def double(x: int) -> int:
        return 2 * x

    assert double(21) == 42


def test_a_user_without_a_home_compiles_all_the_same(folder_of, monkeypatch):
    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert folder_of("") is None


@pytest.mark.slow
def test_a_second_process_finds_the_compiled_code(tmp_path):
    environment = os.environ | {"DREAM_CACHE": str(tmp_path)}
    done = [
        subprocess.run([sys.executable, "-c", PROGRAM], env=environment, text=True, capture_output=True, check=True)
        for _ in range(2)
    ]
    assert [run.stdout.split() for run in done] == [["0", "1"], ["1", "0"]]
