"""Results files as Markdown for readme.py: a function for each table, and one writer of them all."""

import math
import sys
from pathlib import Path
from statistics import median

PEERS = {"jax": "JAX", "tinygrad": "tinygrad"}
RATIOS = "ratio to PyTorch", "to its best"


def measured_with(results):
    """The machine and the versions that figures were measured with, in words."""
    names = ("cupy", "numba") if "gpu" in results else ("python", "numpy", "numba", "torch", "jax", "tinygrad")
    versions = ", ".join(f"{name} {results[name]}" for name in names if name in results)
    where = results["gpu"] if "gpu" in results else f"{results['cpu']}, {results['cores']} cores"
    return f"{where}, {versions}; {results['date']}, commit {results['commit']}"


def table(heads, rows):
    """A table; what is None was not measured."""
    lines = [heads, ["---"] * len(heads), *rows]
    return ["| " + " | ".join("-" if cell is None else str(cell) for cell in line) + " |" for line in lines]


def titled(words, results, heads, rows, notes=()):
    """A table under a sentence that says what it shows and where that was measured, with notes below."""
    return [f"{words}: {measured_with(results)}.", "", *table(heads, rows), *notes, ""]


# ---- on the CPU ------------------------------------------------------------------------------------------------------


def accuracy_table(results):
    rows = []
    for row in results["jobs"]:
        accuracy = f"{row['test_accuracy']}"
        if "new_writers_accuracy" in row:
            accuracy += f" (`--split writers`: {row['new_writers_accuracy']})"
        images = f"{row['training_images']}, {row['test_images']}"
        rows.append([row["job"], images, accuracy, row["seconds"], f"`{row['command']}`"])
    heads = ["job", "images (training, test)", "test accuracy, %", "seconds", "command"]
    return titled("Test accuracy of the main job, whole process with compilation", results, heads, rows)


def cpu_tables(results):
    """Tables of the parts that cpu.json holds."""
    parts = {"steps": step_table, "random": random_table, "epoch": epoch_table, "memory": memory_table}
    return [line for name, made in parts.items() if name in results for line in made(results[name])]


def reasons(rows):
    """A line for each peer that did not run, with the rows where it did not."""
    found = {}
    for row in rows:
        for name, why in row.get("not_run", {}).items():
            place = f"{row['model']} (batch {row['batch_size']}, threads {row['threads']})"
            found.setdefault((name, why), []).append(place)
    lines = []
    for (name, why), places in found.items():
        everywhere = "" if len(places) == len(rows) else f" on {', '.join(dict.fromkeys(places))}"
        lines += ["", f"{PEERS.get(name, name)} was not run{everywhere}: {why}."]
    return lines


def milliseconds(value):
    """A time with three digits or more, None where there is none."""
    return None if value is None else f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}"


def with_spread(row, key):
    """A ratio, and in brackets the least and the greatest of single sets of processes, if there were several."""
    sets = row.get(f"{key}_sets", [])
    return f"{row[key]} ({min(sets)} to {max(sets)})" if len(sets) > 1 else row.get(key)


def _ratios(row):
    return with_spread(row, "ratio"), with_spread(row, "ratio_best")


def _steps(words, part, name_of, peers=()):
    """The table of training steps; PyTorch's best is empty unless tuned settings were measured."""
    rows = []
    for row in part["rows"]:
        times = [row["ms"].get(name) for name in ("minigrad", "torch", row.get("best"), *peers)]
        rows.append([name_of(row), row["batch_size"], row["threads"], *map(milliseconds, times), *_ratios(row)])
    heads = ["network", "batch", "threads", "minigrad, ms", "PyTorch", "PyTorch, best"]
    heads += [*(PEERS[name] for name in peers), *RATIOS]
    return titled(words, part["machine"], heads, rows, reasons(part["rows"]))


