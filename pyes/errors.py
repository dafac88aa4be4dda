"""The exceptions of pyes.

    PyesError                exit status 1   something failed while running
    ├── ConfigError          exit status 2   the user's input cannot be used
    │   ├── StorageError     exit status 1   a disk is full or fails
    │   └── RunDirectoryError                a run directory is missing, damaged or not writable
    │       └── JournalError                 its journal is missing, damaged, or not of this run
    ├── TaskError            exit status 1   the environment failed
    ├── DivergedError        exit status 1   theta is not finite any more
    ├── ClusterError         exit status 1   workers or nodes failed
    │   └── RefusedError     exit status 3   a head refuses this node, or is not the one of its key
    └── ProtocolError        exit status 1   the other end of a connection sent an invalid message

Every message is one line: what happened, where, the value and the expected one, and what to try. The command line
prints only that line; a traceback needs ``--debug``.
"""


class PyesError(Exception):
    """Base of all exceptions of pyes."""

    exit_status = 1


class ConfigError(PyesError):
    """A configuration, argument or input file that cannot be used."""

    exit_status = 2


class StorageError(ConfigError):
    """A file that cannot be written, though its place can be: the disk is full, or fails."""

    exit_status = 1


class RunDirectoryError(ConfigError):
    """A run directory that is missing, incomplete, damaged or not writable."""


class JournalError(RunDirectoryError):
    """A journal that is missing or damaged, or from which another theta than the recorded one is rebuilt."""


def missing(what: str, packages: str, extra: str, error: Exception, advice: str = "") -> ConfigError:
    """Return the error for a missing package.

    Parameters
    ----------
    what : str
        The feature that needs it.
    packages : str
        Names of the packages, with " and " between two.
    extra : str
        Extra of pyes-rl that installs them.
    error : Exception
        Why they cannot be imported.
    advice : str
        Further advice after the command.
    """
    noun = "packages" if " and " in packages else "package"
    return ConfigError(f'{what} needs the {noun} {packages}: pip install "pyes-rl[{extra}]"{advice} ({error})')


class TaskError(PyesError):
    """An environment that could not be made, or that failed too often."""


class DivergedError(PyesError):
    """An update after which theta, or the deviation of its perturbations, is not finite any more."""


class ClusterError(PyesError):
    """Workers or nodes that failed and could not be replaced."""


class ProtocolError(PyesError):
    """Bytes or a message from the other end of a connection that the protocol does not allow."""


class RefusedError(ClusterError):
    """A head that refuses this node, or that this node does not trust."""

    exit_status = 3
