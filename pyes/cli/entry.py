"""From the arguments of a process to its exit status.

Owns exit statuses, ``--debug``, and the choice of the command.
"""

import io
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Sequence

from pyes.cli.output import describe, unwritten
from pyes.errors import PyesError
from pyes.system.lifetime import INTERRUPTED, raising_stop
from pyes.system.text import counted, tell

#: The terminal was closed; Windows has no such signal.
_CLOSED = tuple(signal.Signals[name] for name in ("SIGHUP",) if name in signal.Signals.__members__)
_THREAD_SECONDS = 5.0  # that threads of an environment may take to end


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status: 0, 1 (failure), 2 (bad input), 3 (a head refuses it) or 130.

    Without arguments those of the process are taken, which then ends within some seconds, whatever threads it has.
    """
    status = _status(argv)
    others = [each for each in threading.enumerate() if each is not threading.current_thread() and not each.daemon]
    if argv is None and others:  # Python waits for them
        threading.Thread(target=_end_without, args=(others, status), daemon=True).start()
    return status


def _end_without(threads: list[threading.Thread], status: int) -> None:
    """End this process if threads of an environment keep it."""
    time.sleep(_THREAD_SECONDS)
    left = [each.name for each in threads if each.is_alive()]
    if left:
        text = f"{counted(len(left), 'thread')} of an environment ({', '.join(left)})"
        tell(
            f"pyes: ended {text} {_THREAD_SECONDS:g} s after the last line; let close() end threads, or make them "
            "daemons"
        )
    os._exit(status)


def _status(argv: Sequence[str] | None) -> int:
    arguments, training = _split(list(sys.argv[1:] if argv is None else argv))
    debug = "--debug" in arguments
    sys.path.insert(0, "")  # as with `python -m pyes`: the user's own modules are in the current folder
    _one_thread_per_process()
    _hear_of_children()
    if isinstance(sys.stdout, io.TextIOWrapper):  # a letter that the terminal lacks costs no result
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        with raising_stop(*_stopping(arguments)):
            status = _exit_status([each for each in arguments if each != "--debug"], training)
        if sys.stdout is not None:
            sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        if not (debug or isinstance(error, PyesError)) and _interrupted(error):
            return INTERRUPTED
        blocked = unwritten()
        if isinstance(error, OSError) and blocked is not None:
            for note in getattr(error, "__notes__", []):
                blocked.add_note(note)
            error = blocked
        if isinstance(error, BrokenPipeError):  # the reader of the output has closed it, as in `pyes info | head -1`
            return 1
        if debug:
            traceback.print_exc()
        tell(f"pyes: error: {describe(error)}")
        return error.exit_status if isinstance(error, PyesError) else 1


def _interrupted(error: BaseException | None) -> bool:
    """Whether a Ctrl-C led to an error, as in argparse, which tidies up what it has not set up yet."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def _exit_status(arguments: list[str], training: list[str]) -> int:
    """Run the command; return its exit status where it says one, as argparse and Hydra do after ``--help``."""
    try:
        _run(arguments, training)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


def _stopping(arguments: list[str]) -> tuple[signal.Signals, ...]:
    """Return the signals that stop a command which runs environments, so that it leaves nothing half-made.

    A run answers SIGTERM itself, from when there is something to save; before that, it ends at once.
    """
    given = set(arguments[:2])  # --debug may come first
    if given & {"train", "tune"}:
        return (signal.SIGINT,)
    if given & {"evaluate", "replay", "video", "map", "report", "check-environment"}:
        return signal.SIGINT, signal.SIGTERM, *_CLOSED
    return ()


def _one_thread_per_process() -> None:
    """Keep numeric libraries from starting threads; must be called before NumPy is imported."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")


def _hear_of_children() -> None:
    """Have the kernel say how children end: the program that started this one may ignore that, which is inherited."""
    main = threading.current_thread() is threading.main_thread()  # others cannot set handlers
    if main and sys.platform != "win32" and signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)


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
