"""Writes the code that tour.md and the two pages on convolutions show: python examples/docs/tour.py

A mark names a file, and a function, class or method in it, or a primitive, which is shown with its gradient rules:

    <!-- minigrad/core/primitive.py Primitive.now -->
"""

import ast
import re
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = Path(__file__).with_name("tour.md")
PAGES = (PAGE, PAGE.with_name("conv2d-cpu.md"), PAGE.with_name("conv2d-cuda.md"))
MARK = re.compile(r"(<!-- (\S+\.py) (\S+) -->\n)(?:```python\n.*?^```\n)?", re.MULTILINE | re.DOTALL)


def source(file, name):
    """The lines that define a name, and the statements `name.method(...)` right below them."""
    text = (ROOT / file).read_text()
    body = ast.parse(text).body
    for part in name.split("."):
        place = next(i for i, node in enumerate(body) if getattr(node, "name", None) == part)
        node, after = body[place], body[place + 1 :]
        body = getattr(node, "body", [])
    end = node.end_lineno
    for statement in after:
        if not ast.unparse(statement).startswith(f"{name}."):
            break
        end = statement.end_lineno
    first = min([node.lineno, *[one.lineno for one in node.decorator_list]])
    return textwrap.dedent("\n".join(text.split("\n")[first - 1 : end]))


def filled(page):
    """The page with the code of each mark below it."""
    return MARK.sub(lambda found: f"{found[1]}```python\n{source(found[2], found[3])}\n```\n", page)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(filled(page.read_text()))
