"""From the arguments of a process to its exit status.

Owns exit statuses, ``--debug``, and the choice of the command.
"""

import os
import sys
import traceback
from collections.abc import Sequence

from pyes.cli.output import describe
from pyes.errors import PyesError
from pyes.system.lifetime import raising_stop

_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status: 0, 1 (failure), 2 (bad input) or 130 (interrupted)."""
    arguments, training = _split(list(sys.argv[1:] if argv is None else argv))
    debug = "--debug" in arguments
    sys.path.insert(0, "")  # as with `python -m pyes`: the user's own modules are in the current folder
    _one_thread_per_process()
    try:
        with raising_stop():
            _run([each for each in arguments if each != "--debug"], training)
        if sys.stdout is not None:
            sys.stdout.flush()
        return 0
    except SystemExit as end:  # raised by argparse and Hydra, for example after --help
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:  # the reader of the output has closed it, as in `pyes info | head -1`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if debug:
            traceback.print_exc()
        if sys.stderr is not None:  # otherwise print would use standard output
            print(f"pyes: error: {describe(error)}", file=sys.stderr)
        return error.exit_status if isinstance(error, PyesError) else 1


def _one_thread_per_process() -> None:
    """Keep numeric libraries from starting threads; must be called before NumPy is imported."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Split off the arguments after ``launch ... --``, which belong to the launched command."""
    if "launch" not in arguments[:2] or "--" not in arguments:  # --debug may come first
        return arguments, []
    end = arguments.index("--")
    return arguments[:end], arguments[end + 1 :]


def _run(arguments: list[str], training: list[str]) -> None:
    if arguments[:1] == ["train"]:  # the rest is Hydra's
        from pyes.cli import train

        train.run(arguments[1:])
        return
    from pyes.cli import commands  # imported late, since training does not need them
    from pyes.cli.arguments import check_runs

    options = commands.make_parser().parse_args(arguments)
    check_runs(options)  # before what a command imports, which takes long
    options.before, options.training = arguments, training
    options.command(options)
