"""TensorBoard: event files in the run directory.

Written with TensorBoard's own writer, which does not need torch. The step of an event is the number of timesteps.
"""

import json
import struct
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from pyes.reports.loggers.base import LoggedRun, Logger, Row
from pyes.run.metrics import read_rows
from pyes.system.text import quoted

_WIDTH = 320  # pixels of the moving picture
_FPS = 10


class TensorBoard(Logger):
    """Writes events; see `Logger`. Rows that were perhaps written before are marked as void, and written again."""

    def __init__(self, run: LoggedRun) -> None:
        super().__init__(run)
        self.where = f"tensorboard --logdir {quoted(run.path)}"
        self._writer = EventFileWriter(str(run.path / "tensorboard"))
        self._timesteps = 0
        if not run.memory:
            run.memory["begun"] = run.begun()
            self._add_text("config", f"```json\n{json.dumps(run.config, indent=2)}\n```")

    def held(self, sent: int, tried: int) -> int:
        """Return how many rows are there; events of later ones, which an earlier part of the run wrote, become void."""
        rows = read_rows(self.run.path / "metrics.csv")[:sent]
        if tried:
            self._timesteps = int(rows[-1]["timesteps"]) if rows else 0
            self._add(self._timesteps + 1, session_log=SessionLog(status=SessionLog.START))
        return len(rows)

    def log(self, rows: Sequence[Row]) -> None:
        """Write the numbers of rows."""
        for row in rows:
            values = [Summary.Value(tag=key, simple_value=value) for key, value in row.items() if key != "timesteps"]
            self._timesteps = int(row["timesteps"])
            self._add(self._timesteps, self.run.memory["begun"] + row["seconds"], summary=Summary(value=values))
        self._writer.flush()

    def video(self, file: Path) -> None:
        """Write the video as a GIF, since TensorBoard shows pictures alone."""
        from imageio_ffmpeg import get_ffmpeg_exe

        file = file.absolute()  # ffmpeg takes a colon in a relative path for a protocol
        picture = file.with_suffix(".gif")
        scaled = ["-vf", f"fps={_FPS},scale={_WIDTH}:-2"]
        subprocess.run([get_ffmpeg_exe(), "-v", "error", "-y", "-i", str(file), *scaled, str(picture)], check=True)
        data = picture.read_bytes()
        width, height = struct.unpack_from("<HH", data, 6)  # of a GIF
        image = Summary.Image(encoded_image_string=data, width=width, height=height, colorspace=3)
        self._add(self._timesteps, summary=Summary(value=[Summary.Value(tag="video", image=image)]))
        picture.unlink()

    def close(self, *, failed: bool) -> None:
        """Write pending events and close the file."""
        self._writer.close()

    def _add_text(self, tag: str, text: str) -> None:
        value = Summary.Value(tag=tag)
        value.metadata.plugin_data.plugin_name = "text"
        value.tensor.dtype = 7  # a string
        value.tensor.tensor_shape.dim.add().size = 1
        value.tensor.string_val.append(text.encode())
        self._add(0, summary=Summary(value=[value]))

    def _add(self, step: int, wall_time: float | None = None, **what: Any) -> None:
        """Write an event of a time in seconds; None: now."""
        wall_time = time.time() if wall_time is None else wall_time
        self._writer.add_event(Event(wall_time=wall_time, step=step, **what))
