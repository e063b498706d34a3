"""A graph written as SVG: no styles, scripts or identifiers, so that many fit into one page."""

import unicodedata
from html import escape
from itertools import pairwise

from .style import COLORS

__all__ = ["size_of", "written"]

SIZE, LINE, PADDING, MARGIN = 12, 16, 10, 16  # of letters, of a line, in a box, around the picture: pixels
FONT = "DejaVu Sans Mono, Menlo, Consolas, Liberation Mono, monospace"
LETTER = 0.61 * SIZE  # the width of a letter
LOOKS = {  # fill, border, dashes of the border, radius of the corners, what it means
    "operation": ("#E5F1F8", COLORS[0], "none", 3, "operation"),
    "leaf": ("#FDF1DC", COLORS[4], "none", 14, "leaf: gets a gradient"),
    "constant": ("#F3F3F3", "#666666", "5 3", 14, "kept, without a gradient"),
}


def size_of(title, lines):
    """The width and height of a box with this text."""
    return max(map(_width, (title, *lines))) + 2 * PADDING, LINE * (1 + len(lines)) + PADDING


def written(graph):
    """The picture as text."""
    legend, x = [], 0.0
    for kind, (*_, meaning) in LOOKS.items():
        if any(box.kind == kind for box in graph.boxes):
            legend += [_rect(kind, x + 12, 8, 24, 14), _text(x + 30, 12.5, meaning)]
            x += 30 + _width(meaning) + 24
    width, height = max(graph.width, x - 24) + 2 * MARGIN, graph.height + 2 * MARGIN + 2 * LINE
    left, top = (width - graph.width) / 2, MARGIN + 2 * LINE
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" style="max-width:100%;height:auto" role="img" '
        f'aria-label="{escape(repr(graph))}">\n<rect width="{width:.0f}" height="{height:.0f}" fill="white"/>',
        f'<g font-family="{FONT}" font-size="{SIZE}" fill="black">',
        f'<g transform="translate({MARGIN} {MARGIN})">{"".join(legend)}</g>',
        f'<g transform="translate({left:.1f} {top})">',
        *_arrows(graph),
        *map(_box, graph.boxes),
        "</g></g></svg>",
    ]
    return "\n".join(parts)


def _box(box):
    first = box.y - box.height / 2 + PADDING / 2 + SIZE
    texts = [_text(box.x, first + i * LINE, line) for i, line in enumerate(box.lines, 1)]
    title = _text(box.x, first, box.title, ' font-weight="bold"')
    frame = _rect(box.kind, box.x, box.y, box.width, box.height)
    return f'<g text-anchor="middle">{frame}{title}{"".join(texts)}</g>'


def _rect(kind, x, y, width, height):
    fill, border, dashes, radius, _ = LOOKS[kind]
    return (
        f'<rect x="{x - width / 2:.1f}" y="{y - height / 2:.1f}" width="{width:.1f}" height="{height:.1f}" '
        f'rx="{min(radius, height / 2)}" fill="{fill}" stroke-width="1.5" '
        f'stroke="{border}" stroke-dasharray="{dashes}"/>'
    )


def _text(x, y, text, more=""):
    return f'<text x="{x:.1f}" y="{y:.1f}"{more}>{escape(text)}</text>'


def _arrows(graph):
    """From the bottom of a box through the gaps between rows to the top of another.

    What an arrow has in common with an earlier one from the same box is drawn once.
    """
    drawn = {}
    for (u, v, name), route in zip(graph.edges, graph.routes, strict=True):
        begin, drawn[u] = min(drawn.get(u, 0), len(route) - 2), max(drawn.get(u, 0), len(route) - 2)
        source, tip = graph.boxes[u], graph.boxes[v].y - graph.boxes[v].height / 2
        x, y = route[begin]
        path = f"M{x:.1f} {y if begin else source.y + source.height / 2:.1f}V{y:.1f}"
        for i, ((x0, y0), (x1, y1)) in enumerate(pairwise(route[begin:])):
            bend = (y0 + y1) / 2
            path += f"V{y1:.1f}" if i % 2 else f"C{x0:.1f} {bend:.1f} {x1:.1f} {bend:.1f} {x1:.1f} {y1:.1f}"
        x = route[-1][0]
        yield f'<g><title>{escape(name)}</title><path d="{path}V{tip - 4:.1f}" fill="none" stroke="#555555"/>'
        yield f'<path d="M{x - 4:.1f} {tip - 8:.1f}h8l-4 8z" fill="#555555"/></g>'


def _width(text):
    return LETTER * sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)
