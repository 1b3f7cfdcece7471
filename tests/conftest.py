"""For tests of every folder: places where a run can lie, games that are probed once, no limits that a clock sets."""

import importlib.util
import os
import uuid
from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
from oracles import s3_server

hypothesis.settings.register_profile("without a clock", deadline=None)
hypothesis.settings.load_profile("without a clock")


@pytest.fixture(scope="session", autouse=True)
def probed_once() -> Iterator[None]:
    """What a probe found is kept for all that load the game in this process; a game that it refuses is probed again.

    Thousands of episodes are played each time, and always the same ones.
    """
    from actors.games import registry

    found: dict[Any, Any] = {}
    probe = registry.probe

    def once(game: Any, description: Any) -> Any:
        if description not in found:
            found[description] = probe(game, description)
        return found[description]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "probe", once)
        yield


@pytest.fixture(scope="session")
def s3() -> Iterator[None]:
    """An S3 server, found through the environment by this process and by those that it starts."""
    if importlib.util.find_spec("s3fs") is None or importlib.util.find_spec("moto") is None:
        pytest.skip("s3fs and moto are not installed")
    import fsspec

    with s3_server.running() as variables:
        before = dict(os.environ)
        os.environ.pop("AWS_PROFILE", None)
        os.environ.update(variables)
        fsspec.get_filesystem_class("s3").clear_instance_cache()
        yield
        os.environ.clear()
        os.environ.update(before)


@pytest.fixture
def bucket(s3: None) -> str:
    """The URL of a fresh bucket."""
    import fsspec

    name = f"bucket-{uuid.uuid4().hex[:12]}"
    fsspec.filesystem("s3", use_listings_cache=False).mkdir(name)
    return f"s3://{name}"


@pytest.fixture
def in_memory() -> str:
    """The URL of a fresh folder in this process."""
    return f"memory://{uuid.uuid4().hex[:12]}"
