"""Ray as the backend: the only module that imports it."""

from __future__ import annotations

import os
import re
import signal
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import ray
from ray.autoscaler.sdk import request_resources
from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayActorError, RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from dream.errors import DreamError
from dream.runtime.backend import Asked, Handle, NodeResources, PartLostError, Reference

_GIB = 2**30
_CONNECT_SECONDS = 20.0
_SILENCE_SECONDS = 3600.0
_SETTLE_SECONDS = 60.0  # Ray takes a node for dead after some 15 seconds


class ClusterError(DreamError):
    """There is no cluster where the run was sent to."""


class Host:
    """The process of a part: an actor that makes it and calls its methods, one after another.

    It is made by the first call, so that what goes wrong is raised as it is: an actor cannot tell why it did not start.
    """

    def __init__(self, make: Callable[..., Any], args: Sequence[Any]) -> None:
        self._make = make
        self._args = args

    @cached_property
    def _part(self) -> Any:
        return self._make(*self._args)

    def call(self, method: str, *args: Any) -> Any:
        """Calls a method of the part."""
        return getattr(self._part, method)(*args)


class RayBackend:
    """The processes of one run on a Ray cluster. Made by `connect`; `close` ends them all."""

    def __init__(self, owned: bool, silence_seconds: float) -> None:
        self._owned = owned
        self._silence_seconds = silence_seconds
        self._handles: list[Handle] = []
        self._names: dict[str, str] = {}  # by Ray's id
        self._unreached: set[str] = set()  # Ray's ids
        self._host = ray.remote(Host)

    @classmethod
    def connect(cls, address: str | None, workers: int, silence_seconds: float = _SILENCE_SECONDS) -> RayBackend:
        """Joins the cluster at `address` (or that of the Ray job this is part of), or starts one on this machine.

        `workers`: how many a cluster of our own must have CPUs for, at least; `silence_seconds`: when what gives no
        answer is taken for lost. Raises ClusterError where there is no cluster.
        """
        quiet = {"log_to_driver": False, "configure_logging": False}
        address = address or os.environ.get("RAY_ADDRESS")
        if ray.is_initialized():
            return cls(False, silence_seconds)
        try:
            with _own_signals():
                if address is None:  # "local": not the one that may run here already
                    cpus = max(workers, os.cpu_count() or 1)
                    ray.init(address="local", num_cpus=cpus, include_dashboard=False, **quiet)
                else:
                    _await_head(address)
                    ray.init(address=address, **quiet)
        except (OSError, RuntimeError, ValueError) as error:
            where = address or "this machine"
            raise ClusterError(f"no Ray cluster at {where}: {_in_short(error)}") from error
        return cls(True, silence_seconds)

    def spawn(self, name: str, make: Callable[..., Any], args: Sequence[Any], asked: Asked) -> Handle:
        """See `Backend.spawn`. A node that is gone by then is replaced by any other."""
        options: dict[str, Any] = {"num_cpus": asked.cpus, "num_gpus": asked.gpus, "memory": asked.bytes or None}
        if asked.node is not None:
            options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(asked.node, soft=True)
        options["name"] = f"{name}.{uuid.uuid4().hex[:8]}"  # in Ray's lists; there a name is one actor's
        handle = self._host.options(**options).remote(make, args)
        self._handles.append(handle)
        self._names[handle._actor_id.hex()] = name
        return handle

    def call(self, handle: Handle, method: str, *args: Any) -> Reference:
        """See `Backend.call`."""
        return handle.call.remote(method, *args)

    def call_for(self, count: int, handle: Handle, method: str, *args: Any) -> list[Reference]:
        """See `Backend.call_for`."""
        references: list[Reference] = handle.call.options(num_returns=count).remote(method, *args)
        return references

    def put(self, value: Any) -> Reference:
        """See `Backend.put`."""
        with self._losses():
            return ray.put(value)

    def get(self, references: Sequence[Reference]) -> list[Any]:
        """See `Backend.get`."""
        with self._losses():
            values: list[Any] = ray.get(list(references), timeout=self._silence_seconds)
        return values

    def wait(self, references: Sequence[Reference], seconds: float) -> list[Reference]:
        """See `Backend.wait`."""
        if not references:
            time.sleep(seconds)
            return []
        one, _ = ray.wait(list(references), num_returns=1, timeout=seconds, fetch_local=False)
        if not one:
            return []
        ready, _ = ray.wait(list(references), num_returns=len(references), timeout=0, fetch_local=False)
        return list(ready)

    def kill(self, handle: Handle) -> None:
        """See `Backend.kill`."""
        ray.kill(handle, no_restart=True)
        self._handles.remove(handle)

    def nodes(self) -> list[NodeResources]:
        """See `Backend.nodes`."""
        return [_resources(node) for node in ray.nodes() if node["Alive"]]

    def ask(self, parts: Sequence[Asked]) -> None:
        """See `Backend.ask`."""
        request_resources(bundles=[_shape(part) for part in parts])

    def room(self, asked: Asked) -> int:
        """See `Backend.room`."""
        free = ray.available_resources()
        return min(int(free.get(name, 0.0) / amount) for name, amount in _shape(asked).items())

    def describe(self) -> str:
        """See `Backend.describe`."""
        total, free = ray.cluster_resources(), ray.available_resources()
        nodes = len(self.nodes())
        parts = [f"{nodes} node{'' if nodes == 1 else 's'}"]
        parts += [f"{free.get(what, 0):g} of {total.get(what, 0):g} {what}s free" for what in ("CPU", "GPU")]
        return ", ".join([*parts, f"{total.get('memory', 0) / _GIB:.1f} GiB of memory"])

    def usage(self) -> dict[str, float]:
        """See `Backend.usage`."""
        total, free = ray.cluster_resources(), ray.available_resources()
        store = total.get("object_store_memory", 0.0)
        return {
            "cluster/cpus": total.get("CPU", 0.0),
            "cluster/gpus": total.get("GPU", 0.0),
            "cluster/nodes": float(len(self.nodes())),
            "cluster/object_store_used_bytes": store - free.get("object_store_memory", store),
        }

    def close(self) -> None:
        """See `Backend.close`."""
        self._settle()
        for handle in list(self._handles):
            self.kill(handle)
        if self._owned:
            ray.shutdown()

    @contextmanager
    def _losses(self) -> Iterator[None]:
        """Ray's errors as ours: what a called method raised as it was, everything else as something lost."""
        try:
            yield
        except GetTimeoutError as error:
            limit = f"runtime.silence_timeout_seconds={self._silence_seconds:g}"
            raise PartLostError(f"a learner or shard gave no answer for {limit}") from error
        except RayTaskError as error:
            cause = error.cause
            raise self._lost(cause) if isinstance(cause, RayError) else cause from error
        except RayError as error:
            raise self._lost(error) from error

    def _settle(self) -> None:
        """Until Ray knows what became of those it did not reach: what comes next must not be put on a dead node."""
        deadline = time.monotonic() + _SETTLE_SECONDS
        for handle in self._handles:
            while handle._actor_id.hex() in self._unreached and time.monotonic() < deadline:
                try:
                    ray.get(handle.__ray_ready__.remote(), timeout=1.0)
                except (ActorUnavailableError, GetTimeoutError):
                    time.sleep(0.1)
                except RayError:  # dead, and known to be
                    break
                else:
                    break

    def _lost(self, error: RayError) -> PartLostError:
        if isinstance(error, ActorUnavailableError):
            self._unreached.add(error.actor_id or "")
        name = self._names.get(error.actor_id or "") if isinstance(error, RayActorError) else None
        return PartLostError(f"{type(error).__name__}: {_reason(error)}", name)


