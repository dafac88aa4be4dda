"""Several machines: the head's side and the node's side of one conversation, and how nodes are kept in step.

Must not know the training loop. ``wire/`` has the messages and their bytes.
"""
