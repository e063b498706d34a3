"""HTML of a page that needs no other file: text, tables, pictures as data."""

import base64
import html
import io
from importlib import resources


class Html(str):
    """Text that is HTML already; all other text is escaped where it is put into a page."""


def escaped(value):
    """A value as HTML."""
    return value if isinstance(value, Html) else Html(html.escape(str(value)))


def document(title, parts):
    """The page. `parts` are (anchor, heading, HTML), one for each section, to which the head of the page links."""
    style = resources.files(__package__).joinpath("style.css").read_text("utf-8")
    links = body = ""
    for anchor, heading, content in parts:
        links += f'<a href="#{anchor}">{escaped(heading)}</a>' if heading else ""
        head = f"<h2>{escaped(heading)}</h2>\n" if heading else ""
        body += f'<section id="{anchor}">\n{head}{content}</section>\n'
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<link rel="icon" href="data:,">\n'
        f"<title>{escaped(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        f"<h1>{escaped(title)}</h1>\n<nav>{links}</nav>\n{body}</main>\n</body>\n</html>\n"
    )


def note(text):
    """A paragraph."""
    return Html(f"<p>{escaped(text)}</p>\n")


def listing(entries, kind="listing"):
    """What names stand for, {name: text}: one below the other, or as "tiles", large and side by side."""
    rows = [f"<div><dt>{escaped(name)}</dt><dd>{escaped(text)}</dd></div>" for name, text in entries.items()]
    return Html(f'<dl class="{kind}">{"".join(rows)}</dl>\n')


def table(rows, words=1, total=False):
    """A table from its rows: the first is the head, the last may be a total; columns after `words` are numbers."""
    lines, kind = [], ' class="number"'
    for cells in rows:
        tag, line = "td" if lines else "th", ""
        for column, cell in enumerate(cells):
            line += f"<{tag}{kind * (column >= words)}>{escaped(cell)}</{tag}>"
        lines.append(f"<tr>{line}</tr>")
    foot = f"<tfoot>{lines.pop()}</tfoot>" if total else ""
    body = f"<thead>{lines[0]}</thead><tbody>{''.join(lines[1:])}</tbody>{foot}"
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