def step_table(part):
    several = any(len(row.get("ratio_sets", [])) > 1 for row in part["rows"])
    words = (
        "Training step (forward, backward, optimiser), median in ms, same run; PyTorch eager with default settings, "
        "and with the fastest of these and of two tuned ones (channels last or not, fused optimiser, a heap that keeps "
        "memory); JAX and tinygrad under jit"
    )
    words += "; ratios of paired turns, in brackets those of single sets of processes" if several else ""
    peers = [name for name in PEERS if any(name in row["ms"] for row in part["rows"])]
    return _steps(words, part, lambda row: row["model"], peers)


def main_steps(part):
    """The README's table: training steps at the smallest batch and with the most threads, beside PyTorch."""
    batch = min(row["batch_size"] for row in part["rows"])
    threads = max(row["threads"] for row in part["rows"])
    words = (
        f"Training step (forward, backward, optimiser) of {batch} images on {threads} threads, median in ms; PyTorch "
        "as it comes, and at the fastest of three settings; in brackets how many times as fast minigrad is"
    )
    cells = []
    for row in part["rows"]:
        if (row["batch_size"], row["threads"]) == (batch, threads):
            ms, peers = row["ms"], (("torch", "ratio"), (row["best"], "ratio_best"))
            beside = (f"{milliseconds(ms[name])} ({row[ratio]})" for name, ratio in peers)
            cells.append([row["model"], milliseconds(ms["minigrad"]), *beside])
    return titled(words, part["machine"], ["network", "minigrad", "PyTorch", "PyTorch, best"], cells)


def random_table(part):
    words = f"The same for networks drawn at random from seed {part['seed']}, so that no shape is special"
    return _steps(words, part, described)


def described(row):
    """A network drawn at random, in few words."""
    words = ["x".join(map(str, row["shape"]))]
    for kind, *sizes in row["layers"]:
        if kind == "conv":
            _, filters, size, stride, _, _ = sizes
            words.append(f"conv {filters}, {size}x{size}" + f", stride {stride}" * (stride > 1))
        elif kind in ("norm", "pool", "dropout"):
            words[-1] += f", {kind}"
    return "; ".join(words) + f"; {row['optimizer']}"


def epoch_table(part):
    (row,) = part["rows"]
    ms, data = row["ms"], "MNIST" if part["data"] == "MNIST" else "random data of MNIST's shape"
    settings = {"minigrad, s": ["minigrad"], "PyTorch": [name for name in ms if name.startswith("torch,")]}
    settings["PyTorch, best"] = [name for name in ms if name != "minigrad"]
    cells = [f"{min(ms[name] for name in names) / 1000:.2f}" for names in settings.values()]
    words = (
        f"An epoch over {part['images']:,} images of {data} with {row['model']}, batch {row['batch_size']}, "
        f"{row['threads']} threads, each library's own loader included (PyTorch's with 0 or 2 processes, what is "
        "faster)"
    )
    return titled(words, part["machine"], [*settings, *RATIOS], [[*cells, *_ratios(row)]], reasons(part["rows"]))


def memory_table(part):
    names = [name for name in ("minigrad", "torch", *PEERS) if any(name in row["peak_mb"] for row in part["rows"])]
    heads = [{"torch": "PyTorch", **PEERS}.get(name, name) for name in names]
    rows, first = [], part["rows"][0]
    for row in part["rows"]:
        peaks = [
            f"{row['peak_mb'][name]:.0f} ({row['grown_mb'][name]:.0f})" if name in row["peak_mb"] else None
            for name in names
        ]
        rows.append([row["model"], row["empty_cache_s"], *map(row["first_step_s"].get, names), *peaks])
    words = (
        "Seconds from the start of a process to the end of its first step, first where no kernel has been compiled "
        "before, then with caches filled, and the peak memory of one that trains, in MB (in brackets: risen since the "
        f"import), batch {first['batch_size']}, threads {first['threads']}"
    )
    heads = [f"{head}, {unit}" for unit in ("s", "MB") for head in heads]
    heads = ["network", "minigrad, nothing compiled, s", *heads]
    return titled(words, part["machine"], heads, rows, reasons(part["rows"]))


