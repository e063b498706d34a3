"""The scaling model against CPU ranks on shaped links: python tests/benchmarks/scaling.py [--write | --page | --check]

Ranks that are joined by links of a given speed train a network that sleeps (see scaling_ranks.py). For each link and
number of ranks, all-reduces of two sizes give a latency and a bandwidth; from these and the seconds of a step alone
the model predicts steps with and without overlap, in several buckets, and they are measured in the same rounds. An
error above 15 % ends with 1. Needs Linux, root, ip and tc; without them it says so and ends with 2.

--write     store the figures in tests/benchmarks/results/scaling.json and renew the tables of examples/docs/scaling.md
--page      renew the tables from the stored figures alone
--check     end with 1 unless the tables are those of the stored figures and of the model
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "kernels")]  # this working tree, whatever is installed

from examples import scaling  # noqa: E402
from tests.benchmarks.scaling_ranks import ELEMENTS, FITTED, SECONDS, measured, missing  # noqa: E402

RESULTS = Path(__file__).parent / "results" / "scaling.json"
PAGE = ROOT / "examples" / "docs" / "scaling.md"
LINKS = ((200, 2), (200, 4), (1000, 2), (1000, 4))  # Mbit/s, ranks
ALLOWED = 15  # percent
NETWORKS, COUNTS = ("keras-cnn", "resnet", "resnet-50", "vgg-16"), (1, 8, 32, 64, 256, 1024)


def compared(ranks, megabits):
    """(the fit, rows of measured and predicted steps) of ranks on links of this speed."""
    found = measured(ranks, megabits)
    latency, per_byte = fitted(*found["fitted"])
    layers = [scaling.Layer((elements,), 1, 0, 0) for elements in ELEMENTS]
    network = scaling.assembled("sleeping", layers, 1, SECONDS)
    exchange = lambda elements: latency + 4 * elements * per_byte
    link = {"mbit": megabits, "ranks": ranks}
    # A ring, and every other algorithm that is best for large arrays, sends 2 (n - 1) / n of the bytes.
    reached = 8e-6 * 2 * (ranks - 1) / ranks / per_byte
    alone = round(1000 * found["alone"], 1)
    fit = link | {"alpha_ms": round(1000 * latency, 2), "reached_mbit": round(reached), "alone_ms": alone}
    rows = []
    for step in found["steps"]:
        cuts, overlap, took = step["cuts"], step["overlap"], step["seconds"]
        predicted = scaling.simulated(network, found["alone"], cuts, exchange, overlap=overlap).seconds
        row = link | {"buckets": len(cuts), "overlap": overlap}
        row |= {"measured_ms": round(1000 * took, 1), "predicted_ms": round(1000 * predicted, 1)}
        rows.append(row | {"error_percent": round(100 * (predicted / took - 1), 1)})
    return fit, rows


def fitted(small, large):
    """(latency in seconds, seconds a byte) of all-reduces that take so long; a line through zero if noise tilts it."""
    less, more = FITTED
    per_byte = (large - small) / (more - less)
    latency = small - less * per_byte
    return (latency, per_byte) if latency > 0 else (0.0, large / more)


# ---- the page ------------------------------------------------------------------------------------------


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(map(str, cells)) + " |" for cells in lines]


def figure(value):
    """Two digits, and no power of ten."""
    return f"{value:.0f}" if value >= 100 else f"{value:.2g}"


def measured_tables(results):
    """Lines: CPU ranks beside the model."""
    source = f"{results['cpu']}, {results['cores']} cores, python {results['python']}, numpy {results['numpy']}"
    yield f"Measured: {source}; {results['date']}, commit {results['commit']}."
    yield ""
    fits = {(fit["mbit"], fit["ranks"]): fit for fit in results["fits"]}
    rows = []
    for row in results["steps"]:
        fit = fits[row["mbit"], row["ranks"]]
        when = "beside backward" if row["overlap"] else "after backward"
        cells = [row["mbit"], row["ranks"], fit["alpha_ms"], fit["reached_mbit"], row["buckets"], when]
        rows.append([*cells, fit["alone_ms"], row["measured_ms"], row["predicted_ms"], f"{row['error_percent']:+}"])
    head = ["link, Mbit/s", "ranks", "latency, ms", "reached, Mbit/s", "buckets", "exchange"]
    yield from table([*head, "step alone, ms", "measured, ms", "predicted, ms", "error, %"], rows)


def predicted_tables():
    """Lines: what the model says of GPUs."""
    how = "efficiency in % (exposed communication in ms), float32, exchanged beside backward"
    yield f"PREDICTION by the model, not a measurement: {how}."
    yield ""
    rows = []
    for name in NETWORKS:
        found = scaling.NETWORKS[name]()
        for fabric in scaling.FABRICS.values():
            steps = [scaling.predicted(found, count, fabric, scaling.Plan()) for count in COUNTS]
            cells = [f"{100 * step.efficiency:.0f} ({figure(1000 * step.exposed)})" for step in steps]
            title = f"{name}, {1000 * found.seconds:g} ms for {found.batch} images (assumed)"
            rows.append([title, fabric.title, *cells])
    yield from table(
        ["network, step on one GPU", "fabric", *(f"{count} GPU{'s' * (count > 1)}" for count in COUNTS)], rows
    )


def page(results, text):
    """The page's text with its tables renewed."""
    for name, lines in (("scaling", measured_tables(results)), ("prediction", predicted_tables())):
        before, rest = text.split(f"<!-- {name} -->\n")
        _, after = rest.split(f"<!-- /{name} -->")
        text = f"{before}<!-- {name} -->\n\n" + "\n".join(lines) + f"\n\n<!-- /{name} -->{after}"
    return text


def versions():
    import numpy

    git = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return {
        "date": time.strftime("%Y-%m-%d"),
        "commit": subprocess.run(git, capture_output=True, text=True).stdout.strip(),
        "cpu": names[0].split(":", 1)[1].strip() if names else platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "numpy": numpy.__version__,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ways = parser.add_mutually_exclusive_group()
    for name in ("--write", "--page", "--check"):
        ways.add_argument(name, action="store_true")
    options = parser.parse_args()
    if options.page or options.check:
        wanted = page(json.loads(RESULTS.read_text()), PAGE.read_text())
        if options.check and wanted != PAGE.read_text():
            sys.exit(f"{PAGE.name} does not show {RESULTS.name}; run tests/benchmarks/scaling.py --page")
        PAGE.write_text(wanted)
        return
    reason = missing()
    if reason:
        print(f"scaling: {reason}", file=sys.stderr)
        sys.exit(2)
    fits, rows = [], []
    for megabits, ranks in LINKS:
        fit, found = compared(ranks, megabits)
        print(fit, *found, sep="\n  ", flush=True)
        fits.append(fit)
        rows += found
    worst = max(abs(row["error_percent"]) for row in rows)
    print(f"largest error {worst} %")
    if options.write:
        RESULTS.write_text(json.dumps({**versions(), "fits": fits, "steps": rows}, indent=1) + "\n")
        PAGE.write_text(page(json.loads(RESULTS.read_text()), PAGE.read_text()))
    sys.exit(int(worst > ALLOWED))


if __name__ == "__main__":
    main()
