"""The errors that pyes raises on purpose.

    PyesError                exit status 1   something failed while running
    ├── ConfigError          exit status 2   the user's input cannot be used
    │   └── RunDirectoryError                a run directory is missing, damaged or not writable
    │       └── JournalError                 its journal is missing, damaged, or not of this run
    ├── TaskError            exit status 1   the environment failed
    ├── DivergedError        exit status 1   theta is not finite any more
    ├── ClusterError         exit status 1   workers or nodes failed
    └── ProtocolError        exit status 1   the other end of a connection sent what it must not

Every message is one line: what happened, where, what was got and expected, and what to try. The command line prints
that line and nothing else; a traceback needs ``--debug``.
"""


class PyesError(Exception):
    """Base of all errors that pyes raises on purpose."""

    exit_status = 1


class ConfigError(PyesError):
    """A configuration, argument or input file that cannot be used."""

    exit_status = 2


class RunDirectoryError(ConfigError):
    """A run directory that is missing, incomplete, damaged or not writable."""


class JournalError(RunDirectoryError):
    """A journal that is missing, damaged, or that does not lead to the recorded theta."""


def missing(what: str, packages: str, extra: str, error: Exception, advice: str = "") -> ConfigError:
    """Return the refusal of what needs an extra that is not installed.

    Parameters
    ----------
    what        that needs it
    packages    their names on the index, with " and " between two
    extra       that brings them
    error       why they cannot be imported
    advice      what else to know or to try, after the command
    """
    noun = "packages" if " and " in packages else "package"
    return ConfigError(f"{what} needs the {noun} {packages}: pip install 'pyes-rl[{extra}]'{advice} ({error})")


class TaskError(PyesError):
    """An environment that could not be made, or that failed too often."""


class DivergedError(PyesError):
    """An update after which theta, or the deviation of its perturbations, is not finite any more."""


class ClusterError(PyesError):
    """Workers or nodes that failed beyond repair."""


class ProtocolError(PyesError):
    """Bytes or a message from the other end of a connection that are not what the protocol allows there."""


class RefusedError(ClusterError):
    """A head that does not let this node in, or that this node does not trust."""

    exit_status = 3