def parallel_table(results):
    names = {"one": "one process", "mpi": "ranks, MPI", "torch": "PyTorch DDP, gloo"}
    rows = []
    for row in results["steps"]:
        times = (round(row["ms"][name], 2) for name in names)
        rows.append([row["model"], row["batch_size"], row["ranks"], *times, f"{row['wrapping_percent']} %"])
    words = (
        "Training step of a batch on CPU ranks with a thread each, ms, beside one process with as many threads and "
        "PyTorch, same run"
    )
    heads = ["network", "batch", "ranks", *names.values(), "DataParallel of one rank adds"]
    return titled(words, results, heads, rows)


def ops_tables(results):
    """Of ops.json at the largest number of threads: how many are faster, and every operation.

    An optimiser's step stands in the second group of columns.
    """
    threads = max(entry["threads"] for entry in results["ops"])
    entries = [entry for entry in results["ops"] if entry["threads"] == threads]
    ratios = sorted(entry["ratio"] for entry in entries)
    found = {}
    for entry in entries:
        cells = found.setdefault(entry["op"], [None] * 6)
        start = 0 if entry["what"] == "forward" else 3
        cells[start : start + 3] = [entry[key] for key in ("minigrad_us", "torch_us", "ratio")]
    beside = f"Single operations beside PyTorch eager, {threads} threads"
    counted = (
        f"{beside}: {sum(ratio >= 1 for ratio in ratios)} of {len(ratios)} figures are at least as fast, the median "
        f"is {ratios[len(ratios) // 2]} times as fast."
    )
    heads = ["operation"]
    for group in ("forward", "forward and backward"):
        heads += [f"{group}: minigrad, us", "PyTorch", "ratio"]
    words = (
        f"{beside}, medians in microseconds; the second group is forward and backward together, or an optimiser's step"
    )
    return [counted, "", *titled(words, results, heads, [[op, *cells] for op, cells in found.items()])]


# ---- on a GPU --------------------------------------------------------------------------------------------------------


def gpu_tables(results):
    """Tables of what tests/gpu/run_all measured on one GPU.

    A part that was stopped by its time limit shows the rows it had; one that failed otherwise shows none.
    """
    lines = []
    for name, made in GPU_TABLES.items():
        part = results["parts"].get(name, {})
        right = not part.get("failed") or part.get("why", "").startswith("not finished")
        if right and (rows := part.get("rows") or part.get("networks")):
            words, heads, cells = made(rows)
            lines += titled(words, part["machine"], heads, cells)
    return lines


def _networks(rows):
    def best(row, way):
        """The most images a second of a contender that runs in this way, in whatever layout."""
        names = way, f"{way} NCHW", f"{way} NHWC"
        return max((round(rate) for name, rate in row["images_per_second"].items() if name in names), default=None)

    ways = {"minigrad": "minigrad", "minigrad, graph": "minigrad, graph", "torch": "PyTorch"}
    ways |= {"torch graph": "PyTorch, graph"}
    ratios = {"minigrad / torch": "ratio, eager", "minigrad, graph / torch graph": "ratio, graphs"}
    case = "network", "task", "batch", "precision"
    cells = [[*map(row.get, case), *(best(row, way) for way in ways), *map(row["ratios"].get, ratios)] for row in rows]
    words = "Images a second on a GPU, op by op and as a captured graph, PyTorch's faster layout, same run"
    return words, [*case, *ways.values(), *ratios.values()], cells


def _graphs(rows):
    columns = {
        "network": "network",
        "batch": "batch",
        "eager_milliseconds": "op by op, ms",
        "replayed_milliseconds": "as a graph, ms",
        "launches_eager": "kernels that Python starts op by op",
    }
    words = "Milliseconds of a training step in float32 on a GPU, op by op and as a captured graph"
    return words, [*columns.values()], [[row[name] for name in columns] for row in rows]


def _products(rows):
    chosen = [row for row in rows if row["rung"] == "default" and row["layout"] == "NN"]
    name_of = lambda row: (f"{row['m']}, {row['n']}, {row['k']}",)
    return "Matrix product, TFLOP/s (share of cuBLAS's speed)", *_by_kind(chosen, ["M, N, K"], name_of, "of_cublas")


