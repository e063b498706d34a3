"""Results files as Markdown for readme.py: a function for each table, and one writer of them all."""

import math
from statistics import median

PEERS = {"jax": "JAX", "tinygrad": "tinygrad"}
NAMES = {"minigrad": "minigrad", "torch": "PyTorch", **PEERS}


def measured_with(results):
    """The machine and the versions that figures were measured with, in words."""
    names = ("cupy", "numba") if "gpu" in results else ("python", "numpy", "numba", "torch", "jax", "tinygrad")
    versions = ", ".join(f"{name} {results[name]}" for name in names if name in results)
    where = results["gpu"] if "gpu" in results else f"{results['cpu']}, {results['cores']} cores"
    return f"{where}, {versions}; {results['date']}, commit {results['commit']}"


def table(rows, columns):
    """A table: {head: key of a row, or function of it}; what is None was not measured."""
    lines = [[*columns], ["---"] * len(columns)]
    lines += [[find(row) if callable(find) else row.get(find) for find in columns.values()] for row in rows]
    return ["| " + " | ".join("-" if cell is None else str(cell) for cell in line) + " |" for line in lines]


def titled(words, results, rows, columns, notes=()):
    """A table under a sentence that says what it shows and where that was measured, with notes below."""
    return [f"{words}: {measured_with(results)}.", "", *table(rows, columns), *notes, ""]


# ---- on the CPU ------------------------------------------------------------------------------------------------------


def accuracy_table(results):
    def accuracy(row):
        writers = row.get("new_writers_accuracy")
        return f"{row['test_accuracy']}" + (f" (`--split writers`: {writers})" if writers else "")

    columns = {
        "job": "job",
        "images (training, test)": lambda row: f"{row['training_images']}, {row['test_images']}",
        "test accuracy, %": accuracy,
        "seconds": "seconds",
        "command": lambda row: f"`{row['command']}`",
    }
    words = "Test accuracy of the main job, whole process with compilation"
    return titled(words, results, results["jobs"], columns)


def cpu_tables(results):
    """Tables of the parts that cpu.json holds."""
    parts = {"steps": step_table, "random": random_table, "epoch": epoch_table, "memory": memory_table}
    return [line for name, made in parts.items() if name in results for line in made(results[name])]


def reasons(rows):
    """A line for each peer that did not run, with the networks where it did not."""
    found = {}
    for row in rows:
        for name, why in row.get("not_run", {}).items():
            found.setdefault((name, why), {})[row["model"]] = None
    lines = [f"{NAMES[name]} was not run on {', '.join(models)}: {why}." for (name, why), models in found.items()]
    return [text for line in lines for text in ("", line)]


def milliseconds(name):
    """A time with three digits or more, None where there is none: a function of a row."""

    def find(row):
        value = row["ms"].get(row.get("best") if name == "best" else name)
        return None if value is None else f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}"

    return find


def with_spread(row, key):
    """A ratio, and in brackets the least and the greatest of single sets of processes, if there were several."""
    sets = row.get(f"{key}_sets", [])
    return f"{row[key]} ({min(sets)} to {max(sets)})" if len(sets) > 1 else row.get(key)


RATIOS = {
    "ratio to PyTorch": lambda row: with_spread(row, "ratio"),
    "to its best": lambda row: with_spread(row, "ratio_best"),
}


def _steps(words, part, network):
    """The table of training steps; PyTorch's best is empty unless tuned settings were measured."""
    columns = {
        "network": network,
        "batch": "batch_size",
        "threads": "threads",
        "minigrad, ms": milliseconds("minigrad"),
    }
    columns |= {"PyTorch": milliseconds("torch"), "PyTorch, best": milliseconds("best")}
    peers = [name for name in PEERS if any(name in row["ms"] for row in part["rows"])]
    columns |= {PEERS[name]: milliseconds(name) for name in peers} | RATIOS
    return titled(words, part["machine"], part["rows"], columns, reasons(part["rows"]))


