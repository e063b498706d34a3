"""Changes the optimisers, the losses and the engine in small ways, and says which changes no test notices.

    python tests/reliability/mutations.py [FILE...] [--every N] [--write]

Each change (mutants.py) is tried in two steps. First in a forked copy of a process that has collected the tests: the
functions of the changed file get their new code, and the tests that run the changed line run until one fails. What is
no function's code, or runs when it is imported, is imported anew, in a fresh fork. --every N tries each N-th
change of all. Survivors are listed; the command fails for those that equivalent.json does not explain.
"""

import argparse
import ast
import gc
import importlib.machinery
import importlib.util
import json
import os
import resource
import signal
import sys
import time
from fnmatch import fnmatch
from pathlib import Path
from types import CodeType, FunctionType

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# A fork lacks the threads of GNU's OpenMP, for which PyTorch in it would wait: nobody may have started them.
os.environ |= {"OMP_NUM_THREADS": "1", "NUMBA_THREADING_LAYER": "workqueue"}
sys.path[:] = [str(ROOT), str(ROOT / "kernels"), *(p for p in sys.path if Path(p or ".").resolve() != HERE)]

import coverage  # noqa: E402  not that of this folder
import llvmlite.binding  # noqa: E402, F401
import numba  # noqa: E402, F401
import pytest  # noqa: E402
from _pytest.runner import runtestprotocol  # noqa: E402
from tqdm import tqdm  # noqa: E402

if importlib.util.find_spec("torch"):
    import torch  # noqa: F401  imported before the forks, as the rest: each would take seconds

sys.path.insert(0, str(HERE))
from mutants import mutants  # noqa: E402
from results import store  # noqa: E402

sys.path.remove(str(HERE))

ENGINE = "core/test_tape core/test_primitive core/test_tensor core/test_check core/test_recompute core/test_create "
ENGINE += "core/test_interceptors device/test_dlpack"
LOSS = "test_losses test_ops test_types_halves oracles/test_ops_torch oracles/test_elementwise_torch"
KERNELS = "test_kernels_optimizer test_kernels_optimizer_plan test_optim test_optim_clip test_optim_scaled"
OPTIM = f"{KERNELS} test_optim_edges test_optim_steady test_optim_plateau test_optim_muon test_optim_cuda "
OPTIM += "oracles/test_optim_torch"
SURFACE = "test_refusals oracles/test_surface_torch"
TESTS = {  # the tests of each subject: fast ones, none that start processes or wait
    "minigrad/optim/*": f"{OPTIM} {SURFACE}",
    "kernels/minigrad_kernels/optimizer/*": KERNELS,
    "minigrad/ops/loss.py": f"{LOSS} {SURFACE}",
    "minigrad/*": f"{ENGINE} {SURFACE}",
}
FILES = "core/tensor core/primitive core/tape core/modes core/check anomaly".split()
COMPILED = "optimizer/cpu.py"  # Numba compiles it: no line of it is seen to run, no function can get other code
ROWS = "loss", "entropy", "similarity", "distance", "kl_div"  # of the rows of all ops
OPTIONS = "-q", "-s", "-p", "no:cacheprovider"
SURVIVES, OPEN = 0, 9  # exit codes
BUDGET = 15.0  # seconds of tests for one change
SLOW = 1.0  # seconds: longer tests run only where no other runs the line
PATIENCE = 5  # times as long as the tests take, and then some
EQUIVALENT = HERE / "equivalent.json"  # {change: why nobody can notice it}


def default_files():
    """The files of the optimisers, of the losses and of the engine."""
    found = [*(ROOT / "minigrad/optim").glob("*.py"), ROOT / "minigrad/ops/loss.py"]
    found += [ROOT / f"minigrad/{name}.py" for name in FILES]
    found += [ROOT / f"kernels/minigrad_kernels/optimizer/{name}.py" for name in ("reference", "cpu")]
    return sorted(str(file.relative_to(ROOT)) for file in found)


def tests_of(file):
    return next(names.split() for pattern, names in TESTS.items() if fnmatch(file, pattern))


# ---- processes -------------------------------------------------------------------------------------------------------


