"""Film the policies of ``results/``: ``docs/gallery.md``, a moving picture of each, and ``docs/policies.gif`` of six.

    python tools/make_gallery.py [RECIPE ...]

Owns the page and its pictures. The videos are those of `pyes video results/RECIPE`; ffmpeg makes them small.
"""

import argparse
import statistics
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from imageio_ffmpeg import get_ffmpeg_exe
from make_results import ROOT, Result, duration, read, text_of

from pyes.reports import video

RESULTS, DOCS = ROOT / "results", ROOT / "docs"
SHOWN = (
    "lunar_lander",
    "slime_volley",
    "hopper_mujoco",
    "cart_pole_swing_up",
    "walker2d_mujoco",
    "half_cheetah_mujoco",
)
COLUMNS = 3  # of the picture of six
SECONDS, FPS, COLORS = 8, 12, 64
LONGER = {"mountain_car_continuous": 26}  # seconds until it gets there: it swings slowly, to save force
WIDTH, HEIGHT = 240, 160  # pixels
FIT = f"fps={FPS},scale={WIDTH}:{HEIGHT}:force_original_aspect_ratio=decrease,pad={WIDTH}:{HEIGHT}:-1:-1:white"
PALETTE = f"split[a][b];[a]palettegen=max_colors={COLORS}:stats_mode=diff[p];[b][p]paletteuse=dither=none"
INTRODUCTION = """\
# Gallery

What the recipes come to: the policy of the median seed in its first evaluation episode, in real time, for at most
{seconds} seconds, but for slow ones. The policies lie in the repository, so in a clone the second command films the
same episode without training; it needs the extra `video` and that of the simulator. The first one trains the same
policy again, to the same bits: see [results](results.md), which say on what machine the times were taken.
"""


def main() -> None:
    """Film every result, or those that are named; write the page, and with every result the picture of six."""
    made = sorted(file.parent.name for file in RESULTS.glob("*/result.json"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipes", nargs="*", choices=made, metavar="RECIPE", help="one of %(choices)s")
    names = parser.parse_args().recipes or made
    (DOCS / "gallery").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        films = {name: Path(folder, f"{name}.mp4") for name in names}
        for name, film in films.items():
            video.record(RESULTS / name, film)
            picture([film], DOCS / "gallery" / f"{name}.gif", LONGER.get(name, SECONDS))
        if films.keys() >= set(SHOWN):
            picture([films[name] for name in SHOWN], DOCS / "policies.gif")
    (DOCS / "gallery.md").write_text(page(), encoding="utf-8")


def page() -> str:
    """Return the page of every result."""
    found = [read(file.parent) for file in sorted(RESULTS.glob("*/result.json"))]
    return "\n".join([INTRODUCTION.format(seconds=SECONDS), *map(section, found)])


def section(result: Result) -> str:
    """Return what the page says of one recipe."""
    returns = text_of(statistics.median_low(result.returns))
    return f"""\
## {result.recipe}

![An episode of the recipe {result.recipe}](gallery/{result.recipe}.gif)

Return over 100 episodes {returns}, after {duration(result.median("seconds"))}.

```bash
pyes train experiment={result.recipe} seed={result.about["median_seed"]}
pyes video results/{result.recipe} -o {result.recipe}.mp4
```
"""


def picture(films: Sequence[Path], file: Path, seconds: int = SECONDS) -> None:
    """Write a GIF of films side by side; those that end sooner begin again."""
    inputs = [word for film in films for word in ("-stream_loop", "-1", "-t", str(seconds), "-i", str(film))]
    parts = [f"[{index}]{FIT}[v{index}]" for index in range(len(films))]
    if len(films) > 1:
        places = "|".join(f"{index % COLUMNS * WIDTH}_{index // COLUMNS * HEIGHT}" for index in range(len(films)))
        names = "".join(f"[v{index}]" for index in range(len(films)))
        parts.append(f"{names}xstack=inputs={len(films)}:layout={places}[all]")
    last = "[all]" if len(films) > 1 else "[v0]"
    graph = ";".join([*parts, last + PALETTE])
    subprocess.run([get_ffmpeg_exe(), "-v", "error", "-y", *inputs, "-filter_complex", graph, str(file)], check=True)


if __name__ == "__main__":
    main()
