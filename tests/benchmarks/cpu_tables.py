"""What cpu.py and ops.py measured, as lines of Markdown for readme.py."""

TORCH = "torch", "torch nchw", "torch nhwc"
PEERS = {"jax": "JAX", "tinygrad": "tinygrad"}
RATIOS = "ratio to PyTorch", "to its best"


def measured_with(results):
    """The machine and the versions that figures were measured with, in words."""
    names = ("python", "numpy", "numba", "torch", "jax", "tinygrad")
    versions = ", ".join(f"{name} {results[name]}" for name in names if name in results)
    return f"{results['cpu']}, {results['cores']} cores, {versions}; {results['date']}, commit {results['commit']}"


def table(heads, rows):
    """A table; what is None was not measured."""
    lines = [heads, ["---"] * len(heads), *rows]
    return ["| " + " | ".join("-" if cell is None else str(cell) for cell in line) + " |" for line in lines]


def milliseconds(value):
    """A time with three digits or more, None where there is none."""
    return None if value is None else f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}"


def cpu_tables(results):
    """Tables of the parts that cpu.json holds."""
    parts = {"steps": step_table, "random": random_table, "epoch": epoch_table, "memory": memory_table}
    lines = []
    for name, made in parts.items():
        if name in results:
            lines += [*made(results[name]), *reasons(results[name]["rows"]), ""]
    return lines


def reasons(rows):
    """A line for each peer that did not run, with the rows where it did not."""
    found = {}
    for row in rows:
        for name, why in row.get("not_run", {}).items():
            found.setdefault((name, why), []).append(_place(row))
    lines = []
    for (name, why), places in found.items():
        everywhere = "" if len(places) == len(rows) else f" on {', '.join(dict.fromkeys(places))}"
        lines += ["", f"{PEERS.get(name, name)} was not run{everywhere}: {why}."]
    return lines


def _place(row):
    return f"{row['model']} (batch {row['batch_size']}, threads {row['threads']})"


def with_spread(row, key):
    """A ratio, and in brackets the least and the greatest of single sets of processes, if there were several."""
    sets = row.get(f"{key}_sets", [])
    return f"{row[key]} ({min(sets)} to {max(sets)})" if len(sets) > 1 else row.get(key)


def _ratios(row):
    return with_spread(row, "ratio"), with_spread(row, "ratio_best")


def _steps(part, name_of, peers=()):
    """The table of training steps; PyTorch's best is empty unless tuned settings were measured."""
    rows = []
    for row in part["rows"]:
        times = [row["ms"].get(name) for name in ("minigrad", "torch", row.get("best"), *peers)]
        rows.append([name_of(row), row["batch_size"], row["threads"], *map(milliseconds, times), *_ratios(row)])
    heads = ["network", "batch", "threads", "minigrad, ms", "PyTorch", "PyTorch, best"]
    return table([*heads, *(PEERS[name] for name in peers), *RATIOS], rows)


def step_table(part):
    peers = [name for name in PEERS if any(name in row["ms"] for row in part["rows"])]
    return [
        "Training step (forward, backward, optimiser), median in ms, same run; PyTorch eager with default settings, "
        "and with the fastest of these and of two tuned ones (channels last or not, fused optimiser, a heap that keeps "
        f"memory); JAX and tinygrad under jit{_of_sets(part['rows'])}: {measured_with(part['machine'])}.",
        "",
        *_steps(part, lambda row: row["model"], peers),
    ]


def _of_sets(rows):
    several = any(len(row.get("ratio_sets", [])) > 1 for row in rows)
    return "; ratios of paired turns, in brackets those of single sets of processes" if several else ""


def main_steps(part):
    """The README's table: training steps at the smallest batch and with the most threads, beside PyTorch."""
    batch = min(row["batch_size"] for row in part["rows"])
    threads = max(row["threads"] for row in part["rows"])
    rows = [row for row in part["rows"] if (row["batch_size"], row["threads"]) == (batch, threads)]
    lines = [
        f"Training step (forward, backward, optimiser) of {batch} images on {threads} threads, median in ms; PyTorch "
        "as it comes, and at the fastest of three settings; in brackets how many times as fast minigrad is: "
        f"{measured_with(part['machine'])}.",
        "",
    ]
    cells = []
    for row in rows:
        ms = row["ms"]
        peers = (("torch", "ratio"), (row["best"], "ratio_best"))
        beside = (f"{milliseconds(ms[name])} ({row[ratio]})" for name, ratio in peers)
        cells.append([row["model"], milliseconds(ms["minigrad"]), *beside])
    return lines + table(["network", "minigrad", "PyTorch", "PyTorch, best"], cells)


