"""A reader of as much YAML as our manifests use; what it does not know, it refuses."""

import re

__all__ = ["documents"]


def documents(text):
    """The documents of a YAML file that keeps to block style: mappings, lists, plain and double-quoted values, |."""
    return [block(lines(part), 0)[0] for part in re.split(r"^---\n", text, flags=re.MULTILINE)]


def lines(text):
    """(indentation, content) of the lines; comments and empty lines go, but not within literal text."""
    found, literal = [], None
    for line in text.splitlines():
        indentation = len(line) - len(line.lstrip())
        if literal is not None and (indentation > literal or not line.strip()):
            found.append((indentation, line))
            continue
        literal = None
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        assert "\t" not in line and indentation % 2 == 0
        found.append((indentation, line.strip()))
        if line.endswith((": |", "- |")):
            literal = indentation
    return found


def block(rows, indentation):
    """(value, rows that are left) of a block."""
    if rows[0][1].startswith("- "):
        items = []
        while rows and rows[0] == (indentation, rows[0][1]) and rows[0][1].startswith("- "):
            inner = rows[0][1][2:]
            if is_pair(inner):
                value, rows = block([(indentation + 2, inner), *rows[1:]], indentation + 2)
            else:
                value, rows = scalar(inner, rows[1:], indentation)
            items.append(value)
        return items, rows
    mapping = {}
    while rows and rows[0][0] == indentation and not rows[0][1].startswith("- "):
        name, _, rest = rows[0][1].partition(":")
        assert is_pair(rows[0][1]) and name not in mapping, rows[0]
        mapping[name], rows = scalar(rest.strip(), rows[1:], indentation)
    assert not rows or rows[0][0] <= indentation, rows[0]
    return mapping, rows


def is_pair(text):
    return re.match(r"[\w./-]+:( |$)", text) is not None


def scalar(text, rows, indentation):
    """(value, rows that are left) of what stands behind a colon or a dash."""
    if text == "|":
        count = next((n for n, (inner, line) in enumerate(rows) if line.strip() and inner <= indentation), len(rows))
        start = rows[0][0]
        return "".join(line[start:] + "\n" for _, line in rows[:count]), rows[count:]
    if not text:
        return block(rows, rows[0][0])
    if text.startswith('"'):
        assert text.endswith('"') and "\\" not in text
        return text[1:-1], rows
    assert text[0] not in "[]{}&*!>'%@`" and " #" not in text and ": " not in text, f"not in block style: {text}"
    return {"true": True, "false": False}.get(text, int(text) if text.isdigit() else text), rows
