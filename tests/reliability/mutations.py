"""Changes the library in small ways, one at a time, and says which changes the fast tests do not notice.

    python tests/reliability/mutations.py [--every N] [--only PATTERN ...] [--tests PATH ...] [--folder F] [--write]

Engine, ops, optimisers, ranks, launchers and what runs on the host around kernels are changed (mutants.py), in a copy
of the tree. The fast tests run once, to see which of them run which line (covering.py). Each change is then tried by
the tests that run its line, quick ones first, until one fails; one that takes too long is taken for a hang, and counts
as noticed. For every tenth change these tests also run without it, and must pass.

--every N tries one of N changes, always the same ones. F keeps the copy and what was found: the same command goes
on where it was stopped. Remove it after the tree has changed. The command fails where less than 95 % of the
changes are noticed, of those that equivalent.json does not explain, or where it explains more than 5 % of all.
"""

import argparse
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from fnmatch import fnmatch
from hashlib import sha256
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2] / "kernels")]
from mutants import mutants  # noqa: E402
from results import store  # noqa: E402
from tqdm import tqdm  # noqa: E402

from minigrad_kernels.toolchain import cache  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(tempfile.gettempdir()) / "minigrad-mutations"
EQUIVALENT = Path(__file__).parent / "equivalent.json"  # {change: why nobody can notice it}
KERNELS = "kernels/minigrad_kernels/"
ENGINE = "minigrad/core", "minigrad/fusion.py", "minigrad/recomputing.py", "minigrad/anomaly.py", "minigrad/amp.py"
PARTS = *ENGINE, "minigrad/ops", "minigrad/optim", "minigrad/parallel", KERNELS
HOST = KERNELS + "launcher.py", KERNELS + "toolchain/cuda/launch.py"
# Not of the host: bodies of kernels, what writes their code, definitions, and machines to run them on.
ASIDE = (
    "*/toolchain/*",
    "*/interpreter/*",
    "*/reference.py",
    "*/cuda_*.py",
    "*/winograd_kernels.py",
    "*/optimizer/rules.py",
    "*/elementwise/cuda.py",
)
# Tests of the text of files, of which any change is one, and of the kept kernels, which the copy keeps otherwise.
LEFT_OUT = "tests/test_contracts.py", "tests/examples/*", "tests/kernels/toolchain/test_cpu.py"
LONGEST, PATIENCE = 30, 4  # seconds of the CPU for one change, and so many times as long on the clock
BUDGET = 10.0  # seconds that its tests took without it
NEAR = 40  # lines
# Kernels stay compiled for changes on the host, and a change keeps none.
KEPT_KERNELS = """
_fingerprint = lambda: "one"
if os.environ.get("MUTATED"):
    save_file = lambda file, kept: None
"""
# A Python that a test starts imports this by itself, and notes the lines that it runs.
SITE = """import atexit, os
if test := os.environ.get("COVERING_TEST"):
    import coverage
    tree, file = os.environ["COVERING_TREE"], os.path.join(os.environ["COVERING"], "lines")
    sources = [os.path.join(tree, name) for name in ("minigrad", "kernels/minigrad_kernels")]
    measured = coverage.Coverage(file, data_suffix=True, source=sources, config_file=False, context=test)
    measured.start()
    atexit.register(lambda: (measured.stop(), measured.save()))
"""
SEED, KEPT = 0, ".kept"  # KEPT ends the name of a file that stands aside for a changed one


def copied(folder):
    """Copy the repository's files, but for those that git ignores, and the kernels that are compiled."""
    tree = folder / "tree"
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).exists():
            shutil.copy2(ROOT / name, tree / name)
    with (tree / KERNELS / "toolchain/cache.py").open("a") as file:
        file.write(KEPT_KERNELS)
    for kept, name in ((cache.user_cache() / "cuda", "cuda"), (cache.cache_folder(), "kernels/one")):
        if kept is not None and kept.is_dir():
            shutil.copytree(kept, folder / "cache" / name, dirs_exist_ok=True)


