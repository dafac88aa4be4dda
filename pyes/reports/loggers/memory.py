"""What a logger has sent so far, in ``loggers/NAME.json`` of the run directory.

Owns the file. So the next part of a run goes on where the one before it ended, whoever killed that.
"""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyes.system.files import write_file


class Memory:
    """The file of one logger; an unreadable one is as none.

    Parameters
    ----------
    run : Path
        The run directory.
    name : str
        Name of the logger.

    Attributes
    ----------
    sent, tried : int
        Rows that were sent, and those that a call was to send which has perhaps not ended.
    own : dict
        What the logger itself keeps.
    """

    def __init__(self, run: Path, name: str) -> None:
        self._path = run / "loggers" / f"{name}.json"
        values: dict[str, Any] = {}
        with suppress(OSError, ValueError):
            found = json.loads(self._path.read_bytes())
            sound = isinstance(found, dict) and isinstance(found.get("own", {}), dict)
            if sound and all(type(found.get(name, 0)) is int for name in ("sent", "tried")):
                values = found
        self.sent: int = values.get("sent", 0)
        self.tried: int = values.get("tried", 0)
        self.own: dict[str, Any] = values.get("own", {})

    def save(self) -> None:
        """Write the file."""
        values = {"sent": self.sent, "tried": self.tried, "own": self.own}
        write_file(self._path, json.dumps(values).encode())
