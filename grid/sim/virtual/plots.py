"""Draws the pictures of simulations as SVG (extra ``plots``). Text stays text; the same data gives the same bytes."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import cycle
from pathlib import Path
from textwrap import fill
from typing import Any, Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from grid.sim.virtual.pictures import Oscillation, Picture, Shares, Waits

COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a5195", "#444444", "#8c6d31")
"""Told apart by those who see few colours too (after Okabe and Ito)."""
STRIPES: Final = ("-", "--", "-.", (0, (1, 1)))
SIZE: Final = (8.0, 3.6)
"""Inches."""
_OURS: Final = "grid"
"""The policy whose line is to be found at once."""
_TITLE: Final = 90
"""Letters that a line of a title has room for."""
_GREY: Final = "#8a8a8a"
_STYLE: Final[Mapping[Any, Any]] = {
    "svg.hashsalt": "grid",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9.0,
    "axes.titlesize": 10.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.4,
    "legend.frameon": False,
    "path.simplify": False,
}


def save(folder: Path, pictures: Mapping[str, Picture]) -> list[Path]:
    """Draw each as ``NAME.svg`` in ``folder``, which is made where it is missing; the paths written."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, picture in pictures.items():
        path = folder / f"{name}.svg"
        with mpl.rc_context():
            # Whatever the user has set up for other pictures: these are the same everywhere.
            mpl.rcdefaults()
            mpl.rcParams.update(_STYLE)
            figure = Figure(figsize=SIZE, layout="constrained")
            _draw(figure.add_subplot(), picture)
            figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
        # It ends many lines in blanks, which version control does not like.
        text = path.read_text(encoding="utf-8")
        path.write_text("\n".join(line.rstrip() for line in text.splitlines()) + "\n", encoding="utf-8")
        written.append(path)
    return written


def _draw(axes: Axes, picture: Picture) -> None:
    axes.set_title(fill(picture.title, _TITLE), loc="left")
    if isinstance(picture, Shares):
        _shares(axes, picture)
    elif isinstance(picture, Waits):
        _waits(axes, picture)
    else:
        _oscillation(axes, picture)
    # Beside the axes: inside, it would lie on some line or other.
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _shares(axes: Axes, picture: Shares) -> None:
    for site, colour, (times, shares) in zip(picture.sites, cycle(COLOURS), picture.lines(), strict=False):
        axes.plot(times, shares, color=colour, label=site)
    end = float(len(picture.arrivals))
    label = "fair share"
    for number, (begin, due) in enumerate(picture.fair):
        until = picture.fair[number + 1][0] if number + 1 < len(picture.fair) else end
        for share in sorted(set(due)):
            axes.plot([begin, until], [share, share], color=_GREY, linestyle="--", linewidth=1.0, label=label)
            label = "_"
    axes.set(xlabel="virtual time (s)", ylabel="share of the requests", xlim=(0, max(1.0, end)), ylim=(0, None))
    _events(axes, picture.events)


def _waits(axes: Axes, picture: Waits) -> None:
    for (policy, line), style in zip(picture.lines.items(), _styles(picture.lines), strict=True):
        label = policy if line else f"{policy} (nobody waits)"
        axes.plot([wait for wait, _ in line], [part for _, part in line], label=label, **style)
    if any(picture.lines.values()):
        axes.set(xscale="log", yscale="log")
    axes.set(xlabel=f"{picture.what} (s)", ylabel="fraction of requests above it")


def _oscillation(axes: Axes, picture: Oscillation) -> None:
    for (policy, line), style in zip(picture.lines.items(), _styles(picture.lines), strict=True):
        times = [picture.window * (number + 0.5) for number in range(len(line))]
        axes.plot(times, line, label=policy, **style)
    axes.axhline(1.0, color=_GREY, linestyle="--", linewidth=1.0, label="fair share")
    axes.set(xlabel="virtual time (s)", ylabel=f"busiest site / its fair share\n(windows of {picture.window:g} s)")
    axes.set(xlim=(0, None), ylim=(0, None))
    _events(axes, picture.events)


def _styles(policies: Iterable[str]) -> Iterator[dict[str, Any]]:
    """A colour and a stripe for each, ours without stripes and thicker."""
    for policy, colour, stripe in zip(policies, cycle(COLOURS), cycle(STRIPES), strict=False):
        if policy == _OURS:
            yield {"color": colour, "linewidth": 2.4}
        else:
            yield {"color": colour, "linestyle": stripe}


def _events(axes: Axes, events: tuple[tuple[float, str], ...]) -> None:
    for when, what in events:
        axes.axvline(when, color=_GREY, linestyle=":", linewidth=1.0)
        # Beside its line, just below the upper edge.
        axes.annotate(
            what,
            (when, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(3, -9),
            textcoords="offset points",
            fontsize=8,
        )