def step_table(part):
    words = (
        "Training step (forward, backward, optimiser), median in ms, same run; PyTorch eager with default settings, "
        "and with the fastest of these and of two tuned ones (channels last or not, fused optimiser, a heap that keeps "
        "memory); JAX and tinygrad under jit; ratios of paired turns, in brackets those of single sets of processes"
    )
    return _steps(words, part, "model")


def main_steps(part):
    """The README's table: training steps at the smallest batch and with the most threads, beside PyTorch."""
    batch = min(row["batch_size"] for row in part["rows"])
    threads = max(row["threads"] for row in part["rows"])
    words = (
        f"Training step (forward, backward, optimiser) of {batch} images on {threads} threads, median in ms; PyTorch "
        "as it comes, and at the fastest of three settings; in brackets how many times as fast minigrad is"
    )
    beside = lambda name, ratio: lambda row: f"{milliseconds(name)(row)} ({row[ratio]})"
    columns = {"network": "model", "minigrad": milliseconds("minigrad"), "PyTorch": beside("torch", "ratio")}
    columns["PyTorch, best"] = beside("best", "ratio_best")
    rows = [row for row in part["rows"] if (row["batch_size"], row["threads"]) == (batch, threads)]
    return titled(words, part["machine"], rows, columns)


def random_table(part):
    words = f"The same for networks drawn at random from seed {part['seed']}, so that no shape is special"
    return _steps(words, part, described)


def described(row):
    """A network drawn at random, in few words."""
    conv = lambda _, filters, size, stride, *more: f"; conv {filters}, {size}x{size}, stride {stride}"
    more = {"conv": conv, "norm": lambda *_: ", norm", "pool": lambda *_: ", pool", "dropout": lambda *_: ", dropout"}
    layers = "".join(more[kind](*sizes) for kind, *sizes in row["layers"] if kind in more)
    return f"{'x'.join(map(str, row['shape']))}{layers}; {row['optimizer']}"


def epoch_table(part):
    (row,), data = part["rows"], "MNIST" if part["data"] == "MNIST" else "random data of MNIST's shape"
    seconds = lambda *begins: lambda row: f"{min(ms for n, ms in row['ms'].items() if n.startswith(begins)) / 1000:.2f}"
    columns = {"minigrad, s": seconds("minigrad"), "PyTorch": seconds("torch,"), "PyTorch, best": seconds("torch")}
    words = (
        f"An epoch over {part['images']:,} images of {data} with {row['model']}, batch {row['batch_size']}, "
        f"{row['threads']} threads, each library's own loader included (PyTorch's with 0 or 2 processes, what is "
        "faster)"
    )
    return titled(words, part["machine"], [row], columns | RATIOS, reasons([row]))


def memory_table(part):
    def peak(name):
        both = lambda row: f"{row['peak_mb'][name]:.0f} ({row['grown_mb'][name]:.0f})"
        return lambda row: both(row) if name in row["peak_mb"] else None

    rows, first = part["rows"], part["rows"][0]
    names = {name: title for name, title in NAMES.items() if any(name in row["peak_mb"] for row in rows)}
    columns = {"network": "model", "minigrad, nothing compiled, s": "empty_cache_s"}
    for name, title in names.items():
        columns[f"{title}, s"] = lambda row, name=name: row["first_step_s"].get(name)
    columns |= {f"{title}, MB": peak(name) for name, title in names.items()}
    words = (
        "Seconds from the start of a process to the end of its first step, first where no kernel has been compiled "
        "before, then with caches filled, and the peak memory of one that trains, in MB (in brackets: risen since the "
        f"import), batch {first['batch_size']}, threads {first['threads']}"
    )
    return titled(words, part["machine"], rows, columns, reasons(rows))


LEVEL = 3  # last epochs of a training, over which its accuracy shows whether it still rises


