"""What a run tells while it trains: metrics.jsonl, TensorBoard and progress, all written from here only."""

from dream.telemetry.progress import Progress, make_progress
from dream.telemetry.recorder import Recorder
from dream.telemetry.report import IterationReport, deterministic_view
from dream.telemetry.tensorboard import BoardWriter

__all__ = ["BoardWriter", "IterationReport", "Progress", "Recorder", "deterministic_view", "make_progress"]
