"""A chart as SVG: how many times better than a source's figure, on a logarithmic scale."""

from html import escape
from math import ceil, floor, log10

from . import words
from .results import Result

ROW = 22
LABEL = 520
WIDTH = 1000
TOP = 30
# Between a bar and the text behind it, and what that text may take.
GAP = 6
ROOM = 80


def chart(found: list[Result]) -> str:
    """Bars to the right are better than the source, bars to the left are worse. Empty if no row
    has a figure to compare."""
    rows = [it for it in found if it.times_better is not None]
    if not rows:
        return ""
    exponents = [log10(it.times_better) for it in rows]
    low, high = min(0, floor(min(exponents))), max(1, ceil(max(exponents)))
    scale = (WIDTH - LABEL - ROOM) / (high - low)

    def x(exponent: float) -> float:
        return LABEL + (exponent - low) * scale

    height = TOP + ROW * len(rows) + 10
    parts = [f'<svg viewBox="0 0 {WIDTH} {height}" role="img" '
             'aria-label="how many times better than the figure of the source">']
    parts += [tick(x(exponent), exponent, height) for exponent in range(low, high + 1)]
    parts += [bar(it, index, x) for index, it in enumerate(rows)]
    return "\n".join([*parts, "</svg>"])


def tick(x: float, exponent: int, height: int) -> str:
    """A line of the scale."""
    kind = "one" if exponent == 0 else "tick"
    label = f"{words.number(10.0 ** exponent)}×"
    return (f'<line class="{kind}" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 8}" y2="{height}"/>'
            f'<text class="scale" x="{x:.1f}" y="{TOP - 14}">{label}</text>')


def bar(found: Result, index: int, x) -> str:
    """A row with its label and its number."""
    y = TOP + ROW * index
    start, end = sorted((x(0), x(log10(found.times_better))))
    kind = "better" if found.times_better >= 1 else "worse"
    return (f'<text class="label" x="{LABEL - GAP}" y="{y + 14}">{escape(found.row.what)}</text>'
            f'<rect class="{kind}" x="{start:.1f}" y="{y + 3}" width="{max(end - start, 1):.1f}" '
            f'height="{ROW - 8}"/>'
            f'<text x="{end + GAP:.1f}" y="{y + 14}">{words.number(found.times_better)}×</text>')
