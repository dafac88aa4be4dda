import gc
import os
import re
import subprocess
import sys
from types import SimpleNamespace

import gymnasium
import leftovers
import numpy as np
import pytest
from heads import until

import pyes
from pyes.errors import ConfigError, PyesError, RunDirectoryError
from pyes.networks import ActionDecoder, Instruction, Policy, PolicySpec, Program
from pyes.reports import video
from pyes.reports.replay import evaluate

imageio_ffmpeg = pytest.importorskip("imageio_ffmpeg")


@pytest.fixture
def run(tmp_path):
    return _policy(tmp_path / "run")


def _policy(directory, **task):
    program = Program((Instruction(0, 4, 2, 0, -1, 0),), 4, 2, 8)
    theta = np.random.default_rng(0).normal(size=8).astype(np.float32)
    task = {"env_id": "CartPole-v1", "max_timesteps": 25, **task}
    directory.mkdir()
    Policy(PolicySpec(program, ActionDecoder("argmax", outputs=2), 5.0), theta, task=task, seed=3).save(directory)
    return directory


def _frames(file):
    """Decode a video: what ffmpeg says of its stream, and its frames."""
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-i", file, "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    decoded = subprocess.run(command, capture_output=True, check=True, timeout=60)
    stream = next(line for line in decoded.stderr.decode().splitlines() if "Video:" in line)
    width, height = map(int, re.findall(r", (\d+)x(\d+)", stream)[0])
    return stream, list(np.frombuffer(decoded.stdout, np.uint8).reshape(-1, height, width, 3))


def _film(output, frames, film=None):
    with film or video._Film(output, 30.0) as film:
        for frame in frames:
            film.add(frame)


def test_video_shows_the_evaluation_episodes(run, tmp_path):
    evaluation = video.record(run, tmp_path / "center.mp4", episodes=2)
    assert evaluation == evaluate(run, episodes=2)
    stream, frames = _frames(tmp_path / "center.mp4")
    assert len(frames) == sum(evaluation.lengths) + 2  # the first frame of each episode comes before any timestep
    assert all(word in stream for word in ("h264", "yuv420p", "600x400", " 50 fps")), stream
    # The cart moves: the pictures are not all alike, and not blank.
    assert np.abs(frames[0].astype(int) - frames[evaluation.lengths[0]]).max() > 100
    assert sorted(os.listdir(tmp_path)) == ["center.mp4", "run"]


@pytest.mark.slow
def test_video_says_how_far_it_is(run, tmp_path, monkeypatch):
    monkeypatch.setattr(video, "_TELL_EVERY", 0.0)
    told = []
    lengths = video.record(run, tmp_path / "center.mp4", episodes=2, tell=told.append).lengths
    assert told[0] == "filming episode 1: timestep 1 of at most 25"
    assert told[-1] == f"filming episode 2: timestep {lengths[1]} of at most 25"


@pytest.mark.slow
def test_video_of_a_member_shows_its_episodes(tmp_path):
    config = {
        "run_dir": str(tmp_path / "run"),
        "generations": 2,
        "algorithm": {"population_size": 4},
        "task": {"env_id": "CartPole-v1", "max_timesteps": 25, "episodes": 2},
        "noise": {"entries": 10_000},
        "cluster": {"name": "inline"},
    }
    pyes.train(config, display=False)
    playback = video.record_member(tmp_path / "run", tmp_path / "member.mp4", generation=1, member=2)
    assert playback.exact
    assert len(_frames(tmp_path / "member.mp4")[1]) == playback.length + 2
    with pytest.raises(ConfigError, match="member: got 9, expected 0 to 3 in generation 1"):
        video.record_member(tmp_path / "run", tmp_path / "none.mp4", generation=1, member=9)
    assert not (tmp_path / "none.mp4").exists()


@pytest.mark.slow
def test_video_of_an_earlier_center_is_that_ones(tmp_path):
    config = {
        "run_dir": str(tmp_path / "run"),
        "generations": 2,
        "algorithm": {"population_size": 4},
        "task": {"env_id": "CartPole-v1", "max_timesteps": 25},
        "noise": {"entries": 10_000},
        "cluster": {"name": "inline"},
    }
    pyes.train(config, display=False)
    evaluation = video.record(tmp_path / "run", tmp_path / "first.mp4", generation=0)
    assert evaluation == evaluate(tmp_path / "run", episodes=1, generation=0)


@pytest.mark.slow
def test_video_runs_in_real_time_where_frames_are_skipped(tmp_path):
    run = _policy(tmp_path / "run", frame_skip=4)
    video.record(run, tmp_path / "center.mp4")
    assert " 12.50 fps" in _frames(tmp_path / "center.mp4")[0]


def test_frames_of_odd_size_are_made_even():
    frame = np.arange(5 * 3 * 3, dtype=np.uint8).reshape(5, 3, 3)
    even = video._even(frame)
    assert even.shape == (6, 4, 3)
    np.testing.assert_array_equal(even[:5, :3], frame)
    np.testing.assert_array_equal(even[5, :3], frame[4])