def started(work, seconds=None):
    """(process, file to read) of a fork that does some work, which gets a file to write, for so long at most."""
    read, write = os.pipe()
    if child := os.fork():
        os.close(write)
        return child, os.fdopen(read)
    code = 70
    try:
        os.close(read)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(nowhere, number)
        if seconds:  # of the CPU, and many more of the clock: others may want the CPU too
            resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 2))
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(60 + 5 * int(seconds))
        code = work(os.fdopen(write, "w"))
    finally:
        os._exit(code)


def ended(child):
    """The exit code of a fork: OPEN if it waited for ever, as for a thread that it lacks, -1 if it was killed else."""
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        return OPEN if os.WTERMSIG(status) == signal.SIGALRM else -1
    return os.WEXITSTATUS(status)


def outcome(work, seconds):
    """The exit code of work in a fork, -1 if it takes too long."""
    child, told = started(work, seconds)
    with told:
        return ended(child)


class Chosen:
    """A plugin of pytest: the tests of these names, in their order."""

    def __init__(self, names):
        self.places = {name: place for place, name in enumerate(names)}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items):
        items[:] = sorted((i for i in items if i.nodeid in self.places), key=lambda i: self.places[i.nodeid])


def afresh(mutant, names):
    """Whether tests notice a mutant that is imported in place of its file."""

    def work(tell):
        file, loader = str(ROOT / mutant.file), importlib.machinery.SourceFileLoader
        before = loader.get_code
        loader.get_code = lambda self, name: mutant.code if self.path == file else before(self, name)
        from minigrad_kernels.toolchain import cache  # mutants that are compiled are neither found nor kept

        place_of, own = cache.place_of, module_of(mutant.file)
        cache.place_of = lambda f, s: None if f.__module__ == own else place_of(f, s)
        files = sorted({name.partition("::")[0] for name in names})
        return int(pytest.main([*OPTIONS, "-x", *files], plugins=[Chosen(names)]) not in (0, 5))

    return outcome(work, 60 + PATIENCE * sum(names.values())) != SURVIVES


