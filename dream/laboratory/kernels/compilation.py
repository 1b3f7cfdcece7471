"""How the loops are compiled, and where the compiled code is kept.

Compiled code is kept in $DREAM_CACHE/kernels (else in $XDG_CACHE_HOME/dream or ~/.cache/dream), never beside the
sources, which may be read-only, and in a folder named by a digest of this package's sources: numba by itself does not
notice that a function which another file's loop calls has changed. Where that folder cannot be written, every process
compiles anew.
"""

import hashlib
import os
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.core import config

Function = TypeVar("Function", bound=Callable[..., Any])


def kernel(function: Function) -> Function:
    """`function` compiled without Python objects and the interpreter's lock; kept on disk where that is possible."""
    folder = cache_folder()
    before = config.CACHE_DIR
    config.CACHE_DIR = str(folder or "")
    try:
        compiled = numba.njit(nogil=True, error_model="numpy", cache=folder is not None)(function)
    finally:
        config.CACHE_DIR = before
    return cast(Function, compiled)


@cache
def cache_folder() -> Path | None:
    """Where this version's compiled code is kept; None where nothing can be written."""
    try:
        base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        root = Path(os.environ.get("DREAM_CACHE") or str(Path(base) / "dream"))
        folder = root / "kernels" / _version()
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except (OSError, RuntimeError):  # RuntimeError: there is no home
        return None


def _version() -> str:
    """Digest of all sources that are compiled, and of numba's version."""
    digest = hashlib.blake2b(numba.__version__.encode(), digest_size=8)
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()
