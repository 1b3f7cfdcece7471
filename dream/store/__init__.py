"""Everything a run leaves on disk: its folder, every iteration's networks, and its commits."""

from dream.store.checkpoint import CheckpointStore, Commit
from dream.store.errors import (
    CheckpointError,
    MetricsError,
    NetworkStoreError,
    RunFolderError,
    StorageError,
    StoreError,
)
from dream.store.iterations import ADVANTAGES, NetworkStore
from dream.store.metrics import MetricsLog
from dream.store.run_folder import RunFolder

__all__ = [
    "ADVANTAGES",
    "CheckpointError",
    "CheckpointStore",
    "Commit",
    "MetricsError",
    "MetricsLog",
    "NetworkStore",
    "NetworkStoreError",
    "RunFolder",
    "RunFolderError",
    "StorageError",
    "StoreError",
]
