"""Kernels broken on purpose: a kernel module's source with one line changed, run by the interpreter."""

import types
from pathlib import Path

COMPILED = "from dream.laboratory.kernels.compilation import kernel\n"


def mutated(module, *changes):
    """The module with every (old, new) of `changes` made, its own functions not compiled; old occurs exactly once."""
    source = Path(module.__file__).read_text(encoding="utf-8")
    for old, new in ((COMPILED, "kernel = lambda function: function\n"), *changes):
        assert source.count(old) == 1, f"{old!r} occurs {source.count(old)} times in {module.__name__}"
        source = source.replace(old, new)
    result = types.ModuleType(f"{module.__name__}_mutated")
    result.__file__ = module.__file__
    exec(compile(source, result.__name__, "exec"), result.__dict__)
    return result
