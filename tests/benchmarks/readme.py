"""Write the figures of the README and of four pages: python tests/benchmarks/readme.py [--check]

They come from the results files, here and in tests/reliability, and from the model of examples/scaling.py. --check
fails instead if they do not show what those hold.
"""

import json
import math
import sys
from pathlib import Path
from statistics import median

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "reliability")]

from cpu_tables import cpu_tables, main_steps, measured_with, ops_summary, ops_table  # noqa: E402
from precision_tables import precision_table, table_of_types  # noqa: E402
from results import table as reliability_table  # noqa: E402
from scaling_tables import predictions  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
README, PAGE = ROOT / "README.md", ROOT / "examples" / "docs" / "figures.md"
PRECISION = ROOT / "examples" / "docs" / "precision.md"
DETERMINISM = ROOT / "examples" / "docs" / "determinism.md"
SCALING = ROOT / "examples" / "docs" / "scaling.md"
RESULTS = Path(__file__).parent / "results"


def accuracy_table(results):
    lines = [
        f"Test accuracy of the main job, whole process with compilation: {measured_with(results)}.",
        "",
        "| job | images (training, test) | test accuracy, % | seconds | command |",
        "|---|---|---|---|---|",
    ]
    for row in results["jobs"]:
        images = f"{row['training_images']}, {row['test_images']}"
        accuracy = f"{row['test_accuracy']}"
        if "new_writers_accuracy" in row:
            accuracy += f" (`--split writers`: {row['new_writers_accuracy']})"
        lines.append(f"| {row['job']} | {images} | {accuracy} | {row['seconds']} | `{row['command']}` |")
    return lines


# Of parallel.py; heads of columns.
CONTENDERS = {"one": "one process", "mpi": "ranks, MPI", "torch": "PyTorch DDP, gloo"}


def parallel_table(results):
    lines = [
        f"Training step of a batch on CPU ranks with a thread each, ms, beside one process with as many threads and "
        f"PyTorch, same run: {measured_with(results)}.",
        "",
        f"| network | batch | ranks | {' | '.join(CONTENDERS.values())} | DataParallel of one rank adds |",
        "|---|---|---|" + "---|" * (len(CONTENDERS) + 1),
    ]
    for row in results["steps"]:
        cells = row["model"], row["batch_size"], row["ranks"], *(round(row["ms"][name], 2) for name in CONTENDERS)
        lines.append("| " + " | ".join(map(str, cells)) + f" | {row['wrapping_percent']} % |")
    return lines


def gpu_tables(results):
    """Tables of what tests/gpu/run_all measured on one GPU.

    A part that was stopped by its time limit shows the rows it had; one that failed otherwise shows none.
    """
    parts, lines = results["parts"], []
    for name, table in GPU_TABLES.items():
        part = parts.get(name)
        right = part and (not part.get("failed") or part.get("why", "").startswith("not finished"))
        rows = part.get("rows") or part.get("networks") if right else None
        if rows:
            lines += [*table(rows, on_gpu(part)), ""]
    return lines


def _table(heads, rows):
    return [_line(heads), "|" + "---|" * len(heads), *map(_line, rows)]


def _line(cells):
    return "| " + " | ".join("" if cell is None else str(cell) for cell in cells) + " |"


def _networks(rows, where):
    ways = ("minigrad", "minigrad, graph", "torch", "torch graph")
    lines = [
        f"Images a second on a GPU, op by op and as a captured graph, PyTorch's faster layout, same run: {where}.",
        "",
    ]
    table = []
    for row in rows:
        rates, ratio = row["images_per_second"], row["ratios"]
        best = [max((round(rate) for name, rate in rates.items() if _is(name, way)), default=None) for way in ways]
        share = [ratio.get(name) for name in ("minigrad / torch", "minigrad, graph / torch graph")]
        table.append([*(row[name] for name in ("network", "task", "batch", "precision")), *best, *share])
    heads = ["network", "task", "batch", "precision", "minigrad", "minigrad, graph", "PyTorch", "PyTorch, graph"]
    return lines + _table([*heads, "ratio, eager", "ratio, graphs"], table)


def _graphs(rows, where):
    lines = [f"Milliseconds of a training step in float32 on a GPU, op by op and as a captured graph: {where}.", ""]
    cells = ("network", "batch", "eager_milliseconds", "replayed_milliseconds", "launches_eager")
    heads = ["network", "batch", "op by op, ms", "as a graph, ms", "kernels that Python starts op by op"]
    return lines + _table(heads, [[row[name] for name in cells] for row in rows])


def _is(contender, way):
    """Whether a contender runs in this way, in whatever layout."""
    return contender == way or contender in (f"{way} NCHW", f"{way} NHWC")


def _products(rows, where):
    chosen = [row for row in rows if row["rung"] == "default" and row["layout"] == "NN"]
    lines = [f"Matrix product, TFLOP/s (share of cuBLAS's speed): {where}.", ""]
    return lines + _by_kind(chosen, ["M, N, K"], lambda row: (f"{row['m']}, {row['n']}, {row['k']}",), "of_cublas")