class Server:
    """A plugin of pytest that, in place of a run, measures which test runs which line, and then tries mutants."""

    def __init__(self, files, every, measured, tell):
        self.files, self.every, self.measured, self.tell = files, every, measured, tell

    def pytest_collection_modifyitems(self, items):
        items[:] = [i for i in items if "/test_ops" not in i.nodeid or any(name in i.nodeid for name in ROWS)]

    def pytest_runtestloop(self, session):
        seconds, failed = {}, []
        for item in session.items:
            began = time.process_time()
            self.measured.switch_context(item.nodeid)
            if any(report.failed for report in runtestprotocol(item, log=False, nextitem=None)):
                failed.append(item.nodeid)
            seconds[item.nodeid] = time.process_time() - began
        self.measured.stop()
        self.items = {item.nodeid: item for item in session.items if item.nodeid not in failed}
        self.say(seconds={name: seconds[name] for name in self.items}, failed=failed)
        for file in self.files:
            self.lines = self.measured.get_data().contexts_by_lineno(str(ROOT / file))
            source = (ROOT / file).read_text()
            self.plain = compile(ast.parse(source), file, "exec")
            self.functions = [
                o for o in gc.get_objects() if type(o) is FunctionType and o.__module__ == module_of(file)
            ]
            for index, mutant in enumerate(mutants(file, source)):
                if not (index + self.every // 2) % self.every:
                    names = self.covering(mutant, seconds)
                    self.say(file=file, index=index, names=names, code=self.tried(mutant, names) if names else SURVIVES)
        return True

    def say(self, **what):
        self.tell.write(json.dumps(what) + "\n")
        self.tell.flush()

    def covering(self, mutant, seconds):
        """{test: seconds} of those that run the line, fast ones first; all where it runs when it is imported."""
        ran = self.lines.get(mutant.line, [])
        names = [name for name in ran if name in self.items]
        if not names and ("" in ran or not mutant.scope or mutant.file.endswith(COMPILED)):
            names = list(self.items)
        names = [name for name in names if seconds[name] < SLOW] or names
        spent, chosen = 0.0, {}
        for name in sorted(names, key=seconds.get):
            if (spent := spent + seconds[name]) < BUDGET or not chosen:
                chosen[name] = seconds[name]
        return chosen

    def tried(self, mutant, names):
        """What becomes of a mutant whose code the functions of the file get; OPEN if none does, or more at import."""
        if mutant.file.endswith(COMPILED):
            return OPEN

        def work(_):
            if not self.swap(self.plain, mutant.code):
                return OPEN
            tests = (self.items[name] for name in names)
            if any(report.failed for test in tests for report in runtestprotocol(test, log=False)):
                return 1
            return OPEN if "" in self.lines.get(mutant.line, ()) else SURVIVES

        return outcome(work, 10 + PATIENCE * sum(names.values()))

    def swap(self, before, after):
        """Give functions other code, where that of the module differs; how many got it."""
        done = 0
        pairs = [[part for part in code.co_consts if type(part) is CodeType] for code in (before, after)]
        for old, new in zip(*pairs, strict=False):
            if body(old) != body(new):
                for f in self.functions:
                    if body(f.__code__) == body(old) and f.__code__.co_freevars == new.co_freevars:
                        f.__code__, done = new, done + 1
                done += self.swap(old, new)
        return done


def module_of(file):
    return file.removeprefix("kernels/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def body(code):
    """What two pieces of code that do the same at the same place have in common."""
    parts = tuple(body(part) if type(part) is CodeType else (type(part), part) for part in code.co_consts)
    return code.co_qualname, code.co_firstlineno, code.co_code, parts, code.co_names, tuple(code.co_positions())


# ---- the command -----------------------------------------------------------------------------------------------------


def survivors(files, every, progress):
    """(how many mutants of files with the same tests were tried, those that survived both steps)."""

    def serve(tell):
        measured = coverage.Coverage(data_file=None, include=[str(ROOT / file) for file in files], config_file=False)
        measured.start()
        paths = [f"tests/{name}.py" for name in tests_of(files[0])]
        return int(pytest.main([*OPTIONS, *paths], plugins=[Server(files, every, measured, tell)]))

    changed = {file: list(mutants(file, (ROOT / file).read_text())) for file in files}
    left, tried = [], 0
    child, told = started(serve)
    with told:
        for name in json.loads(told.readline())["failed"]:
            progress.write(f"left out, since it fails without a change: {name}")
        for found in map(json.loads, told):
            mutant, tried = changed[found["file"]][found["index"]], tried + 1
            if found["code"] == SURVIVES or (found["code"] == OPEN and not afresh(mutant, found["names"])):
                left.append(mutant)
                progress.write(f"survives: {mutant.file}:{mutant.line} {mutant.scope}: {mutant.change}")
            progress.update()
    if code := ended(child):
        raise SystemExit(f"the tests could not be run: pytest ended with {code}")
    return tried, left


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", metavar="FILE", default=default_files())
    parser.add_argument("--every", type=int, default=1, metavar="N", help="try each N-th change")
    parser.add_argument("--write", action="store_true", help="store the figures in results/mutations.json")
    options = parser.parse_args()
    os.chdir(ROOT)
    groups, known = {}, json.loads(EQUIVALENT.read_text())
    for file in options.files:
        groups.setdefault(tuple(tests_of(file)), []).append(file)
    all_mutants = sum(1 for file in options.files for _ in mutants(file, (ROOT / file).read_text()))
    tried, left = 0, []
    with tqdm(total=all_mutants // options.every) as progress:
        for files in groups.values():
            count, found = survivors(files, options.every, progress)
            tried, left = tried + count, left + found
    explained = [mutant.key for mutant in left if mutant.key in known]
    unknown = [f"{m.file}:{m.line} {m.scope}: {m.change}" for m in left if m.key not in known]
    killed = tried - len(left)
    print(f"{tried} of {all_mutants} changes tried, {killed} noticed, {len(explained)} equivalent")
    print(*(f"survives: {text}" for text in unknown), sep="\n")
    if options.write:
        command = "python tests/reliability/mutations.py" + (f" --every {options.every}" if options.every > 1 else "")
        checked = f"{tried:,} of {all_mutants:,} small changes to optimisers, losses and engine"
        found = f"{killed:,} noticed by tests, {len(explained)} equivalent, {len(unknown)} unnoticed"
        details = {"mutants": all_mutants, "tried": tried, "killed": killed}
        store("mutations", checked, found, command, **details, survivors=unknown, equivalent=explained)
    return 1 if unknown else 0


if __name__ == "__main__":
    sys.exit(main())