def curves_tables(results):
    """Tables of whole trainings, {data: part}, with the picture of CIFAR-10."""
    lines, titles = [], {"mnist": "MNIST", "cifar10": "CIFAR-10"}
    for data, part in results.items():
        rows = part["rows"]
        first, seeds, epochs = rows[0], len(rows[0]["curves"]), len(rows[0]["curves"][0])
        columns = {"network": "network", "library": "contender", "test accuracy, %": "accuracy"}
        columns |= {f"points won in the last {LEVEL} epochs": "rise", "seconds": "seconds"}
        if first["target"]:
            columns[f"seconds to {100 * first['target']:g} %"] = "to_target"
        command = first["command"].replace(first["network"], "NETWORK")
        drawn = "one seed" if seeds == 1 else f"medians over {seeds} seeds"
        words = (
            f"{titles[data]}, {epochs} epochs by `{command}` and by PyTorch, tuned and with channels last, on the same "
            f"batches with the same rates, {drawn}; seconds of training, without the first update and evaluations"
        )
        picture = ["", "![Loss and test accuracy over minutes](../pictures/cifar10.png)"] * (data == "cifar10")
        lines += titled(words, part["machine"], rows, columns, picture)
    return lines


def parallel_table(results):
    milliseconds = lambda name: lambda row: round(row["ms"][name], 2)
    columns = {"network": "model", "batch": "batch_size", "ranks": "ranks", "one process": milliseconds("one")}
    columns |= {"ranks, MPI": milliseconds("mpi"), "PyTorch DDP, gloo": milliseconds("torch")}
    columns["DataParallel of one rank adds"] = lambda row: f"{row['wrapping_percent']} %"
    words = (
        "Training step of a batch on CPU ranks with a thread each, ms, beside one process with as many threads and "
        "PyTorch, same run"
    )
    return titled(words, results, results["steps"], columns)


OPS = {"minigrad, us": "minigrad_us", "PyTorch": "torch_us", "ratio": "ratio"}


def ops_tables(results):
    """Of ops.json at the largest number of threads: how many are faster, and every operation.

    An optimiser's step stands in the second group of columns.
    """
    threads, rows, columns = max(entry["threads"] for entry in results["ops"]), {}, {"operation": "op"}
    entries = [entry for entry in results["ops"] if entry["threads"] == threads]
    for entry in entries:
        group = "forward" if entry["what"] == "forward" else "both"
        found = {f"{group}: {name}": entry[key] for name, key in OPS.items()}
        rows.setdefault(entry["op"], {"op": entry["op"]}).update(found)
    columns |= {f"{group}: {name}": f"{group}: {name}" for group in ("forward", "both") for name in OPS}
    ratios, beside = [entry["ratio"] for entry in entries], f"Single operations beside PyTorch eager, {threads} threads"
    fast = f"{sum(ratio >= 1 for ratio in ratios)} of {len(ratios)} figures are at least as fast"
    words = f"{beside}, medians in microseconds; both is forward and backward together, or an optimiser's step"
    counted = f"{beside}: {fast}, the median is {median(ratios):.2f} times as fast."
    return [counted, "", *titled(words, results, rows.values(), columns)]


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
            words, *what = made(rows)
            lines += titled(words, part["machine"], *what)
    return lines


def _networks(rows):
    def best(way):
        """The most images a second of a contender that runs in this way, in whatever layout."""
        names = way, f"{way} NCHW", f"{way} NHWC"
        rates = lambda row: [round(rate) for name, rate in row["images_per_second"].items() if name in names]
        return lambda row: max(rates(row), default=None)

    columns = {name: name for name in ("network", "task", "batch", "precision")}
    columns |= {"minigrad": best("minigrad"), "minigrad, graph": best("minigrad, graph"), "PyTorch": best("torch")}
    columns["PyTorch, graph"] = best("torch graph")
    columns["ratio, eager"] = lambda row: row["ratios"].get("minigrad / torch")
    columns["ratio, graphs"] = lambda row: row["ratios"].get("minigrad, graph / torch graph")
    return (
        "Images a second on a GPU, op by op and as a captured graph, PyTorch's faster layout, same run",
        rows,
        columns,
    )


def _graphs(rows):
    columns = {
        "network": "network",
        "batch": "batch",
        "op by op, ms": "eager_milliseconds",
        "as a graph, ms": "replayed_milliseconds",
        "kernels that Python starts op by op": "launches_eager",
    }
    return "Milliseconds of a training step in float32 on a GPU, op by op and as a captured graph", rows, columns


