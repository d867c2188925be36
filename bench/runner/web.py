"""The page as HTML, in one file: no script, nothing to load."""

from html import escape

from . import words
from .chart import chart
from .model import FULL, Source
from .results import Result

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 1200px; padding: 0 1rem;
  color: #1c1e21; background: #fff; }
table { border-collapse: collapse; width: 100%; font-size: 13px; }
div { overflow-x: auto; }
th, td { border-bottom: 1px solid #ddd; padding: 4px 8px; text-align: left; vertical-align: top; }
td:nth-child(5) { font: 11px ui-monospace, monospace; min-width: 16rem; }
.none { color: #767676; }
.failed { color: #b00020; font-weight: 600; }
svg { width: 100%; font: 11px system-ui, sans-serif; }
svg text { fill: #1c1e21; }
svg .label { text-anchor: end; }
svg .scale { text-anchor: middle; fill: #767676; }
svg .tick { stroke: #e4e4e4; }
svg .one { stroke: #1c1e21; }
svg .better { fill: #2a78c2; }
svg .worse { fill: #d9822b; }
@media (prefers-color-scheme: dark) {
  body { color: #e6e6e6; background: #16181b; }
  th, td { border-color: #3a3d42; }
  svg text { fill: #e6e6e6; }
  svg .tick { stroke: #33363b; }
  svg .one { stroke: #e6e6e6; }
}
"""


def row(found: Result, letters: dict[str, str]) -> str:
    """A row of a table."""
    kind = "failed" if found.failed else "none" if found.ours is None else ""
    tags = [f"<td>{escape(text)}</td>" for text in words.cells(found, letters)]
    tags[2] = tags[2].replace("<td>", f'<td class="{kind}">') if kind else tags[2]
    return f"<tr>{''.join(tags)}</tr>"


def section(source: Source, found: list[Result], letters: dict[str, str]) -> str:
    """A source with its chart and its rows."""
    own = [it for it in found if it.row.source == source]
    title = escape(source.title)
    title = f'<a href="{escape(source.link)}">{title}</a>' if source.link else title
    drawn = chart(own)
    legend = "<p>How many times better than the source's figure; logarithmic.</p>" if drawn else ""
    heads = "".join(f"<th>{head}</th>" for head in words.HEADS)
    rows = "\n".join(row(it, letters) for it in own)
    return (f"<h2>{title}</h2>\n<p>{escape(source.note)}</p>\n{legend}{drawn}\n"
            f"<div><table>\n<tr>{heads}</tr>\n{rows}\n</table></div>")


def html(sources: tuple[Source, ...], found: list[Result], size: str) -> str:
    """The whole page."""
    letters = words.machines(found)
    machines = "".join(f"<li>{letter}: {escape(name)}</li>" for name, letter in letters.items())
    sections = "\n".join(section(source, found, letters) for source in sources)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width">\n'
        f"<title>Experiments of the sources</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"<h1>Experiments of the sources</h1>\n<p>{escape(words.ABOUT)}</p>\n"
        f"<p>{escape(words.size(size == FULL))} {escape(words.counts(found))}.</p>\n"
        f"<ul>{machines}</ul>\n{sections}\n</body>\n</html>\n"
    )
