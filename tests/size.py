"""How much code there is: python tests/size.py [--since REV]

A code line holds a token that is neither a comment nor a docstring. Docstrings, formulas, comments and empty lines are
free. The table has one row a folder, and with --since the difference to a commit. The exit code is 1 where `minigrad`
and `kernels` together have more code lines than LIMIT. The code is counted as it stands: `ruff format` keeps it at 120
columns, with one statement on a line.
"""

import argparse
import ast
import io
import subprocess
import sys
import tarfile
import tokenize
from pathlib import Path

LIMIT = 24_000
LIBRARY = ("minigrad", "kernels")
COUNTED = (*LIBRARY, "tests", "examples")
ROOT = Path(__file__).resolve().parents[1]
KINDS = "COMMENT NL NEWLINE INDENT DEDENT ENCODING ENDMARKER".split()  # of tokens that are no code
FREE = {getattr(tokenize, kind) for kind in KINDS}


def code_lines(source):
    """The number of code lines in the text of a Python file."""
    docstrings, lines = set(), set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            if ast.get_docstring(node, clean=False) is not None:
                docstrings.update(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in FREE and token.start[0] not in docstrings:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines)


def table(files):
    """{folder: code lines} of (path, text) pairs.

    A folder is one of COUNTED or one directly in it; in kernels, one directly in minigrad_kernels.
    """
    sizes = {}
    for path, text in files:
        parts = Path(path).parts
        depth = 3 if parts[0] == "kernels" else 2  # kernels/minigrad_kernels/conv2d, minigrad/ops
        folder = "/".join(parts[: min(depth, len(parts) - 1)])
        sizes[folder] = sizes.get(folder, 0) + code_lines(text)
    return sizes


def here():
    """(path, text) of the files as they stand."""
    paths = [path for part in COUNTED for path in sorted((ROOT / part).rglob("*.py"))]
    return [(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")) for path in paths]


def at(revision):
    """(path, text) of the files of a commit."""
    command = ["git", "archive", "--format=tar", revision, "--", *COUNTED]
    archive = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as members:
        names = [name for name in members.getnames() if name.endswith(".py")]
        return [(name, members.extractfile(name).read().decode("utf-8")) for name in names]


def row(name, now, before, chosen):
    """A line of the table: the sum of the chosen folders now, and what it is more than before."""
    now, before = (None if sizes is None else sum(map(sizes.get, sizes.keys() & chosen)) for sizes in (now, before))
    return f"{name:<42} {now:>7,}" + ("" if before is None else f" {now - before:>+8,}")


def rows(now, before):
    """The lines of the table: folders in order, each part's sum behind its folders."""
    folders = sorted({*now, *(before or ())})
    for part in COUNTED:
        within = [folder for folder in folders if folder.split("/")[0] == part]
        yield from (row(f"  {folder}", now, before, {folder}) for folder in within)
        yield row(part, now, before, {*within})
    yield row("library", now, before, {folder for folder in folders if folder.split("/")[0] in LIBRARY})


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--since", metavar="REV", help="also print the difference to this commit")
    options = parser.parse_args(arguments)
    now = table(here())
    print("\n".join(rows(now, table(at(options.since)) if options.since else None)))
    size = sum(lines for folder, lines in now.items() if folder.split("/")[0] in LIBRARY)
    print(f"{size:,} code lines in minigrad and kernels, limit {LIMIT:,}: {LIMIT - size:+,} left")
    return 1 if size > LIMIT else 0


if __name__ == "__main__":
    sys.exit(main())
