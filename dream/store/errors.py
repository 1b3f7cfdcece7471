"""What the store raises: one sentence that names the path and says what to do."""

from dream.errors import DreamError, UsageError


class StoreError(DreamError):
    """Something on disk is missing, damaged, taken or full."""


class StorageError(StoreError, OSError):
    """Object storage refused, or could not be reached: nothing is known of what lies there."""

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"


class RunFolderError(StoreError, UsageError):
    """The folder is not a run, holds something else, or is being written by another process."""


class MetricsError(StoreError):
    """metrics.jsonl holds a line that no writer of ours wrote."""


class NetworkStoreError(StoreError):
    """Stored networks are missing, damaged or do not follow each other."""


class CheckpointError(StoreError):
    """A commit could not be written, or none can be read."""
