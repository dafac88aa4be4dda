"""Several machines: the head's side and the node's side of a connection, and how nodes are kept in step with the run.

Must not know the training loop. ``wire/`` has the messages and their bytes.
"""