def _convolutions(rows, where):
    chosen = [row for row in rows if row["rung"] == "default"]
    lines = [f"Convolution, TFLOP/s (share of cuDNN's speed): {where}.", ""]
    return lines + _by_kind(chosen, ["layer", "direction"], lambda row: (row["layer"], row["direction"]), "of_cudnn")


def _by_kind(rows, heads, key, share):
    """A line for each key, a column for each type."""
    kinds = list(dict.fromkeys(row["kind"] for row in rows))
    cells = {(key(row), row["kind"]): f"{row['tflops']} ({row[share]})" for row in rows}
    keys = dict.fromkeys(key(row) for row in rows)
    return _table([*heads, *kinds], [[*name, *(cells.get((name, kind)) for kind in kinds)] for name in keys])


def _race(rows, where):
    lines = [
        f"On a GPU, seconds of training until the accuracy on MNIST's test images, medians over seeds: {where}.",
        "",
    ]
    found = {}
    for row in rows:
        found.setdefault((row["images"], row["target"], row["contender"]), []).append(row["seconds"] or math.inf)
    table = [
        [images, f"{100 * target:g} %", who, "not reached" if math.isinf(median(taken)) else median(taken)]
        for (images, target, who), taken in found.items()
    ]
    return lines + _table(["training images", "accuracy", "contender", "seconds"], table)


def _cifar(rows, where):
    lines = [f"A ResNet with batch norm on CIFAR-10 on a GPU, by the same recipe, one seed: {where}.", ""]
    heads = ["training images", "epochs", "precision", "contender", "test accuracy, %", "seconds of training"]
    cells = ("images", "epochs", "precision", "contender")
    return lines + _table(
        heads, [[*map(row.get, cells), round(100 * row["accuracy"], 2), row["seconds"]] for row in rows]
    )


GPU_TABLES = {"graphs": _graphs, "networks": _networks, "race": _race, "cifar": _cifar}
GPU_TABLES |= {"products": _products, "convolutions": _convolutions}


def on_gpu(part):
    found = part["machine"]
    return f"{found['gpu']}, cupy {found['cupy']}, numba {found['numba']}; {found['date']}, commit {found['commit']}"


def stored(name):
    """What results/NAME.json holds, None where there is no such file."""
    file = RESULTS / f"{name}.json"
    return json.loads(file.read_text()) if file.exists() else None


def measured_gpus():
    """The results of every GPU that was measured."""
    found = [json.loads(file.read_text()) for file in sorted(RESULTS.glob("*.json"))]
    return [results for results in found if "parts" in results]


def summary():
    """The README's figures: training steps on the CPU, MNIST, steps on a GPU beside PyTorch's."""
    best = max(stored("accuracy")["jobs"], key=lambda job: job["training_images"] * job["test_accuracy"])
    digits = f"{best['test_accuracy']} % of {best['test_images']:,} images of MNIST after training on"
    lines = [*main_steps(stored("cpu")["steps"]), ""]
    lines += [f"{digits} {best['training_images']:,} for {best['seconds']} s, compilation included.", ""]
    for results in measured_gpus():
        part = results["parts"]["networks"]
        rows = [row for row in part["rows"] if row["precision"] == "float32"]
        told = ", ".join(f"{row['network']} {row['ratios']['minigrad, graph / torch graph']:.2f}" for row in rows)
        lines += [
            "A captured training step on a GPU in float32, batch 64, times as fast as PyTorch's in a CUDA graph: "
            f"{told} ({on_gpu(part)}).",
            "",
        ]
    return "\n".join(lines)


def figures():
    """All tables."""
    lines = [*accuracy_table(stored("accuracy")), "", *cpu_tables(stored("cpu")), *parallel_table(stored("parallel"))]
    lines += ["", *ops_summary(stored("ops")), *ops_table(stored("ops")), ""]
    for results in measured_gpus():
        lines += gpu_tables(results)
    return "\n".join(lines)


def written(page, text, made, name="figures"):
    """The page's text with what is made between its marks; SystemExit under --check if that is another text."""
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->\n"
    before, rest = text.split(begin)
    _, after = rest.split(end)
    wanted = f"{before}{begin}\n{made}{end}{after}"
    if "--check" in sys.argv and wanted != text:
        sys.exit(f"{page.name} does not show the figures of the results files; run tests/benchmarks/readme.py")
    return wanted


def main():
    accuracies = "\n".join([*precision_table(stored("precision")), "", ""])
    for page, made in ((README, summary()), (PAGE, figures()), (PRECISION, accuracies)):
        page.write_text(written(page, page.read_text(), made))
    reliability = "\n".join([*reliability_table(), "", ""])
    DETERMINISM.write_text(written(DETERMINISM, DETERMINISM.read_text(), reliability, "reliability"))
    types = "\n".join([*table_of_types(), "", ""])
    PRECISION.write_text(written(PRECISION, PRECISION.read_text(), types, "table"))
    predicted = "\n".join([*predictions(), "", ""])
    SCALING.write_text(written(SCALING, SCALING.read_text(), predicted, "prediction"))


if __name__ == "__main__":
    main()
