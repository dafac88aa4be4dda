"""Records episodes of the center, or of any individual, as an mp4 video.

Owns frames and their encoding; `pyes.reports.replay` runs the episodes. Invariant: the video shows the episode whose
return is reported: the same task, policy and seed, one frame per timestep.
"""

import importlib
import os
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from pyes.errors import ConfigError, PyesError, missing
from pyes.networks import Policy
from pyes.reports import replay
from pyes.reports.replay import EvaluationResult, Playback, Replay, load, open_task, run_episodes
from pyes.system.files import replacing
from pyes.system.user_code import same_folder
from pyes.tasks.base import Task, TaskAround

_TELL_EVERY = 2.0  # seconds
_LEAST_FPS = 12.0
_PRESET, _QUICK = "medium", "veryfast"  # of the encoder
_UNWRITTEN = "ffmpeg could not write the video; is there room for it on the disk?"


def _nobody(text: str) -> None:
    """Tell nobody."""


def record(
    run: str | Path,
    output: str | Path,
    episodes: int = 1,
    seed: int | None = None,
    generation: int | Literal["best"] | None = None,
    tell: Callable[[str], None] = _nobody,
    most_frames: int | None = None,
) -> EvaluationResult:
    """Record the first evaluation episodes of a run's center policy, one after the other.

    Parameters
    ----------
    run : str or Path
        Run directory, or an exported .safetensors file or folder.
    output : str or Path
        .mp4 file to write: H.264, yuv420p, at the task's frame rate.
    episodes : int
        1 or more.
    seed : int or None
        Seed of the evaluation episodes (default: the run's own).
    generation : int, "best" or None
        See `pyes.load`.
    tell : callable
        Called now and then with a line of text on the progress.
    most_frames : int or None
        See `record_opened`; the episodes are run once more, to know how long they are.

    Returns
    -------
    EvaluationResult
        Return and length of each recorded episode.

    Raises
    ------
    ConfigError
        The package imageio-ffmpeg is missing, or the file cannot be written or has another suffix.
    RunDirectoryError
        The policy is missing or damaged.
    PyesError
        The environment cannot render, or the encoder failed.
    """
    _check_encoder(Path(output))
    policy, length = load(run, generation), 0
    if most_frames is not None:
        with same_folder(), open_task(policy) as task:
            length = sum(run_episodes(policy, task, episodes, seed).lengths)
    with _filmed(policy, Path(output), tell, length, most_frames) as filmed:
        return run_episodes(policy, filmed, episodes, seed)


def record_member(
    run: str | Path, output: str | Path, generation: int, member: int, tell: Callable[[str], None] = _nobody
) -> Playback:
    """Run the episodes of one individual of a run again, with the same seeds, and record them.

    Parameters
    ----------
    run : str or Path
        Run directory.
    output : str or Path
        .mp4 file to write.
    generation, member : int
        The individual.
    tell : callable
        As for `record`.

    Returns
    -------
    Playback
        Results of the recorded episodes.

    Raises
    ------
    ConfigError
        As in `record`, or there is no such generation or member.
    RunDirectoryError
        The journal is missing or damaged.
    PyesError
        The environment cannot render or raised, or the encoder failed.
    """
    with replay.open(run) as individuals:
        return record_opened(individuals, output, generation, member, tell)


def record_opened(
    individuals: Replay,
    output: str | Path,
    generation: int,
    member: int,
    tell: Callable[[str], None] = _nobody,
    most_frames: int | None = None,
) -> Playback:
    """Do as `record_member` with a run that is open.

    With ``most_frames`` the video is made sooner: of a longer episode only every second timestep, or third and so on,
    is drawn, though at least 12 a second, and the encoder takes less trouble.
    """
    _check_encoder(Path(output))
    length = int(individuals.check_member(generation, member).lengths[member])
    policy = individuals.policy(generation)
    with _filmed(policy, Path(output), tell, length, most_frames) as task:
        return individuals.play(generation, member, task)


