"""Training: how a run begins, is resumed and ends, its loop, and its display."""
