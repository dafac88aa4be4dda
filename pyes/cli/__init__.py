"""The command line: ``pyes train | evaluate | replay | plot | table | map | video | export | worker | launch | …``.

Owns arguments, exit statuses and what an error looks like: one line on standard error, status 2 (bad input) or 1
(failure), a traceback only with ``--debug``. Standard output is for results. `pyes.cli.train` alone knows Hydra. A
command's imports are made when it runs, so that ``pyes --help`` waits for none of them.
"""

from pyes.cli.entry import main

__all__ = ["main"]
