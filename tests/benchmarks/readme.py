"""Write the README's figures from the results files: python tests/benchmarks/readme.py [--check]"""

import json
import sys
from pathlib import Path

README = Path(__file__).resolve().parents[2] / "README.md"
RESULTS = Path(__file__).parent / "results"
BEGIN, END = "<!-- figures -->\n", "<!-- /figures -->\n"


def measured_with(results):
    versions = ", ".join(f"{name} {results[name]}" for name in ("python", "numpy", "numba", "torch"))
    return f"{results['cpu']}, {results['cores']} cores, {versions}; {results['date']}, commit {results['commit']}"


def step_table(results):
    lines = [
        f"Training step (forward, backward, optimiser) beside PyTorch eager, same run: {measured_with(results)}.",
        "",
        "| network | batch | threads | minigrad, ms | PyTorch, ms | ratio |",
        "|---|---|---|---|---|---|",
    ]
    for row in results["steps"]:
        cells = (row["model"], row["batch_size"], row["threads"], row["minigrad_ms"], row["torch_ms"], row["ratio"])
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return lines


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


def figures():
    lines = []
    for name, table in (("accuracy", accuracy_table), ("cpu", step_table), ("parallel", parallel_table)):
        lines += [*table(json.loads((RESULTS / f"{name}.json").read_text())), ""]
    for file in sorted(RESULTS.glob("*.json")):
        results = json.loads(file.read_text())
        lines += gpu_tables(results) if "parts" in results else []
    return "\n".join(lines)


def main():
    text = README.read_text()
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    wanted = f"{before}{BEGIN}\n{figures()}{END}{after}"
    if "--check" in sys.argv and wanted != text:
        sys.exit("README.md does not show the figures of tests/benchmarks/results; run tests/benchmarks/readme.py")
    README.write_text(wanted)


if __name__ == "__main__":
    main()
