"""The table of the page on scaling: what the model of examples/scaling.py says of GPUs."""

import sys
from pathlib import Path

__all__ = ["predictions"]

NETWORKS, COUNTS = ("keras-cnn", "resnet", "resnet-50", "vgg-16"), (1, 8, 32, 64, 256, 1024)


def predictions():
    """The lines of the table."""
    root = Path(__file__).resolve().parents[2]
    sys.path += [str(root), str(root / "kernels")]  # where it is not installed
    from examples import scaling

    how = "efficiency in % (exposed communication in ms), float32, exchanged beside backward"
    heads = ["network, step on one GPU", "fabric", *(f"{count} GPU{'s' * (count > 1)}" for count in COUNTS)]
    rows = [heads, ["---"] * len(heads)]
    for name in NETWORKS:
        found = scaling.NETWORKS[name]()
        title = f"{name}, {1000 * found.seconds:g} ms for {found.batch} images (assumed)"
        for fabric in scaling.FABRICS.values():
            steps = [scaling.predicted(found, count, fabric, scaling.Plan()) for count in COUNTS]
            cells = [f"{100 * step.efficiency:.0f} ({_figure(1000 * step.exposed)})" for step in steps]
            rows.append([title, fabric.title, *cells])
    lines = ["| " + " | ".join(cells) + " |" for cells in rows]
    return [f"PREDICTION by the model, not a measurement: {how}.", "", *lines]


def _figure(value):
    """Two digits, and no power of ten."""
    return f"{value:.0f}" if value >= 100 else f"{value:.2g}"
