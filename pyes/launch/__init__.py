"""``pyes launch``: a head and its nodes, started together over SSH or by Slurm, and ended together.

Knows the commands ``pyes train`` and ``pyes worker`` and their arguments, nothing of what they do.
"""
