"""One machine: a pool of worker processes around a board in shared memory, and what keeps them alive.

The *owner* of a pool is the process that enters it: that of a run which evaluates its own members, or that of a job
on a machine which `pyes worker` lends. Must not know other machines or the run's state.
"""
