"""HTML of a page that needs no other file: text, tables, pictures as data."""

import base64
import html
import io
from importlib import resources

__all__ = ["Html", "bar", "columns", "document", "escaped", "listing", "note", "picture", "section", "table"]


class Html(str):
    """Text that is HTML already; all other text is escaped where it is put into a page."""


def escaped(value):
    """A value as HTML."""
    return value if isinstance(value, Html) else Html(html.escape(str(value)))


def document(title, parts):
    """The page. `parts` are (anchor, heading, HTML), one for each section."""
    style = resources.files(__package__).joinpath("style.css").read_text("utf-8")
    links = "".join(f'<a href="#{anchor}">{escaped(heading)}</a>' for anchor, heading, _ in parts if heading)
    body = "".join(section(*part) for part in parts)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<link rel="icon" href="data:,">\n'
        f"<title>{escaped(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        f"<h1>{escaped(title)}</h1>\n<nav>{links}</nav>\n{body}</main>\n</body>\n</html>\n"
    )


def section(anchor, heading, content):
    """A part of the page that can be linked to."""
    head = f"<h2>{escaped(heading)}</h2>\n" if heading else ""
    return Html(f'<section id="{anchor}">\n{head}{content}</section>\n')


def note(text):
    """A paragraph."""
    return Html(f"<p>{escaped(text)}</p>\n")


def listing(entries, kind="listing"):
    """Names and what they stand for, (name, text): one below the other, or as "tiles", large and side by side."""
    rows = "".join(f"<div><dt>{escaped(name)}</dt><dd>{escaped(text)}</dd></div>" for name, text in entries)
    return Html(f'<dl class="{kind}">{rows}</dl>\n')


def table(head, rows, words=1, total=False):
    """A table whose first `words` columns are text and whose others are numbers; the last row may be a total."""

    def line(cells, tag):
        kinds = (' class="number"' if column >= words else "" for column in range(len(cells)))
        inner = (f"<{tag}{kind}>{escaped(cell)}</{tag}>" for cell, kind in zip(cells, kinds, strict=True))
        return f"<tr>{''.join(inner)}</tr>"

    lines = [line(cells, "td") for cells in rows]
    foot = f"<tfoot>{lines.pop()}</tfoot>" if total else ""
    body = f"<thead>{line(head, 'th')}</thead><tbody>{''.join(lines)}</tbody>{foot}"
    return Html(f'<div class="wide"><table>{body}</table></div>\n')


def bar(share, text):
    """A number of a table with a bar as long as its share of 1."""
    return Html(f'<span class="bar" style="--share:{100 * min(max(share, 0), 1):.1f}%">{escaped(text)}</span>')


def columns(*parts):
    """Parts side by side, where there is room."""
    return Html(f'<div class="columns">{"".join(parts)}</div>\n')


def picture(axes, caption, dpi=None):
    """The figure of some Axes: as SVG, or as PNG with so many dots per inch, which suits what is made of pixels."""
    file = io.BytesIO()
    form = {"format": "svg", "metadata": {"Date": None}} if dpi is None else {"format": "png", "dpi": dpi}
    axes.figure.savefig(file, **form, bbox_inches="tight", facecolor="white")
    kind = "image/svg+xml" if dpi is None else "image/png"
    text = html.escape(caption, quote=True)
    data = base64.b64encode(file.getvalue()).decode()
    return Html(f'<figure><img alt="{text}" src="data:{kind};base64,{data}"><figcaption>{text}</figcaption></figure>\n')
