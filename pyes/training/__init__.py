"""How a run begins, goes on and ends: the loop, resuming, and what is displayed meanwhile."""

from pyes.training.loop import RunResult, train

__all__ = ["RunResult", "train"]
