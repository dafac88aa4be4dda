"""How fast `pyes explore` is in a browser: until the map is there, from a click to a video, and while it is panned.

    python benchmarks/explorer.py [RUN ...]

Without a RUN, it trains the two that it looks at: the default run, 8,000 individuals, and one of 200,000 that play
CartPole. The browser is Chromium without a window, which draws by the processor where there is no graphics card.

map      seconds from the start of the program until the map is on the page of a running browser: median of three
video    seconds from the choice of an individual until its video can play, for five individuals: median and longest
frames   drawn in a second while the map is dragged, for five seconds
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

sys.path.append(str(Path(__file__).parent.parent / "tests"))
from explorers import Explorer, chromium

DEFAULT = ("evaluation.every=50",)
MANY = ("task=native", "task.env_id=CartPole-v1", "algorithm.population_size=1000", "evaluation.every=0")
MANY = (*MANY, "timesteps=null", "generations=200", "task.max_timesteps=20")
PATIENCE = 120_000  # milliseconds
#: Whether the video of an individual that is named so can play.
PLAYS = """(name) => {
  const shown = document.getElementById('shown'), video = shown.querySelector('video');
  return shown.textContent.includes(name) && video?.readyState === 4;
}"""
#: Drags the map in circles, one event a frame, and returns how many frames there were in a second.
DRAG = """(seconds) => new Promise((done) => {
  const canvas = document.getElementById('points'), box = canvas.getBoundingClientRect();
  canvas.setPointerCapture = () => {};  // the browser refuses it for events that a program makes
  const send = (type, angle) => canvas.dispatchEvent(new PointerEvent(type, {
    pointerId: 1, bubbles: true,
    clientX: box.x + box.width * (0.5 + 0.2 * Math.cos(angle)),
    clientY: box.y + box.height * (0.5 + 0.2 * Math.sin(angle)),
  }));
  send('pointerdown', 0);
  const begun = performance.now();
  let frames = 0;
  const frame = (now) => {
    if (now - begun > 1000 * seconds) {
      send('pointercancel', 0);
      done(frames / seconds);
    } else {
      frames += 1;
      send('pointermove', frames / 10);
      requestAnimationFrame(frame);
    }
  };
  requestAnimationFrame(frame);
})"""


def main() -> None:
    """Look at runs, and print what it took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        runs = options.runs or [train(Path(folder, "default"), DEFAULT), train(Path(folder, "many"), MANY)]
        browser = chromium(playwright)
        for run in runs:
            look(browser, run)
        browser.close()


def train(run: Path, overrides: tuple[str, ...]) -> Path:
    """Train a run to look at."""
    command = (sys.executable, "-m", "pyes", "train", *overrides, f"run_dir={run}")
    subprocess.run(command, check=True, capture_output=True)
    return run


def look(browser: Browser, run: Path) -> None:
    """Measure one run."""
    seconds = []
    for _ in range(2):
        with opened(browser, run) as (_, took):
            seconds.append(took)
    with opened(browser, run) as (page, took):
        print(f"{run.name}: {page.locator('#axes').text_content()}")
        print(f"  map     {statistics.median([*seconds, took]):.1f} s")
        videos = [video(page, member) for member in range(5)]
        print(f"  video   {statistics.median(videos):.1f} s, longest {max(videos):.1f} s")
        print(f"  frames  {page.evaluate(DRAG, 5):.0f} a second", flush=True)


@contextmanager
def opened(browser: Browser, run: Path) -> Iterator[tuple[Page, float]]:
    """Lend the page of an explorer with its map, and the seconds until that was there."""
    begun = time.monotonic()
    with Explorer(run) as explorer, browser.new_context(viewport={"width": 1280, "height": 900}) as context:
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.goto(f"{explorer.url}?token={explorer.token}")
        page.wait_for_function("() => document.getElementById('axes').textContent.includes('individuals')")
        yield page, time.monotonic() - begun


def video(page: Page, member: int) -> float:
    """Choose a member of generation 0; return the seconds until its video can play."""
    page.fill("#go_generation", "0")
    page.fill("#go_member", str(member))
    begun = time.monotonic()
    page.get_by_role("button", name="play").click()
    page.wait_for_function(PLAYS, arg=f"generation 0, member {member}")
    return time.monotonic() - begun


if __name__ == "__main__":
    main()
