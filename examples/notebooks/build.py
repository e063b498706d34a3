"""Runs the notebooks and keeps what they show: NN_name.py becomes NN_name.ipynb with its outputs.

python examples/notebooks/build.py              all of them (needs pip install -e ".[notebook]")
python examples/notebooks/build.py 01_tape      one
"""

import argparse
import os
import sys
import time
from pathlib import Path

FOLDER = Path(__file__).parent
LIMIT = 180  # seconds that a notebook may take
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def scripts():
    """The sources of the notebooks, in the order of the course."""
    return sorted(FOLDER.glob("[0-9][0-9]_*.py"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="such as 01_tape; all where none is given")
    names = parser.parse_args().names
    known = {script.stem: script for script in scripts()}
    unknown = [name for name in names if name not in known]
    if unknown:
        parser.error(f"there is no {', '.join(unknown)}; there are {', '.join(known)}")
    for name in names or known:
        begun = time.monotonic()
        print(f"{name} ...", end=" ", flush=True)
        build(known[name])
        print(f"{time.monotonic() - begun:.0f} s", flush=True)


def build(script):
    """Run a script in a kernel of Jupyter and write the notebook beside it. An error in a cell is raised."""
    import nbclient
    import nbformat

    notebook = read(script)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(FOLDER), os.environ.get("PYTHONPATH")]))
    resources = {"metadata": {"path": str(FOLDER)}}
    # One text for each cell: Jupyter sends it in pieces, as they come.
    nbclient.NotebookClient(notebook, timeout=LIMIT, resources=resources, coalesce_streams=True).execute()
    for cell in notebook.cells:
        cell.metadata = {}  # when it ran is nobody's business
    nbformat.write(notebook, script.with_suffix(".ipynb"))


def read(script):
    """A script as a notebook without outputs. The names of its cells follow from their places."""
    import jupytext

    notebook = jupytext.read(script, fmt="py:percent")
    notebook.metadata = {"kernelspec": KERNEL, "language_info": {"name": "python"}}
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    for place, cell in enumerate(notebook.cells):
        cell.id, cell.metadata = f"cell-{place}", {}
    return notebook


if __name__ == "__main__":
    sys.exit(main())
