"""Whether another process, on another node, sees the same run folder: a token is put there and asked for elsewhere."""

import contextlib
import secrets
import socket
from collections.abc import Iterator

from dream.store.errors import RunFolderError
from dream.store.places import at, locate
from dream.store.run_folder import RunFolder

_PREFIX = "visible-"


@contextlib.contextmanager
def token_in(run: RunFolder) -> Iterator[str]:
    """Puts a fresh token into the run for as long as the block lasts; the caller holds the run's lock.

    Ask `unseen(str(run.path), token)` inside the block on every node. Raises RunFolderError where the folder takes
    no file.
    """
    token = secrets.token_hex(8)
    place = at(run.path / f"{_PREFIX}{token}")  # a new name: nodes may remember for a while that a file is not there
    try:
        place.write([token.encode()])
    except OSError as error:
        raise RunFolderError(f"cannot write to {run.path}: {error.strerror}") from error
    try:
        yield token
    finally:
        with contextlib.suppress(OSError):
            place.remove()


def unseen(run_dir: str, token: str) -> str | None:
    """Why this process does not see the token that another one put into `run_dir`; None where it does."""
    host = socket.gethostname()
    try:
        place = at(locate(run_dir) / f"{_PREFIX}{token}")
        seen = place.read() == token.encode()
    except FileNotFoundError:
        seen = False
    except OSError as error:
        return f"{host} cannot read {run_dir}: {error.strerror}"
    if seen:
        return None
    return f"{host} does not see the run folder {run_dir}, which is not on storage that all nodes share"
