"""The command line: ``pyes train | evaluate | replay | plot | table | map | video | export | worker | launch | …``.

Owns arguments, exit statuses and the form of errors: one line on standard error, status 2 (bad input) or 1 (failure), a
traceback only with ``--debug``. Standard output is for results. Only `pyes.cli.train` knows Hydra, and
`pyes.cli.hydra_errors` its errors. A command imports what it needs when it runs, so that ``pyes --help`` is fast.
"""

from pyes.cli.entry import main

__all__ = ["main"]
