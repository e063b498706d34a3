"""The tables of the page on precision: which op computes in which type, and test accuracies by precision."""

import sys
from pathlib import Path

from cpu_tables import measured_with

__all__ = ["precision_table", "table_of_types"]

MEANING = {
    "lower": "in the type of autocast",
    "float32": "in float32",
    "widest": "in the widest type among their arguments",
}


def table_of_types():
    """That of autocast itself."""
    root = Path(__file__).resolve().parents[2]
    sys.path += [str(root), str(root / "kernels")]  # where it is not installed
    from minigrad.ops.autocast import table

    rows = [f"| {MEANING[policy]} | {', '.join(f'`{name}`' for name in names)} |" for policy, names in table().items()]
    return ["| computes | ops |", "|---|---|", *rows]


def precision_table(results):
    """Means over seeds, and differences from float32 in points with their standard errors."""
    others = [name for name in results["jobs"][0]["precisions"] if name != "float32"]
    lines = [
        "Test accuracy in percent, the mean over seeds; in brackets the mean difference from float32 in points, seed "
        f"by seed, and its standard error: {measured_with(results)}.",
        "",
        f"| job | seeds | float32 | {' | '.join(others)} | command |",
        "|---|---|---|" + "---|" * (len(others) + 1),
    ]
    for row in results["jobs"]:
        found = row["precisions"]
        cells = [f"{found['float32']['mean']:.2f}"]
        for name in others:
            own = found[name]
            cells.append(f"{own['mean']:.2f} ({own['difference']:+.2f} ± {own['standard_error']:.2f})")
        lines.append(f"| {row['job']} | {row['seeds']} | {' | '.join(cells)} | `{row['command']} --precision P` |")
    return lines
