"""What the commands of this folder found: a file each in results/, of which examples/docs/training.md shows a table.

One file is kept for each subject, written by its command when it ends, with --write.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from machine import versions  # noqa: E402

RESULTS = Path(__file__).parent / "results"
ORDER = "kills", "soak", "fuzz", "mutations"


def store(name, checked, found, command, **details):
    """Write results/NAME.json: what was checked and found in one line each, by which command, and all its numbers."""
    assert name in ORDER, f"{name} has no place in the table"
    RESULTS.mkdir(exist_ok=True)
    entry = {**versions(), "checked": checked, "found": found, "command": command, **details}
    (RESULTS / f"{name}.json").write_text(json.dumps(entry, indent=1) + "\n")


def table():
    """The lines of the table of reliability."""
    lines = ["| what is checked | last found | command | date, commit |", "|---|---|---|---|"]
    for name in ORDER:
        file = RESULTS / f"{name}.json"
        if file.exists():
            entry = json.loads(file.read_text())
            cells = entry["checked"], entry["found"], f"`{entry['command']}`", f"{entry['date']}, {entry['commit']}"
            lines.append("| " + " | ".join(cells) + " |")
    return lines