def _await_head(address: str) -> None:
    """Until HOST:PORT listens. OSError when it does not within seconds: Ray would try for a quarter of an hour."""
    host, _, port = address.rpartition(":")
    if "://" in address or not port.isdigit():
        return
    deadline = time.monotonic() + _CONNECT_SECONDS
    while True:
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_SECONDS).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)


def _resources(node: dict[str, Any]) -> NodeResources:
    cpus, gpus, memory = (node["Resources"].get(name, 0.0) for name in ("CPU", "GPU", "memory"))
    return NodeResources(node["NodeID"], cpus, gpus, int(memory), f"node {node['NodeManagerAddress']}")


def _shape(asked: Asked) -> dict[str, float]:
    """By Ray's names, without those that are 0."""
    amounts = {"CPU": asked.cpus, "GPU": asked.gpus, "memory": float(asked.bytes)}
    return {name: amount for name, amount in amounts.items() if amount}


@contextmanager
def _own_signals() -> Iterator[None]:
    """Keeps the program's handlers: Ray sets one that exits without a commit."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    previous = [signal.getsignal(number) for number in numbers]
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in zip(numbers, previous, strict=True):
                signal.signal(number, handler)


def _in_short(error: BaseException) -> str:
    """The kind of an error, the first line of its text, and the last, where a cause from another process stands."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return ": ".join([type(error).__name__, *dict.fromkeys([*lines[:1], *lines[-1:]])])


def _reason(error: RayError) -> str:
    """The first sentence of the last paragraph, where Ray gives the reason; before it come ids."""
    lines = [line for line in str(error).splitlines() if line[:1].strip()]
    return re.split(r"[.;] ", lines[-1])[0].rstrip(".") if lines else "no reason given"