def pytest(folder, *words, seconds=None, **settings):
    """(exit code, output) of pytest in the copy; the code is None where it took more seconds of the CPU, or hangs."""
    tree = folder / "tree"
    paths = os.pathsep.join([*map(str, (tree, tree / "kernels", folder / "site")), os.environ.get("PYTHONPATH", "")])
    settings |= {"PYTHONPATH": paths, "MINIGRAD_CACHE": str(folder / "cache")}
    command = [sys.executable, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", *words]
    with tempfile.TemporaryFile("w+") as said:
        options = {"cwd": tree, "env": os.environ | settings, "stdout": said, "stderr": said}
        limit = (lambda: resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))) if seconds else None
        process = subprocess.Popen(command, start_new_session=True, preexec_fn=limit, **options)
        try:
            code = process.wait(seconds and PATIENCE * seconds)  # others may want the CPU, too
        except subprocess.TimeoutExpired:
            code = -signal.SIGKILL
        finally:  # with the ranks and commands that tests started
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
        said.seek(0)
        return None if code in (-signal.SIGXCPU, -signal.SIGKILL) else code, said.read()


def measured(folder, paths):
    """Run fast tests in the copy, once: {test: seconds} of those that pass, and coverage's data."""
    if not (folder / "tests.json").exists():
        copied(folder)
        for old in folder.glob("lines.*"):  # of a run that was stopped
            old.unlink()
        print("which tests run which lines: the fast tests run once", flush=True)
        words = [f"--ignore-glob={folder / 'tree' / name}" for name in LEFT_OUT]
        words += ["-n", "2", "-p", "tests.reliability.covering", *paths]
        (folder / "site").mkdir(exist_ok=True)
        (folder / "site" / "sitecustomize.py").write_text(SITE)
        code, said = pytest(folder, *words, COVERING=str(folder))
        if code not in (0, 1):
            raise SystemExit(f"the tests could not be run: pytest ended with {code}\n{said[-3000:]}")
    os.environ["COVERING"] = str(folder)
    from covering import lines_of

    found = json.loads((folder / "tests.json").read_text())
    print(*(f"left out, since it fails without a change: {name}" for name in found["failed"]), sep="\n")
    return found["seconds"], lines_of(folder)


def drawn(tree, every, patterns):
    """One of so many changes of the files of these patterns, and how many there are.

    A change is drawn by its own text: those of other places stay drawn when the code changes.
    """
    chosen = lambda mutant: int(sha256(f"{SEED} {mutant.key}".encode()).hexdigest(), 16) % every == 0
    found = []
    for part in PARTS:
        for file in sorted((tree / part).rglob("*.py")) or [tree / part]:
            name = file.relative_to(tree).as_posix()
            of_host = name in HOST or not any(fnmatch(name, pattern) for pattern in ASIDE)
            if of_host and any(fnmatch(name, pattern) for pattern in patterns):
                changes = mutants(name, file.read_bytes())  # numbers beside kernels tune them
                found += [m for m in changes if m.scope or not name.startswith(KERNELS)]
    return [m for m in found if chosen(m) and is_program(m, tree)], len(found)


def is_program(mutant, tree):
    """Whether a change makes a program at all, which one that leaves a starred argument alone does not."""
    try:
        return bool(compile(mutant.applied((tree / mutant.file).read_bytes()), mutant.file, "exec"))
    except SyntaxError:
        return False


def tests_of(mutant, seconds, contexts):
    """The tests that run the line of a change, as long as the budget lasts: those of its own folder first, quick ones.

    Where it runs when it is imported, those that run the function around it, or else lines near it, or its file.
    """

    def running(first, last):
        return {name for line in range(first, last + 1) for name in contexts.get(line, ())}

    line, statement, function = mutant.lines
    ran = running(*line) or running(*statement)
    if "" in ran:  # it runs when it is imported, also by programs that tests start
        ran = running(*function or (line[0] - NEAR, line[1] + NEAR))
        ran = ran if ran & seconds.keys() else running(1, max(contexts))
    names = ran & seconds.keys()
    part = mutant.file.removeprefix("kernels/").split("/")
    own = "tests/kernels" if part[0] == "minigrad_kernels" else f"tests/{part[1]}"
    spent, chosen = 0.0, []
    for name in sorted(names, key=lambda name: (not name.startswith(own), seconds[name], name)):
        if spent + seconds[name] < BUDGET or not chosen:
            spent, chosen = spent + seconds[name], [*chosen, name]
    return chosen