@contextmanager
def _filmed(
    policy: Policy, output: Path, tell: Callable[[str], None], length: int, most_frames: int | None
) -> Iterator["_FilmedTask"]:
    """Open the task of a policy and record its timesteps; the video is moved to ``output`` on success."""
    with (
        same_folder(),
        _no_window(),
        replacing(output) as beside,
        open_task(policy, render_mode="rgb_array") as task,
    ):
        stride = 1
        if most_frames is not None:
            stride = max(1, min(-(-length // most_frames), int(task.render_fps / _LEAST_FPS)))
        with _Film(beside, task.render_fps / stride, _PRESET if most_frames is None else _QUICK) as film:
            yield _FilmedTask(task, film, tell, stride)


class _Film:
    """Encodes frames into a file; the first one sets the size."""

    def __init__(self, path: Path, frames_per_second: float, preset: str = _PRESET) -> None:
        self._encoder = importlib.import_module("imageio_ffmpeg")
        self._path = str(path.absolute())  # ffmpeg takes a colon in a relative one for a protocol
        self._frames_per_second, self._preset = frames_per_second, preset
        self._writer: Generator[None, Any, None] | None = None
        self._frames, self._shape = 0, (0, 0, 0)  # of the frames, padded

    def add(self, frame: Any) -> None:
        """Append a frame: uint8 (height, width, 3)."""
        pixels = _even(frame)
        if self._writer is None:
            self._writer, self._shape = self._open(pixels.shape[1], pixels.shape[0]), pixels.shape
        if pixels.shape != self._shape:
            now, first = (f"{width} x {height}" for height, width, _ in (pixels.shape, self._shape))
            raise PyesError(f"the environment renders a frame of {now} pixels, the first one had {first}")
        try:
            self._writer.send(pixels)
        except OSError as error:
            raise PyesError(_UNWRITTEN) from error
        self._frames += 1

    def _open(self, width: int, height: int) -> Generator[None, Any, None]:
        writer: Generator[None, Any, None] = self._encoder.write_frames(
            self._path,
            (width, height),
            fps=self._frames_per_second,
            codec="libx264",
            quality=None,  # the encoder's default
            macro_block_size=2,
            ffmpeg_log_level="quiet",
            # The last two let players start before the download ends.
            output_params=["-preset", self._preset, "-movflags", "+faststart"],
        )
        next(writer)
        return writer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        if self._writer is not None:
            self._writer.close()  # waits for the encoder
            if kind is None:
                self._check()

    def _check(self) -> None:
        """Count the frames in the file, since the library does not report a failed encoder."""
        try:
            written, _ = self._encoder.count_frames_and_secs(self._path)
        except RuntimeError as error:
            raise PyesError(_UNWRITTEN) from error
        if written != self._frames:
            raise PyesError(_UNWRITTEN)


class _FilmedTask(TaskAround):
    """A task that records a frame at every timestep, or at every ``stride`` of them."""

    def __init__(self, task: Task, film: _Film, tell: Callable[[str], None], stride: int) -> None:
        super().__init__(task)
        self._film, self._tell, self._stride = film, tell, stride
        self._episode, self._timesteps = 0, 0
        self._told = time.monotonic()

    def reset(self, seed: int) -> Any:
        """Begin an episode."""
        observation = self._task.reset(seed)
        self._episode, self._timesteps = self._episode + 1, 0
        self._film.add(self._frame())
        return observation

    def step(self, action: Any) -> Any:
        """Apply an action."""
        result = self._task.step(action)
        self._timesteps += 1
        if self._timesteps % self._stride == 0:
            self._film.add(self._frame())
        if time.monotonic() - self._told >= _TELL_EVERY:
            self._told = time.monotonic()
            most = "" if self.max_timesteps is None else f" of at most {self.max_timesteps:,}"
            self._tell(f"filming episode {self._episode}: timestep {self._timesteps:,}{most}")
        return result

    def _frame(self) -> Any:
        try:
            return self._task.render()
        except NotImplementedError as error:
            if str(error):
                raise
            raise PyesError(  # gymnasium.Env's own
                "the environment has no render(), which draws it; pyes plot and pyes map show the run instead"
            ) from error

    def close(self) -> None:
        """Do nothing: the owner of the task closes it."""


def _even(frame: Any) -> NDArray[np.uint8]:
    """Pad a frame to even width and height, which yuv420p needs, by repeating its last row or column."""
    pixels = np.asarray(frame)
    if frame is None or pixels.dtype == object:
        raise PyesError("the environment's render() returned nothing; does its constructor set self.render_mode?")
    if not pixels.size or pixels.ndim != 3 or pixels.shape[2] != 3 or pixels.dtype != np.uint8:
        raise PyesError(f"the environment renders {pixels.dtype} {pixels.shape}, expected uint8 (height, width, 3)")
    height, width = pixels.shape[:2]
    return np.ascontiguousarray(np.pad(pixels, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge"))


@contextmanager
def _no_window() -> Iterator[None]:
    """Make environments that draw with SDL work without a display."""
    before = os.environ.get("SDL_VIDEODRIVER")
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    try:
        yield
    finally:
        if before is None:
            del os.environ["SDL_VIDEODRIVER"]


def _check_encoder(output: Path) -> None:
    """Reject an output without the suffix .mp4, and a missing encoder."""
    if output.suffix != ".mp4":
        raise ConfigError(f"cannot write a video to {output}: suffix {output.suffix!r}, expected .mp4")
    try:
        importlib.import_module("imageio_ffmpeg").get_ffmpeg_exe()
    except ImportError as error:
        raise missing("a video", "imageio-ffmpeg", "video", error) from error
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"imageio-ffmpeg found no ffmpeg ({reason}); set IMAGEIO_FFMPEG_EXE to one") from error
