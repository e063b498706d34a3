"""Branch coverage of all that is not a kernel body, and the lines of CUDA kernels that the interpreter executes.

    python tests/reliability/branches.py [--only PATTERN ...] [--data FOLDER] [--report] [--write]

Each test file runs in a process of its own, with the processes that it starts; kernels are compiled afresh, so that
what emits them counts. What ran is kept in FOLDER: --only optim conv2d_* runs those files and keeps what the
others left there, --report runs none. Kernel bodies are told by their decorators: [tool.coverage.report] in
pyproject.toml. What is missing is printed by file; below 90 % of branches and lines the command fails.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from kernel_lines import executed, lines_of_kernels
from results import store

ROOT = Path(__file__).resolve().parents[2]
WANTED = 90.0  # percent
# The microkernels of each instruction set: test_kernels.py fails where one is not forced, or not reached.
TILES = (
    "import json; from minigrad_kernels.toolchain import emit, vector; "
    "print(json.dumps({name: vector.__all__ for name in emit.TILES}))"
)
LONGEST = 3600  # seconds of one test file
RUN = (
    "-m",
    "coverage",
    "run",
    "-m",
    "pytest",
    "-q",
    "--deep",
    "-p",
    "no:cacheprovider",
    "-p",
    "tests.reliability.kernel_lines",
)


def python(data, *words, **options):
    """Run Python in the repository, with coverage's data in a folder."""
    data.mkdir(parents=True, exist_ok=True)
    paths = f"{ROOT}{os.pathsep}{ROOT / 'kernels'}"
    settings = {"COVERAGE_FILE": str(data / "data"), "KERNEL_LINES": str(data / "lines.json"), "PYTHONPATH": paths}
    settings["MINIGRAD_CACHE"] = str(data.parent / "cache")
    return subprocess.run([sys.executable, *words], cwd=ROOT, env=os.environ | settings, **options)


def run(test, data):
    """Run one test file; whether its tests passed, and how long they took."""
    shutil.rmtree(data / test.stem, ignore_errors=True)
    began = time.monotonic()
    try:
        done = python(data / test.stem, *RUN, str(test), capture_output=True, text=True, timeout=LONGEST)
        said, code = done.stdout + done.stderr, done.returncode
    except subprocess.TimeoutExpired:
        said, code = f"took longer than {LONGEST} s", 1
    if code not in (0, 5):  # 5: no test in it
        print(said[-3000:])
    return code in (0, 5), time.monotonic() - began


def run_all(tests, data):
    """Run test files; the names of those that failed."""
    failed = []
    for number, test in enumerate(tests, 1):
        passed, seconds = run(test, data)
        print(f"{number}/{len(tests)} {test.stem} {'' if passed else 'FAILED '}{seconds:.0f} s", flush=True)
        if not passed:
            failed.append(test.stem)
    return failed


def combined(data):
    """Coverage's report on all that ran, as its JSON says it."""
    folders = [str(file) for file in sorted(data.glob("test_*/")) if list(file.glob("data*"))]
    python(data, "-m", "coverage", "combine", "-q", "--keep", *folders, check=True)
    python(data, "-m", "coverage", "json", "-q", "-o", str(data / "report.json"), check=True)
    return json.loads((data / "report.json").read_text())


def ranges(lines):
    """Numbers in order as "3-5, 9"."""
    runs = []
    for line in lines:
        if runs and line == runs[-1][1] + 1:
            runs[-1][1] = line
        else:
            runs.append([line, line])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def show(report):
    """The table by file, the least covered last: percent, lines and branches that nothing took."""
    for name, file in sorted(report["files"].items(), key=lambda item: -item[1]["summary"]["percent_covered"]):
        lines, arcs = file["missing_lines"], file.get("missing_branches", [])
        arcs = [arc for arc in arcs if arc[0] not in lines]
        jumps = ", ".join(f"{start}->{'exit' if end < 0 else end}" for start, end in arcs)
        missing = "; ".join(filter(None, (ranges(lines), jumps)))
        if missing:
            print(f"{file['summary']['percent_covered']:5.1f} %  {name}  {missing}")


def kernels(data):
    """(lines of CUDA kernels, those that nothing executed), and the latter printed by file."""
    wanted = lines_of_kernels()
    left = wanted - executed(data.glob("test_*/lines.json"))
    files = {}
    for place in left:
        name, _, line = place.rpartition(":")
        files.setdefault(name, []).append(int(line))
    for name, lines in sorted(files.items()):
        print(f"never executed: kernels/minigrad_kernels/{name}  {ranges(sorted(lines))}")
    return len(wanted), len(left)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=["*"], metavar="PATTERN", help="run these test files alone")
    parser.add_argument("--data", type=Path, default=ROOT / ".coverage-data", help="folder for what ran")
    parser.add_argument("--report", action="store_true", help="run nothing; tell what ran before")
    parser.add_argument("--write", action="store_true", help="store the figures in results/coverage.json")
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it: tests send it
    data = options.data.resolve()
    tests = {test: None for name in options.only for test in sorted((ROOT / "tests").rglob(f"test_{name}.py"))}
    failed = run_all([] if options.report else list(tests), data)
    report = combined(data)
    show(report)
    lines, left = kernels(data)
    totals = report["totals"]
    percent, branches = totals["percent_covered"], 100 * totals["covered_branches"] / totals["num_branches"]
    done = 100 - 100 * left / lines
    found = f"{branches:.1f} % of {totals['num_branches']:,} branches, {percent:.1f} % with lines"
    cuda = f"{done:.1f} % of {lines:,} lines of CUDA kernels executed by the interpreter"
    print(f"\n{found}\n{cuda}")
    tiles = json.loads(python(data, "-c", TILES, capture_output=True, text=True, check=True).stdout)
    print(f"tiles forced, of each instruction set: {', '.join(tiles)}: {', '.join(next(iter(tiles.values())))}")
    print(*(f"failed: {name}" for name in failed), sep="\n")
    if options.write:
        store(
            "coverage",
            "branches of all that is no kernel body, lines of CUDA kernels",
            f"{found}; {cuda}",
            "python tests/reliability/branches.py",
            failed=failed,
            branches=branches,
            lines_and_branches=percent,
            cuda_lines=lines,
            cuda_lines_never_executed=left,
            tiles=tiles,
        )
    return 1 if failed or branches < WANTED else 0


if __name__ == "__main__":
    sys.exit(main())