def test_frames_of_odd_size_become_a_video(tmp_path):
    _film(tmp_path / "odd.mp4", [np.full((51, 63, 3), shade, np.uint8) for shade in (0, 100, 200)])
    stream, frames = _frames(tmp_path / "odd.mp4")
    assert "64x52" in stream
    np.testing.assert_allclose([frame.mean() for frame in frames], [0, 100, 200], atol=4)


def test_environment_without_pictures_is_one_line():
    with pytest.raises(PyesError, match=r"render\(\) returned nothing; does its constructor set self\.render_mode"):
        video._even(None)
    for shape in [(0, 0, 3), (4, 4), (4, 4, 4)]:
        with pytest.raises(PyesError, match=r"renders uint8 \(\d, \d.*\), expected uint8 \(height, width, 3\)"):
            video._even(np.zeros(shape, np.uint8))


def test_environment_that_cannot_draw_is_one_line():
    filmed = object.__new__(video._FilmedTask)
    filmed._task = SimpleNamespace(render=gymnasium.Env().render)
    with pytest.raises(PyesError, match=r"^the environment has no render\(\), which draws it; pyes plot and pyes map"):
        filmed._frame()


def test_frames_that_change_their_size_are_one_line(tmp_path):
    frames = [np.zeros((40, 60, 3), np.uint8), np.zeros((40, 62, 3), np.uint8)]
    with pytest.raises(
        PyesError, match=r"^the environment renders a frame of 62 x 40 pixels, the first one had 60 x 40"
    ):
        _film(tmp_path / "film.mp4", frames)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the library leaves a pipe open
@pytest.mark.parametrize("frames", [2, 100])
def test_encoder_that_fails_is_one_line(tmp_path, frames):
    """Few frames fit into the pipe, so the library does not notice that their reader has ended."""
    with pytest.raises(PyesError, match=r"^ffmpeg could not write the video; is there room[^\n]*$"):
        _film(tmp_path / "none" / "film.mp4", np.zeros((frames, 40, 60, 3), np.uint8))
    gc.collect()


def test_video_that_does_not_fit_on_the_disk_is_not_taken_for_whole(tmp_path):
    """The file is cut off behind the library's back, as a full disk does it."""
    output = tmp_path / "film.mp4"

    def frames(film):
        for shade in range(100):
            yield np.full((40, 60, 3), shade, np.uint8)
        film._writer.close()
        os.truncate(output, os.path.getsize(output) // 2)

    film = video._Film(output, 30.0)
    with pytest.raises(PyesError, match="could not write"):
        _film(output, frames(film), film)


def test_interrupted_film_ends_its_encoder(tmp_path):
    def interrupted():
        yield np.zeros((40, 60, 3), np.uint8)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _film(tmp_path / "film.mp4", interrupted())
    assert "ffmpeg" not in "".join(leftovers.processes()) if sys.platform == "linux" else True


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no SIGTERM")
def test_terminated_film_leaves_nothing(run, tmp_path):
    command = [sys.executable, "-m", "pyes", "video", "run", "-o", "film.mp4", "--episodes", "1000"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        until(lambda: len(os.listdir(tmp_path)) == 2, "the run and what is there of the film")
        process.terminate()
        assert b"Traceback" not in process.communicate(timeout=60)[1]
        assert process.returncode == 130
    finally:
        process.kill()
        process.wait()
    assert os.listdir(tmp_path) == ["run"]


def _error(kind, *arguments, **options):
    with pytest.raises(kind) as error:
        video.record(*arguments, **options)
    message = str(error.value)
    assert "\n" not in message
    return message


def test_bad_arguments_are_one_line_and_leave_nothing(run, tmp_path):
    assert ".mp4" in _error(ConfigError, run, tmp_path / "center.gif")
    assert "no policy at" in _error(RunDirectoryError, tmp_path / "none", tmp_path / "center.mp4")
    assert "episodes: got 0, expected an integer >= 1" in _error(ConfigError, run, tmp_path / "center.mp4", episodes=0)
    assert "cannot write" in _error(ConfigError, run, tmp_path / "none" / "center.mp4")
    assert os.listdir(tmp_path) == ["run"]


def test_missing_package_says_how_to_install_it(run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    assert "pyes-rl[video]" in _error(ConfigError, run, tmp_path / "center.mp4")


def test_missing_ffmpeg_says_what_to_set(run, tmp_path, monkeypatch):
    def missing():
        raise RuntimeError("No ffmpeg exe could be found.\nInstall it.")

    monkeypatch.setattr(imageio_ffmpeg, "get_ffmpeg_exe", missing)
    assert "IMAGEIO_FFMPEG_EXE" in _error(ConfigError, run, tmp_path / "center.mp4")
