"""The process of a shard. It needs neither torch nor the game, and is not to load them: hundreds of MB each."""

import resource
import sys
from typing import Any

from buffers.buffer import Delta
from buffers.frames import Snapshot
from buffers.shard import Shard


class ShardService:
    """A shard that says what it costs."""

    def __init__(self, shard: Shard[Any]) -> None:
        self._shard = shard
        self.add = shard.add
        self.snapshot = shard.snapshot
        self.restore = shard.restore

    def delta(self, version: int) -> tuple[Delta | Snapshot, dict[str, int]]:
        """What a mirror that stands at `version` lacks, and the shard's numbers."""
        return self._shard.delta(version), self._shard.info() | {"rss_bytes": rss_bytes()}


def rss_bytes() -> int:
    """Resident memory of this process at its largest."""
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return largest if sys.platform == "darwin" else largest * 1024