def tried(folder, mutant, tests, control):
    """What becomes of a change: the test that notices it, "" for none; fails where a test fails without it."""
    listed = folder / "chosen.txt"
    listed.write_text("\n".join(tests))
    if control and (found := pytest(folder, "-x", f"@{listed}", MUTATED="1"))[0]:
        return f"ERROR without the change: {found[1][-500:]}"
    file = folder / "tree" / mutant.file
    kept = file.rename(file.with_name(file.name + KEPT))
    file.write_bytes(mutant.applied(kept.read_bytes()))
    try:
        code, said = pytest(folder, "-x", f"@{listed}", seconds=LONGEST, MUTATED="1")
    finally:
        kept.replace(file)
    if code is None:
        return f"hangs, or takes longer than {LONGEST} s"
    failed = [line for line in said.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return (failed or [f"pytest ended with {code}"])[0] if code else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=1, metavar="N", help="try one of N changes")
    parser.add_argument("--only", nargs="+", default=["*"], metavar="PATTERN", help="of these files, as minigrad/ops/*")
    parser.add_argument("--tests", nargs="+", default=["tests"], metavar="PATH", help="by these tests alone")
    parser.add_argument("--folder", type=Path, default=FOLDER, help=f"what was found so far; {FOLDER}")
    parser.add_argument("--write", action="store_true", help="store the figures in results/mutations.json")
    options = parser.parse_args()
    folder, log = options.folder.resolve(), options.folder.resolve() / "found.jsonl"
    seconds, data = measured(folder, options.tests)
    for kept in (folder / "tree").rglob("*" + KEPT):  # of a run that was stopped
        kept.replace(str(kept).removesuffix(KEPT))
    changes, of = drawn(folder / "tree", options.every, options.only)
    found = dict(map(json.loads, log.read_text().splitlines())) if log.exists() else {}
    known, began, kinds, survivors, wrong = json.loads(EQUIVALENT.read_text()), time.monotonic(), Counter(), [], []
    for number, mutant in enumerate(tqdm(changes)):
        name = f"{mutant.key} {mutant.span[0]}"
        if name not in found:
            tests = tests_of(mutant, seconds, data.contexts_by_lineno(str(folder / "tree" / mutant.file)))
            found[name] = tried(folder, mutant, tests, control=number % 10 == 0) if tests else ""
            with log.open("a") as file:
                file.write(json.dumps([name, found[name]]) + "\n")
        kind = "noticed" if found[name] else "equivalent" if mutant.key in known else "unnoticed"
        kinds[kind] += 1
        if kind == "unnoticed":
            survivors.append(f"{mutant.file}:{mutant.lines[0][0]} {mutant.scope}: {mutant.change}")
        wrong += [found[name]] if found[name].startswith("ERROR without") else []
    share = 100 * kinds["noticed"] / max(1, len(changes) - kinds["equivalent"])
    print(*(f"survives: {text}" for text in sorted(survivors)), *wrong, sep="\n")
    summary = f"{share:.1f} % noticed by the fast tests, {kinds['equivalent']} equivalent"
    took = f"{time.monotonic() - began:.0f} s"
    print(f"{len(changes)} of {of:,} changes tried, {took}: {summary}, {kinds['unnoticed']} not noticed")
    if options.write:
        command = f"python tests/reliability/mutations.py --every {options.every}"
        checked = f"{len(changes):,} of {of:,} small changes to engine, ops, optimisers, ranks and host code of kernels"
        store("mutations", checked, summary, command, **kinds, survivors=sorted(survivors))
    return int(share < 95 or kinds["equivalent"] > 0.05 * len(changes) or bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
