"""Runs the source of a notebook as Jupyter would, without Jupyter.

python tests/examples/notebook_run.py examples/notebooks/01_tape.py

Every picture is drawn, and what stands at the end of a line by itself shows itself as it would in a cell.
"""

import ast
import sys
from pathlib import Path

import matplotlib

WAYS = ("_repr_svg_", "_repr_html_")  # how objects show themselves, beside their text


def run(script):
    """Execute the script's statements in order; returns how many pictures were drawn."""
    matplotlib.use("agg")
    from matplotlib import pyplot

    pictures = 0

    def show():
        nonlocal pictures
        for number in pyplot.get_fignums():
            pyplot.figure(number).canvas.draw()
            pictures += 1
        pyplot.close("all")

    pyplot.show = show
    sys.path.insert(0, str(script.parent))
    namespace = {"__name__": "__main__"}
    for statement in ast.parse(script.read_text(), str(script)).body:
        if isinstance(statement, ast.Expr):
            value = eval(compile(ast.Expression(statement.value), str(script), "eval"), namespace)
            for way in [way for way in WAYS if hasattr(value, way)][:1]:
                pictures += bool(getattr(value, way)())
        else:
            exec(compile(ast.Module([statement], []), str(script), "exec"), namespace)
    show()
    return pictures


if __name__ == "__main__":
    print(f"pictures: {run(Path(sys.argv[1]).resolve())}")