def _convolutions(rows):
    chosen = [row for row in rows if row["rung"] == "default"]
    name_of = lambda row: (row["layer"], row["direction"])
    heads = ["layer", "direction"]
    return "Convolution, TFLOP/s (share of cuDNN's speed)", *_by_kind(chosen, heads, name_of, "of_cudnn")


def _by_kind(rows, heads, name_of, share):
    """(heads, lines): a line for each name, a column for each type."""
    kinds, found = list(dict.fromkeys(row["kind"] for row in rows)), {}
    for row in rows:
        found.setdefault(name_of(row), {})[row["kind"]] = f"{row['tflops']} ({row[share]})"
    return [*heads, *kinds], [[*name, *map(cells.get, kinds)] for name, cells in found.items()]


def _race(rows):
    found = {}
    for row in rows:
        key = row["images"], f"{100 * row['target']:g} %", row["contender"]
        found.setdefault(key, []).append(row["seconds"] or math.inf)
    cells = [[*key, "not reached" if median(taken) == math.inf else median(taken)] for key, taken in found.items()]
    words = "On a GPU, seconds of training until the accuracy on MNIST's test images, medians over seeds"
    return words, ["training images", "accuracy", "contender", "seconds"], cells


GPU_TABLES = {"graphs": _graphs, "networks": _networks, "race": _race}
GPU_TABLES |= {"products": _products, "convolutions": _convolutions}

# ---- precision, scaling ----------------------------------------------------------------------------------------------

MEANING = {
    "lower": "in the type of autocast",
    "float32": "in float32",
    "widest": "in the widest type among their arguments",
}


def _find_package():
    """Let the package be imported where it is not installed."""
    root = Path(__file__).resolve().parents[2]
    sys.path += [str(root), str(root / "kernels")]


def table_of_types():
    """Which op computes in which type, by autocast itself."""
    _find_package()
    from minigrad.ops.autocast import table as policies

    rows = [(MEANING[policy], ", ".join(f"`{name}`" for name in names)) for policy, names in policies().items()]
    return [*table(["computes", "ops"], rows), ""]


def precision_table(results):
    """Means over seeds, and differences from float32 in points with their standard errors."""
    others = [name for name in results["jobs"][0]["precisions"] if name != "float32"]
    rows = []
    for row in results["jobs"]:
        found = row["precisions"]
        cells = [
            f"{own['mean']:.2f} ({own['difference']:+.2f} ± {own['standard_error']:.2f})"
            for own in map(found.get, others)
        ]
        mean = f"{found['float32']['mean']:.2f}"
        rows.append([row["job"], row["seeds"], mean, *cells, f"`{row['command']} --precision P`"])
    words = (
        "Test accuracy in percent, the mean over seeds; in brackets the mean difference from float32 in points, seed "
        "by seed, and its standard error"
    )
    return titled(words, results, ["job", "seeds", "float32", *others, "command"], rows)


NETWORKS, COUNTS = ("resnet-50", "vgg-16"), (1, 8, 32, 64, 256, 1024)


def predictions():
    """What the model of examples/scaling.py says of GPUs."""
    _find_package()
    from examples import scaling

    figure = lambda value: f"{value:.0f}" if value >= 100 else f"{value:.2g}"  # two digits, and no power of ten
    rows = []
    for name in NETWORKS:
        found = scaling.NETWORKS[name]()
        title = f"{name}, {1000 * found.seconds:g} ms for {found.batch} images (assumed)"
        for fabric in scaling.FABRICS.values():
            steps = [scaling.predicted(found, count, fabric, scaling.Plan()) for count in COUNTS]
            cells = [f"{100 * step.efficiency:.0f} ({figure(1000 * step.exposed)})" for step in steps]
            rows.append([title, fabric.title, *cells])
    how = "efficiency in % (exposed communication in ms), float32, exchanged beside backward"
    heads = ["network, step on one GPU", "fabric", *(f"{count} GPU{'s' * (count > 1)}" for count in COUNTS)]
    return [f"PREDICTION by the model, not a measurement: {how}.", "", *table(heads, rows), ""]
