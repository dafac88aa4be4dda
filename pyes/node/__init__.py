"""One machine: a pool of worker processes around a board in shared memory, and what keeps them alive.

Must not know other machines or the run's state.
"""
