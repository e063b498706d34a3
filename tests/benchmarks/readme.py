"""Write the figures of the README and of four pages: python tests/benchmarks/readme.py [--check | --stale]

They come from the results files, here and in tests/reliability, and from the model of examples/scaling.py. --check
fails instead if they do not show what those hold. --stale prints which figures are older than the code that they are
of, and fails if any is.
"""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PLACES = Path(__file__).parent, ROOT / "tests" / "reliability", ROOT, ROOT / "kernels"
sys.path[:0] = map(str, PLACES)  # the package is not always installed

import tables  # noqa: E402
from results import table as reliability_table  # noqa: E402

RESULTS = Path(__file__).parent / "results"
# The code that figures are of, as git names it, where it is not the whole library; ":!" leaves out.
ASIDE = [":!minigrad/draw", ":!minigrad/report", ":!minigrad/profile", ":!minigrad/export.py", ":!minigrad/sheet.py"]
ON_THE_CPU = [*ASIDE, *(f":!kernels/minigrad_kernels/{name}" for name in ("interpreter", "*/cuda*", "manifest.csv"))]
TRAININGS = ["minigrad", "kernels", *ON_THE_CPU, ":!minigrad/parallel"]
STEPS = [*TRAININGS, ":!minigrad/cli", ":!minigrad/checkpoint.py"]
OF = {
    **dict.fromkeys(("cpu", "ops"), STEPS),
    **dict.fromkeys(("accuracy", "curves", "precision"), TRAININGS),
    "parallel": ["minigrad", "kernels", *ON_THE_CPU, ":!minigrad/cli"],
    "fuzz": ["minigrad/checkpoint.py", "minigrad/data", "minigrad/cli", "kernels/minigrad_kernels/interpreter"],
    "kills": ["minigrad/checkpoint.py", "minigrad/cli", "minigrad/train", "minigrad/parallel"],
    "launches": ["kernels", ":!kernels/minigrad_kernels/interpreter", ":!kernels/*/cpu*"],
}


def stored(name):
    """What results/NAME.json holds."""
    return json.loads((RESULTS / f"{name}.json").read_text())


def measured_gpus():
    """The results of every GPU that was measured."""
    found = [stored(file.stem) for file in sorted(RESULTS.glob("*.json"))]
    return [results for results in found if "parts" in results]


def summary():
    """The README's figures: training steps on the CPU, and MNIST."""
    best = max(stored("accuracy")["jobs"], key=lambda job: job["training_images"] * job["test_accuracy"])
    digits = f"{best['test_accuracy']} % of {best['test_images']:,} images of MNIST after training on"
    lines = tables.main_steps(stored("cpu")["steps"])
    return [*lines, f"{digits} {best['training_images']:,} for {best['seconds']} s, compilation included."]


def summary_of_gpus():
    """The README's figures of GPUs: captured training steps beside PyTorch's."""
    lines = []
    for results in measured_gpus():
        part = results["parts"]["networks"]
        rows = [row for row in part["rows"] if row["precision"] == "float32"]
        told = ", ".join(f"{row['network']} {row['ratios']['minigrad, graph / torch graph']:.2f}" for row in rows)
        lines += [
            "A captured training step on a GPU in float32, batch 64, times as fast as PyTorch's in a CUDA graph: "
            f"{told} ({tables.measured_with(part['machine'])}).",
            "",
        ]
    return lines


def figures():
    """All tables of the CPU."""
    lines = [*tables.accuracy_table(stored("accuracy")), *tables.curves_tables(stored("curves"))]
    lines += tables.cpu_tables(stored("cpu"))
    return [*lines, *tables.parallel_table(stored("parallel")), *tables.ops_tables(stored("ops"))]


def write(page, made, name="figures"):
    """Put lines between the page's marks; SystemExit under --check if other text is there."""
    begin, end, text = f"<!-- {name} -->\n", f"<!-- /{name} -->\n", page.read_text()
    before, rest = text.split(begin)
    _, after = rest.split(end)
    wanted = f"{before}{begin}\n" + "\n".join([*made, ""]).rstrip("\n") + f"\n{end}{after}"
    if "--check" in sys.argv and wanted != text:
        sys.exit(f"{page.name} does not show the figures of the results files; run tests/benchmarks/readme.py")
    page.write_text(wanted)


def stale():
    """Print what was measured before a commit that changed the code it is of; the number of such figures."""
    count = 0
    for file in [*sorted(RESULTS.glob("*.json")), *sorted((ROOT / "tests/reliability/results").glob("*.json"))]:
        found = json.loads(file.read_text())
        parts = {"": {"machine": found}} if "commit" in found else found.get("parts", found)
        for part, machine in ((name, one["machine"]) for name, one in parts.items()):
            commit = machine["commit"].rstrip("+")
            listed = ["git", "diff", "--name-only", commit, "--", *OF.get(file.stem, ["minigrad", "kernels"])]
            changed = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
            if changed:
                count += 1
                print(f"{file.stem} {part}: of {commit}, since when {len(changed)} files have changed, as {changed[0]}")
    return count


def main():
    if "--stale" in sys.argv:
        sys.exit(min(1, stale()))
    docs = ROOT / "examples" / "docs"
    write(ROOT / "README.md", summary())
    write(ROOT / "README.md", summary_of_gpus(), "gpus")
    write(docs / "figures.md", figures())
    write(docs / "figures.md", [line for results in measured_gpus() for line in tables.gpu_tables(results)], "gpus")
    write(docs / "training.md", tables.precision_table(stored("precision")))
    write(docs / "training.md", tables.table_of_types(), "table")
    write(docs / "training.md", reliability_table(), "reliability")
    write(docs / "parallel.md", tables.predictions(), "prediction")


if __name__ == "__main__":
    main()
