"""Training: how a run begins, is resumed and ends, its loop, and its display."""

from pyes.training.loop import RunResult, train

__all__ = ["RunResult", "train"]
