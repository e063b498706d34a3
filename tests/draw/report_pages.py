"""A report as a reader's program sees it: parsed."""

import base64
import io
import re
import xml.etree.ElementTree as tree
from dataclasses import dataclass, field
from html.parser import HTMLParser

from matplotlib.image import imread

__all__ = ["Page"]

VOID = {"br", "hr", "img", "link", "meta"}
LOADS = {"src", "srcset", "href", "data", "poster", "action", "background"}  # attributes by which a page fetches


@dataclass
class Page(HTMLParser):
    """What is in a page.

    headings    {level: texts}; tables: rows of cells; images: (kind, bytes); figures: {dt: dd} of all lists
    """

    html: str
    headings: dict = field(default_factory=dict)
    tables: list = field(default_factory=list)
    images: list = field(default_factory=list)
    figures: dict = field(default_factory=dict)
    anchors: set = field(default_factory=set)

    def __post_init__(self):
        super().__init__()
        self.stack, self.text, self.term = [], [], None
        self.feed(self.html)
        self.close()
        assert not self.stack, f"not closed: {self.stack}"
        assert not re.search(r"url\(|@import", self.html), "the style loads nothing"

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        assert tag not in ("script", "iframe", "object", "embed"), tag
        assert not [name for name in attributes if name.startswith("on")]
        for name in LOADS & attributes.keys():
            assert attributes[name].startswith(("data:", "#")), f"{tag} {name} loads {attributes[name][:60]}"
        self.anchors |= {attributes["id"]} if "id" in attributes else set()
        if tag == "img":
            assert attributes["alt"]
            kind, data = attributes["src"].removeprefix("data:").split(";base64,")
            self.images.append((kind, base64.b64decode(data, validate=True)))
        self.tables += [[]] if tag == "table" else []
        if tag == "tr":
            self.tables[-1].append([])
        if tag not in VOID:
            self.stack.append(tag)
            self.text = []

    def handle_data(self, data):
        self.text.append(data)

    def handle_endtag(self, tag):
        assert self.stack and self.stack[-1] == tag, f"</{tag}> ends {self.stack[-1:]}"
        self.stack.pop()
        text = "".join(self.text).strip()
        if re.fullmatch("h[1-6]", tag):
            self.headings.setdefault(tag, []).append(text)
        elif tag in ("td", "th"):
            self.tables[-1][-1].append(text)
        elif tag == "dt":
            self.term = text
        elif tag == "dd":
            self.figures[self.term] = text

    def table(self, first):
        """The rows below the head of the table whose first column has this name, as {name: cell}."""
        (found,) = [table for table in self.tables if table[0][0] == first]
        return [dict(zip(found[0], row, strict=True)) for row in found[1:]]

    def check_images(self):
        """Every picture decodes and has something on it; returns their kinds."""
        for kind, data in self.images:
            if kind == "image/png":
                pixels = imread(io.BytesIO(data), format="png")
                assert data.startswith(b"\x89PNG\r\n\x1a\n") and min(pixels.shape[:2]) > 100 and pixels.std() > 0.01
            else:
                assert kind == "image/svg+xml"
                root = tree.fromstring(data)
                assert root.tag == "{http://www.w3.org/2000/svg}svg"
                loads = [value for node in root.iter() for name, value in node.items() if name.endswith("href")]
                assert all(value.startswith(("#", "data:image/png;")) for value in loads), "a picture loads something"
        return [kind for kind, _ in self.images]
