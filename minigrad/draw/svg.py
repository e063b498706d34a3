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
    legend, legend_width = _legend([kind for kind in LOOKS if any(box.kind == kind for box in graph.boxes)])
    width = max(graph.width, legend_width) + 2 * MARGIN
    height = graph.height + 2 * MARGIN + 2 * LINE
    arrows, drawn = [], {}
    for (u, v, name), route in zip(graph.edges, graph.routes, strict=True):
        # What an earlier arrow from the same box has in common with this one is drawn once.
        begin, drawn[u] = min(drawn.get(u, 0), len(route) - 2), max(drawn.get(u, 0), len(route) - 2)
        arrows.append(_arrow(graph.boxes[u], graph.boxes[v], route[begin:], name, joins=begin > 0))
    boxes = [_box(box) for box in graph.boxes]
    left, top = MARGIN + max(0, legend_width - graph.width) / 2, MARGIN + 2 * LINE
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" style="max-width:100%;height:auto" role="img" '
        f'aria-label="{escape(repr(graph))}">\n<rect width="{width:.0f}" height="{height:.0f}" fill="white"/>\n'
        f'<g font-family="{FONT}" font-size="{SIZE}" fill="black">'
    )
    legend = f'<g transform="translate({MARGIN} {MARGIN})">{legend}</g>'
    return "\n".join([head, legend, f'<g transform="translate({left:.1f} {top})">', *arrows, *boxes, "</g></g></svg>"])


def _legend(kinds):
    """What the borders mean, in one line, and its width."""
    parts, x = [], 0.0
    for kind in kinds:
        meaning = LOOKS[kind][-1]
        parts += [_rect(kind, x, 1, 24, 14), _text(x + 30, 12.5, meaning)]
        x += 30 + _width(meaning) + 24
    return "".join(parts), x - 24


def _box(box):
    middle, top = box.x + box.width / 2, box.y + PADDING / 2 + SIZE
    texts = [_text(middle, top + i * LINE, line) for i, line in enumerate(box.lines, 1)]
    title = _text(middle, top, box.title, ' font-weight="bold"')
    return f'<g text-anchor="middle">{_rect(box.kind, box.x, box.y, box.width, box.height)}{title}{"".join(texts)}</g>'


def _rect(kind, x, y, width, height):
    fill, border, dashes, radius, _ = LOOKS[kind]
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{min(radius, height / 2)}" '
        f'fill="{fill}" stroke="{border}" stroke-width="1.5" stroke-dasharray="{dashes}"/>'
    )


def _text(x, y, text, more=""):
    return f'<text x="{x:.1f}" y="{y:.1f}"{more}>{escape(text)}</text>'


def _arrow(source, target, route, name, joins):
    """From the bottom of a box, or where it joins another arrow, through the gaps between layers, to another's top."""
    x, y = route[0]
    path = [f"M{x:.1f} {y if joins else source.y + source.height:.1f}V{y:.1f}"]
    for i, ((x0, y0), (x1, y1)) in enumerate(pairwise(route)):
        bend = (y0 + y1) / 2
        path.append(f"V{y1:.1f}" if i % 2 else f"C{x0:.1f} {bend:.1f} {x1:.1f} {bend:.1f} {x1:.1f} {y1:.1f}")
    x, tip = route[-1][0], target.y
    path.append(f"V{tip - 4:.1f}")
    return (
        f'<g><title>{escape(name)}</title><path d="{"".join(path)}" fill="none" stroke="#555555" stroke-width="1.2"/>'
        f'<path d="M{x - 4:.1f} {tip - 8:.1f}L{x:.1f} {tip:.1f}L{x + 4:.1f} {tip - 8:.1f}Z" fill="#555555"/></g>'
    )


def _width(text):
    return LETTER * sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)
