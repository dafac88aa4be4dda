import os
import subprocess
import sys

import numpy as np
import pytest

from pyes import video
from pyes.errors import ConfigError, PyesError, RunDirectoryError
from pyes.networks import ActionHead, Instruction, Policy, PolicySpec, Program
from pyes.replay import evaluate

imageio_ffmpeg = pytest.importorskip("imageio_ffmpeg")


@pytest.fixture
def run(tmp_path):
    return _policy(tmp_path / "run")


def _policy(directory, **task):
    program = Program((Instruction(0, 4, 2, 0, -1, 0),), 4, 2, 8)
    theta = np.random.default_rng(0).normal(size=8).astype(np.float32)
    task = {"env_id": "CartPole-v1", "max_timesteps": 25, **task}
    directory.mkdir()
    Policy(PolicySpec(program, ActionHead("argmax", outputs=2), 5.0), theta, task=task, seed=3).save(directory)
    return directory


def _frames(file):
    reader = imageio_ffmpeg.read_frames(str(file))
    meta = next(reader)
    width, height = meta["size"]
    reader.close()
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-i", file, "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    pixels = subprocess.run(command, capture_output=True, check=True, timeout=60).stdout
    return meta, list(np.frombuffer(pixels, np.uint8).reshape(-1, height, width, 3))


def test_video_shows_the_evaluation_episodes(run, tmp_path):
    evaluation = video.record(run, tmp_path / "center.mp4", episodes=2)
    assert evaluation == evaluate(run, episodes=2)
    meta, frames = _frames(tmp_path / "center.mp4")
    assert len(frames) == sum(evaluation.lengths) + 2  # the first frame of each episode comes before any timestep
    assert (meta["codec"], meta["pix_fmt"].split("(")[0], meta["fps"]) == ("h264", "yuv420p", 50.0)
    assert meta["size"] == (600, 400)
    # The cart moves: the pictures are not all alike, and not blank.
    assert np.abs(frames[0].astype(int) - frames[evaluation.lengths[0]]).max() > 100
    assert sorted(os.listdir(tmp_path)) == ["center.mp4", "run"]


def test_video_runs_in_real_time_where_frames_are_skipped(tmp_path):
    run = _policy(tmp_path / "run", frame_skip=4)
    video.record(run, tmp_path / "center.mp4")
    assert _frames(tmp_path / "center.mp4")[0]["fps"] == 12.5


def test_frames_of_odd_size_are_made_even():
    frame = np.arange(5 * 3 * 3, dtype=np.uint8).reshape(5, 3, 3)
    even = video._even(frame)
    assert even.shape == (6, 4, 3)
    np.testing.assert_array_equal(even[:5, :3], frame)
    np.testing.assert_array_equal(even[5, :3], frame[4])


def test_frames_of_odd_size_become_a_video(tmp_path):
    with video._Film(imageio_ffmpeg.get_ffmpeg_exe(), tmp_path / "odd.mp4", 30.0) as film:
        for shade in (0, 100, 200):
            film.add(np.full((51, 63, 3), shade, np.uint8))
    meta, frames = _frames(tmp_path / "odd.mp4")
    assert meta["size"] == (64, 52)
    np.testing.assert_allclose([frame.mean() for frame in frames], [0, 100, 200], atol=4)


def test_environment_without_pictures_is_one_line():
    with pytest.raises(PyesError, match="renders"):
        video._even(None)


def test_encoder_that_fails_is_one_line(tmp_path):
    with pytest.raises(PyesError, match=r"^ffmpeg could not write the video: .*No such file") as error:  # noqa: SIM117
        with video._Film(imageio_ffmpeg.get_ffmpeg_exe(), tmp_path / "none" / "film.mp4", 30.0) as film:
            for _ in range(100):
                film.add(np.zeros((400, 600, 3), np.uint8))
    assert "\n" not in str(error.value)


def test_interrupted_film_ends_its_encoder(tmp_path):
    with pytest.raises(KeyboardInterrupt):  # noqa: SIM117
        with video._Film(imageio_ffmpeg.get_ffmpeg_exe(), tmp_path / "film.mp4", 30.0) as film:
            film.add(np.zeros((40, 60, 3), np.uint8))
            raise KeyboardInterrupt
    assert film._process.returncode is not None


def _error(kind, *arguments, **options):
    with pytest.raises(kind) as error:
        video.record(*arguments, **options)
    message = str(error.value)
    assert "\n" not in message
    return message


def test_bad_arguments_are_one_line_and_leave_nothing(run, tmp_path):
    assert ".mp4" in _error(ConfigError, run, tmp_path / "center.gif")
    assert "no policy at" in _error(RunDirectoryError, tmp_path / "none", tmp_path / "center.mp4")
    assert "episodes is 0" in _error(ConfigError, run, tmp_path / "center.mp4", episodes=0)
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
