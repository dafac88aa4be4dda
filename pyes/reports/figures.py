"""The common style of all figures, and how they are saved.

Owns style, size, file formats and saving. Knows nothing of what is drawn. Invariant: matplotlib's global state is left
unchanged, and equal input gives an equal file.
"""

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyes.errors import ConfigError
from pyes.system.files import replacing
from pyes.system.process_wide import warnings_as

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Metadata of each file format, without dates, so that equal input gives equal files.
_METADATA: dict[str, dict[str, Any]] = {
    ".png": {"Software": None},
    ".svg": {"Date": None},
    ".pdf": {"CreationDate": None},
}
SUFFIXES = tuple(_METADATA)
WIDTH, HEIGHT = 7.2, 4.5  # inches
_STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 10,
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "axes.titlepad": 12,
    "axes.labelsize": 10,
    "axes.labelcolor": "#333333",
    "axes.edgecolor": "#888888",
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.xmargin": 0.0,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "xtick.color": "#555555",
    "ytick.color": "#555555",
    "figure.constrained_layout.h_pad": 0.08,
    "figure.constrained_layout.w_pad": 0.08,
    "lines.solid_capstyle": "round",
    "legend.frameon": False,
    "legend.fontsize": 9,
    "svg.hashsalt": "pyes",
    "svg.fonttype": "none",  # words stay words, to be searched and edited
    "pdf.fonttype": 42,  # TrueType: journals and conferences reject Type 3
}


def check_output(output: str | Path) -> Path:
    """Return the path of a figure to write. Call this before any long computation.

    Raises
    ------
    ConfigError
        The suffix is not supported, or the folder does not exist.
    """
    output = Path(output)
    if output.suffix not in SUFFIXES:
        raise ConfigError(f"cannot plot to {output}: suffix {output.suffix!r}, expected one of {', '.join(SUFFIXES)}")
    check_folder(output)
    return output


def check_folder(output: Path) -> None:
    """Refuse a file in a folder that does not exist.

    Raises
    ------
    ConfigError
        There is no such folder.
    """
    if not output.parent.is_dir():
        raise ConfigError(f"cannot write {output}: there is no directory {output.parent}; make it or choose another")


def check_text(*texts: str) -> None:
    """Refuse texts with formulas between dollar signs that matplotlib cannot typeset.

    Raises
    ------
    ConfigError
        A formula is wrong.
    """
    from matplotlib.cbook import is_math_text
    from matplotlib.mathtext import MathTextParser

    for text in texts:
        try:
            if is_math_text(text):
                MathTextParser("path").parse(text)
        except ValueError as error:
            wrong = str(error).strip().splitlines()[-1]
            raise ConfigError(f"{text!r} has a formula that is wrong: {wrong}; write \\$ for a dollar sign") from error


def verbatim(text: str) -> str:
    """Return a text in which matplotlib finds no formula."""
    return text.replace("$", r"\$")


def write(output: Path, draw: "Callable[[Figure], None]", width: float = WIDTH, height: float = HEIGHT) -> None:
    """Create a figure of a size in inches, fill it with ``draw`` and save it.

    Raises
    ------
    ConfigError
        The figure cannot be written, or is too small for its words.
    """
    import matplotlib
    from matplotlib.figure import Figure

    with warnings_as("error", "constrained_layout not applied"), matplotlib.rc_context():
        # Ignores the user's matplotlibrc, so that the picture is always the same.
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        figure = Figure(figsize=(width, height), layout="constrained")
        draw(figure)
        with replacing(output) as beside:
            try:
                _fit_labels(figure)
                figure.savefig(beside, dpi=150, metadata=_METADATA[output.suffix])
            except UserWarning as error:
                inches = f"{figure.get_figwidth():g} by {figure.get_figheight():g} inches"
                raise ConfigError(
                    f"{inches} have no room for the axes; make it larger, or its labels shorter"
                ) from error


def _fit_labels(figure: "Figure") -> None:
    """Break the labels of y axes that are longer than the figure: only the layout knows how high the axes are."""
    figure.draw_without_rendering()
    for axes in figure.axes:
        label, text = axes.yaxis.label, axes.get_ylabel()
        drawn = label.get_window_extent()
        if drawn.y0 < 0 or drawn.y1 > figure.bbox.y1:
            characters = max(map(len, text.splitlines())) * axes.get_window_extent().height / drawn.height
            axes.set_ylabel(textwrap.fill(" ".join(text.split()), max(1, int(characters)), break_long_words=False))


def set_caption(axes: "Axes", text: str) -> None:
    """Write a note in the upper right corner, beside the title."""
    axes.set_title(text, loc="right", fontsize=8, fontweight="normal", color="#666666")


def format_number(value: float, _position: object = None) -> str:
    """Return a tick label with thousands separators and a minus sign as wide as a digit."""
    return f"{value:,.10g}".replace("-", "\N{MINUS SIGN}")