def random_table(part):
    return [
        f"The same for networks drawn at random from seed {part['seed']}, so that no shape is special: "
        f"{measured_with(part['machine'])}.",
        "",
        *_steps(part, described),
    ]


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
    settings = {"PyTorch": [name for name in row["ms"] if name.startswith("torch,")]}
    settings["PyTorch, best"] = [name for name in row["ms"] if name != "minigrad"]
    cells = [f"{row['ms']['minigrad'] / 1000:.2f}"]
    for names in settings.values():
        cells.append(f"{min(row['ms'][name] for name in names) / 1000:.2f}")
    data = "MNIST" if part["data"] == "MNIST" else "random data of MNIST's shape"
    return [
        f"An epoch over {part['images']:,} images of {data} with {row['model']}, batch {row['batch_size']}, "
        f"{row['threads']} threads, each library's own loader included (PyTorch's with 0 or 2 processes, what is "
        f"faster): {measured_with(part['machine'])}.",
        "",
        *table(["minigrad, s", *settings, *RATIOS], [[*cells, *_ratios(row)]]),
    ]


def memory_table(part):
    names = [name for name in ("minigrad", "torch", *PEERS) if any(name in row["peak_mb"] for row in part["rows"])]
    heads = [{"torch": "PyTorch", **PEERS}.get(name, name) for name in names]
    rows = []
    for row in part["rows"]:
        seconds, peaks, grown = (
            [row[key].get(name) for name in names] for key in ("first_step_s", "peak_mb", "grown_mb")
        )
        peaks = [peak and f"{peak:.0f} ({more:.0f})" for peak, more in zip(peaks, grown, strict=True)]
        rows.append([row["model"], row["empty_cache_s"], *seconds, *peaks])
    first, begin = part["rows"][0], ("network", "minigrad, nothing compiled, s")
    return [
        "Seconds from the start of a process to the end of its first step, first where no kernel has been compiled "
        "before, then with caches filled, and the peak memory of one that trains, in MB (in brackets: risen since the "
        f"import), batch {first['batch_size']}, threads "
        f"{first['threads']}: {measured_with(part['machine'])}.",
        "",
        *table([*begin, *(f"{head}, s" for head in heads), *(f"{head}, MB" for head in heads)], rows),
    ]


# ---- single operations -----------------------------------------------------------------------------------------------


def _paired(results):
    """{op: {what: entry}} at the largest number of threads, and that number."""
    threads = max(entry["threads"] for entry in results["ops"])
    found = {}
    for entry in results["ops"]:
        if entry["threads"] == threads:
            found.setdefault(entry["op"], {})[entry["what"]] = entry
    return found, threads


def ops_table(results):
    """Every operation that ops.py measured; an optimiser's step stands in the second group of columns."""
    found, threads = _paired(results)
    rows = []
    for op, entries in found.items():
        cells = []
        for entry in (entries.get("forward"), entries.get("both") or entries.get("step")):
            cells += [entry and entry[key] for key in ("minigrad_us", "torch_us", "ratio")]
        rows.append([op, *cells])
    heads = ["operation"]
    for group in ("forward", "forward and backward"):
        heads += [f"{group}: minigrad, us", "PyTorch", "ratio"]
    return [
        f"Single operations beside PyTorch eager, {threads} threads, medians in microseconds; the second group is "
        f"forward and backward together, or an optimiser's step: {measured_with(results)}.",
        "",
        *table(heads, rows),
    ]


def ops_summary(results):
    """One paragraph about ops.json."""
    found, threads = _paired(results)
    ratios = sorted(entry["ratio"] for entries in found.values() for entry in entries.values())
    faster = sum(ratio >= 1 for ratio in ratios)
    return [
        f"Single operations beside PyTorch eager, {threads} threads: {faster} of {len(ratios)} figures are at least "
        f"as fast, the median is {ratios[len(ratios) // 2]} times as fast.",
        "",
    ]
