"""Write the figures of the README and of the page of all figures: python tests/benchmarks/readme.py [--check]

They come from the results files. --check fails instead if they do not show what the files hold.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from cpu_tables import cpu_tables, main_steps, measured_with, ops_summary, ops_table

ROOT = Path(__file__).resolve().parents[2]
README, PAGE = ROOT / "README.md", ROOT / "examples" / "docs" / "figures.md"
RESULTS = Path(__file__).parent / "results"
BEGIN, END = "<!-- figures -->\n", "<!-- /figures -->\n"


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
            accuracy += f" (new writers: {row['new_writers_accuracy']})"
        lines.append(f"| {row['job']} | {images} | {accuracy} | {row['seconds']} | `{row['command']}` |")
    return lines


CONTENDERS = {  # of parallel.py, as heads of columns
    "one": "one process",
    "tcp": "TCP",
    "mpi": "MPI",
    "mpi, native": "MPI's own order",
    "torch": "PyTorch DDP, gloo",
}


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


MEASURED = ("networks", "convolutions")  # parts of tests/gpu/run_all that have a table here


def gpu_tables(results):
    """Tables of what tests/gpu/run_all measured on one GPU; none for parts that it has not run to the end."""
    parts, lines = results["parts"], []
    networks, convolutions = (part if part and not part.get("failed") else None for part in map(parts.get, MEASURED))
    if networks:
        lines += [f"Images a second beside PyTorch eager, same run, float32: {on_gpu(networks)}.", ""]
        lines += ["| network | task | batch | minigrad | PyTorch | ratio |", "|---|---|---|---|---|---|"]
        for row in networks["images_per_second"]:
            cells = (row[name] for name in ("network", "task", "batch", "minigrad", "torch", "ratio"))
            lines.append("| " + " | ".join(map(str, cells)) + " |")
        lines.append("")
    if convolutions:
        lines += [f"Convolution in float32, TFLOP/s (share of cuDNN's speed): {on_gpu(convolutions)}.", ""]
        lines += ["| layer | forward | input gradient | weight gradient |", "|---|---|---|---|"]
        chosen = {(r["layer"], r["direction"]): r for r in convolutions["rows"] if r["rung"] == "default"}
        for layer in dict.fromkeys(layer for layer, _ in chosen):
            rows = [chosen[layer, direction] for direction in ("forward", "input_grad", "weight_grad")]
            lines.append(f"| {layer} | " + " | ".join(f"{r['tflops']} ({r['of_cudnn']})" for r in rows) + " |")
        lines.append("")
    return lines


def on_gpu(part):
    found = part["machine"]
    return f"{found['gpu']}, cupy {found['cupy']}, numba {found['numba']}; {found['date']}, commit {found['commit']}"


def stored(name):
    """What results/NAME.json holds, None where there is no such file."""
    file = RESULTS / f"{name}.json"
    return json.loads(file.read_text()) if file.exists() else None


def gpus():
    """The tables of every GPU that was measured."""
    found = [json.loads(file.read_text()) for file in sorted(RESULTS.glob("*.json"))]
    return [line for results in found if "parts" in results for line in gpu_tables(results)]


def summary():
    """The README's tables: the main job, training steps, GPUs."""
    lines = [*accuracy_table(stored("accuracy")), "", *main_steps(stored("cpu")["steps"]), ""]
    if ops := stored("ops"):
        lines += ops_summary(ops)
    return "\n".join([*lines, *gpus()])


def figures():
    """All tables that were measured on a CPU."""
    lines = [*cpu_tables(stored("cpu")), *parallel_table(stored("parallel")), ""]
    if ops := stored("ops"):
        lines += [*ops_table(ops), ""]
    return "\n".join(lines)


def written(page, text, made):
    """The page's text with what is made between its marks; SystemExit under --check if that is another text."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    wanted = f"{before}{BEGIN}\n{made}{END}{after}"
    if "--check" in sys.argv and wanted != text:
        sys.exit(f"{page.name} does not show the figures of tests/benchmarks/results; run tests/benchmarks/readme.py")
    return wanted


def main():
    for page, made in ((README, summary()), (PAGE, figures())):
        page.write_text(written(page, page.read_text(), made))


if __name__ == "__main__":
    main()
