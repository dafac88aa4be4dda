"""The video of a run for its loggers: the center's first evaluation episode, filmed once for all of them.

In a process of its own, since an environment may crash or hang while it draws.
"""

import importlib.util
import subprocess
import sys
import time
from pathlib import Path

from pyes.errors import RunDirectoryError
from pyes.system import locks
from pyes.system.files import remove_leftovers
from pyes.system.text import quoted, tell

_MOST_FRAMES = 300
_PROGRAM = f"""
import sys
from pyes.reports import video
video.record(sys.argv[1], sys.argv[2], most_frames={_MOST_FRAMES})
"""


def of(run: Path, seconds: float) -> Path | None:
    """Return the video of a run's last policy.

    None where its task cannot be drawn, without the extra ``video``, and if it took more than so many seconds.
    """
    if importlib.util.find_spec("imageio_ffmpeg") is None:
        return None
    file = run / "loggers" / "video.mp4"
    deadline = time.monotonic() + seconds
    while True:
        try:
            with locks.held(file.with_suffix(".lock"), "loggers"):
                return file if _is_new(run, file) or _made(run, file, deadline) else None
        except RunDirectoryError:  # another logger films
            if time.monotonic() > deadline:
                return None
            time.sleep(0.1)


def _is_new(run: Path, file: Path) -> bool:
    return file.exists() and file.stat().st_mtime > (run / "policy.safetensors").stat().st_mtime


def _made(run: Path, file: Path, deadline: float) -> bool:
    command = [sys.executable, "-c", _PROGRAM, str(run), str(file)]
    left = max(deadline - time.monotonic(), 0.0)
    try:
        subprocess.run(command, stdin=subprocess.DEVNULL, check=True, timeout=left)
    except subprocess.TimeoutExpired:
        tell(f"no video: it was not ready within {left:.1f} s, the time that logger.wait leaves for it")
    except subprocess.CalledProcessError as error:
        tell(f"no video: it ended with status {error.returncode}; pyes video {quoted(run)} may say why")
    else:
        return True
    remove_leftovers(file.parent, exclusive=False)
    return False