def _products(rows):
    chosen = [row | {"M, N, K": f"{row['m']}, {row['n']}, {row['k']}"} for row in rows if row["layout"] == "NN"]
    return "Matrix product, TFLOP/s (share of cuBLAS's speed)", *_by_kind(chosen, ["M, N, K"], "of_cublas")


def _convolutions(rows):
    return "Convolution, TFLOP/s (share of cuDNN's speed)", *_by_kind(rows, ["layer", "direction"], "of_cudnn")


def _by_kind(rows, names, share):
    """(rows, columns) of the rungs that run by default: a line for each of the names, a column for each type."""
    found = {}
    for row in rows:
        if row["rung"] == "default":
            key = {name: row[name] for name in names}
            cells = found.setdefault(tuple(key.values()), key)
            cells[row["kind"]] = f"{row['tflops']} ({row[share]})"
    return found.values(), {name: name for row in found.values() for name in row}


def _race(rows):
    found = {}
    for row in rows:
        found.setdefault((row["images"], row["target"], row["contender"]), []).append(row["seconds"] or math.inf)
    columns = {
        "training images": lambda line: line[0][0],
        "accuracy": lambda line: f"{100 * line[0][1]:g} %",
        "contender": lambda line: line[0][2],
        "seconds": lambda line: "not reached" if median(line[1]) == math.inf else median(line[1]),
    }
    words = "On a GPU, seconds of training until the accuracy on MNIST's test images, medians over seeds"
    return words, found.items(), columns


GPU_TABLES = {"graphs": _graphs, "networks": _networks, "race": _race}
GPU_TABLES |= {"products": _products, "convolutions": _convolutions}

# ---- precision, scaling ----------------------------------------------------------------------------------------------

MEANING = {"lower": "in the type of autocast", "float32": "in float32"}


def table_of_types():
    """Which op computes in which type, by autocast itself."""
    from minigrad.ops.autocast import table as policies

    columns = {"computes": lambda pair: MEANING[pair[0]]}
    columns["ops"] = lambda pair: ", ".join(f"`{name}`" for name in pair[1])
    return [*table(policies().items(), columns), ""]


def precision_table(results):
    """Means over seeds, and differences from float32 in points with their standard errors."""

    def cell(name):
        text = "{mean:.2f} ({difference:+.2f} ± {standard_error:.2f})" if name != "float32" else "{mean:.2f}"
        return lambda row: text.format(**row["precisions"][name])

    columns = {"job": "job", "seeds": "seeds"} | {name: cell(name) for name in results["jobs"][0]["precisions"]}
    columns["command"] = lambda row: f"`{row['command']} --precision P`"
    words = (
        "Test accuracy in percent, the mean over seeds; in brackets the mean difference from float32 in points, seed "
        "by seed, and its standard error"
    )
    return titled(words, results, results["jobs"], columns)


NETWORKS, COUNTS = ("resnet-50", "vgg-16"), (1, 8, 32, 64, 256, 1024)


def predictions():
    """What the model of examples/scaling.py says of GPUs."""
    from examples import scaling

    figure = lambda value: f"{value:.0f}" if value >= 100 else f"{value:.2g}"  # two digits, and no power of ten

    def predicted(count):
        def find(row):
            step = scaling.predicted(row[0], count, row[1], scaling.Plan())
            return f"{100 * step.efficiency:.0f} ({figure(1000 * step.exposed)})"

        return find

    title = lambda name, found: f"{name}, {1000 * found.seconds:g} ms for {found.batch} images (assumed)"
    networks = [(name, scaling.NETWORKS[name]()) for name in NETWORKS]
    rows = [(found, fabric, title(name, found)) for name, found in networks for fabric in scaling.FABRICS.values()]
    columns = {"network, step on one GPU": lambda row: row[2], "fabric": lambda row: row[1].title}
    columns |= {f"{count} GPU{'s' * (count > 1)}": predicted(count) for count in COUNTS}
    how = "efficiency in % (exposed communication in ms), float32, exchanged beside backward"
    return [f"PREDICTION by the model, not a measurement: {how}.", "", *table(rows, columns), ""]
