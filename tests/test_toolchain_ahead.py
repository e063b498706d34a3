"""Kernels compiled by several processes: claims on entries, and the companion that compiles ahead."""

import os
import signal
import subprocess
import sys
import time

import pytest

from minigrad_kernels import ahead
from minigrad_kernels.toolchain import claims
from tests.test_toolchain_cpu import COUNT, PACKAGE, USE, kernel, python  # noqa: F401

# ruff: noqa: F811  (a fixture has the name of the argument that asks for it)

pytestmark = pytest.mark.skipif(not claims.possible, reason="this system has no locks on files")

TWO = {"NUMBA_NUM_THREADS": "2", "MINIGRAD_AHEAD": ""}
EXPECT = "from minigrad_kernels.toolchain import companion\ncompanion.expect(companion.TRAINING, 'SGD')\n"
STARTED = "print(bool(companion._companion))"
REAPED = """
companion._companion.reaper.join(60)
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    print("none", companion._companion.pipe)
"""


def begin(code, folder, **environment):
    """A process that runs the code, whose lines and whose input the test sees."""
    path = os.pathsep.join((str(PACKAGE.parent), str(folder)))
    settings = os.environ | {"PYTHONPATH": path, "MINIGRAD_CACHE": str(folder / "cache")} | environment
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    return subprocess.Popen([sys.executable, "-c", code], env=settings, **pipes)


def is_gone(number):
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return True
    try:
        with open(f"/proc/{number}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"  # nobody has asked how it ended
    except OSError:
        return False


def wait_until(true, seconds=30):
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        time.sleep(0.02)
    return true()


# ---- claims --------------------------------------------------------------------------------------------------------


def test_processes_that_want_the_same_entry_compile_it_once(kernel):
    slow = """
import contextlib, time
from minigrad_kernels.toolchain import progress
compiling = progress.compiling

@contextlib.contextmanager
def slowly(function):
    with compiling(function):
        time.sleep(1)
        yield

progress.compiling = slowly
"""
    code = f"{slow}import numba, kernel\nprint('ready', flush=True)\ninput()\n{USE}\n{COUNT}"
    processes = [begin(code, kernel) for _ in range(3)]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    counts = [process.communicate("\n", timeout=60)[0].split() for process in processes]
    assert sorted(counts) == [["0", "1"], ["1", "0"], ["1", "0"]]


def test_what_a_killed_process_had_claimed_is_free(kernel, tmp_path):
    code = """
import time
from pathlib import Path
from minigrad_kernels.toolchain import claims
with claims.claim(Path({place!r}), print):
    print("mine", flush=True)
    time.sleep(60)
"""
    place = tmp_path / "folder" / "entry"
    place.parent.mkdir()
    process = begin(code.format(place=str(place)), tmp_path)
    assert process.stdout.readline() == "mine\n"
    claims.patient = False
    try:
        with pytest.raises(claims.Busy, match="is_gone"), claims.claim(place, is_gone):
            pass
        with claims.claim(place.with_name("other"), is_gone):  # another byte
            pass
        process.kill()
        process.communicate()
        with claims.claim(place, is_gone):
            pass
    finally:
        claims.patient = True


def test_a_process_that_stands_still_is_not_waited_for(tmp_path, monkeypatch):
    place = tmp_path / "folder" / "entry"
    place.parent.mkdir()
    monkeypatch.setattr(claims, "PATIENCE", 0.1)
    looks = []
    monkeypatch.setattr(claims, "_locked", lambda *where: looks.append(where) or False)
    with claims.claim(place, is_gone):
        assert len(looks) > 1


@pytest.mark.parametrize("refusal", ["folder", "locks", "module"])
def test_without_locks_nobody_waits(tmp_path, monkeypatch, refusal):
    def refuse(*arguments):
        raise OSError("no locks here")

    place = tmp_path / "folder" / "entry"
    if refusal != "folder":
        place.parent.mkdir()
    monkeypatch.setattr(*((claims, "possible", False) if refusal == "module" else (claims.fcntl, "lockf", refuse)))
    reached = False
    with claims.claim(place, is_gone):
        reached = True
    assert reached


# ---- the companion -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("tokens", "compile"), ahead.KERNELS, ids=lambda value: getattr(value, "__name__", ""))
def test_each_kernel_of_the_table_can_be_compiled(tokens, compile):
    compile()


def test_the_table_is_of_the_types_that_training_wants(tmp_path):
    """Nothing that the table compiles is compiled again for other types, and no norm's kernel is left out of it."""
    code = """
import gc, minigrad
from minigrad import models, nn, optim
from minigrad_kernels import ahead
from minigrad_kernels.toolchain.compiler import Entry
for _, compile in ahead.KERNELS:
    compile()
entries = [entry for entry in gc.get_objects() if isinstance(entry, Entry)]
made = {entry: len(entry.overloads) for entry in entries if entry.overloads}
assert len(made) >= 20
for name, shape, size in ("mnist-net", (1, 28, 28), 1), ("resnet", (3, 8, 8), 2):
    network = models.build(name, shape)
    rule = {"mnist-net": optim.Adam, "resnet": optim.SGD}[name](network.parameters(), lr=0.1)
    x, y = minigrad.zeros(size, *shape), minigrad.Tensor([1] * size)
    nn.functional.cross_entropy(network(x), y).backward()
    rule.step()
norms = nn.Sequential(nn.GroupNorm(1, 2), nn.ReLU(), nn.InstanceNorm2d(2), nn.Flatten(), nn.LayerNorm(8), nn.ReLU())
norms(minigrad.ones(3, 2, 2, 2, requires_grad=True)).sum().backward()
later = [e for e in gc.get_objects() if isinstance(e, Entry) and e.overloads and e not in made]
again = [entry for entry, count in made.items() if len(entry.overloads) != count]
print(*[e.py_func.__name__ for e in again + [e for e in later if "norm" in e.py_func.__module__]])
"""
    folder = os.environ.get("MINIGRAD_CACHE") or ""
    path = os.pathsep.join((str(PACKAGE.parent), str(PACKAGE.parents[1])))
    assert python(code, tmp_path, path=path, MINIGRAD_CACHE=folder, MINIGRAD_AHEAD="0") == []


LEARN = """
import hashlib, time, minigrad
from minigrad import nn, optim
from minigrad_kernels.optimizer.cpu import sgd_chunks
from minigrad_kernels.toolchain import companion
minigrad.manual_seed(0)
network = nn.Linear(40, 10)
rule = optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
nn.functional.cross_entropy(network(minigrad.randn(16, 40)), minigrad.Tensor([3] * 16)).backward()
rule.step()
print(hashlib.sha256(network.weight.data.tobytes()).hexdigest(), sgd_chunks.entry.compiled, sgd_chunks.entry.loaded)
"""


def test_what_the_companion_compiled_gives_the_same_bits(tmp_path):
    path = os.pathsep.join((str(PACKAGE.parent), str(PACKAGE.parents[1])))
    bits, compiled, _ = python(LEARN, tmp_path, path=path, **TWO | {"MINIGRAD_AHEAD": "0"})
    assert compiled == "1"
    (tmp_path / "other").mkdir()
    assert python(LEARN, tmp_path / "other", path=path, **TWO) == [bits, "0", "1"]


@pytest.mark.parametrize(
    ("settings", "started"),
    [({}, "True"), ({"MINIGRAD_AHEAD": "0"}, "False"), ({"NUMBA_NUM_THREADS": "1"}, "False")],
)
def test_when_it_is_started(kernel, settings, started):
    if not settings and (os.cpu_count() or 1) < 2:
        pytest.skip("needs two CPUs")
    assert python(f"{EXPECT}{USE}{STARTED}", kernel, **TWO | settings) == [started]
    assert python(f"{EXPECT}{USE}{STARTED}", kernel, **TWO) == ["False"]  # all is there


def test_a_program_that_does_not_train_has_none(kernel):
    code = f"{EXPECT.replace('companion.TRAINING, ', '')}{USE}{STARTED}"
    assert python(code, kernel, **TWO) == ["False"]


def test_without_a_folder_there_is_none(kernel):
    (kernel / "file").write_text("")
    assert python(f"{EXPECT}{USE}{STARTED}", kernel, **TWO, MINIGRAD_CACHE=str(kernel / "file" / "cache")) == ["False"]


def test_a_forked_child_has_none(kernel):
    code = f"""
import os
{EXPECT}
child = os.fork()
if child:
    os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
{USE}
os._exit(bool(companion._companion))
"""
    assert python(code, kernel, **TWO) == []


@pytest.mark.parametrize(
    "program",
    [
        "raise SystemExit(3)",
        "import os; os.close(0); os._exit(1)",
        "from minigrad_kernels import ahead; ahead.main('/another/folder')",
        "import sys; from minigrad_kernels import ahead; ahead.IDLE = 0.1; ahead.KERNELS = (); ahead.main(sys.argv[1])",
    ],
    ids=["fails", "does not listen", "has another folder", "has nothing to do"],
)
def test_one_that_ends_leaves_nothing_behind(kernel, program):
    code = f"import os\n{EXPECT}companion.PROGRAM = {program!r}\n{USE}companion.tell('more')\n{REAPED}{COUNT}"
    assert python(code, kernel, **TWO) == ["none", "None", "0", "1"]


def test_a_python_that_cannot_be_started_is_no_error(kernel):
    code = f"import sys\n{EXPECT}sys.executable = '/no/such/python'\n{USE}{STARTED}"
    assert python(code, kernel, **TWO) == ["False"]


@pytest.mark.parametrize("end", ["kill", "exit", "fork"])
def test_it_ends_with_its_program(kernel, end):
    """Killed, at its end, and where a child that it has forked lives on."""
    fork = "import os\nif not os.fork():\n    os.read(0, 1); os._exit(0)\n"
    busy = "from minigrad_kernels import ahead; ahead.IDLE = 60; ahead.KERNELS = (); ahead.main(sys.argv[1])"
    program = f"import sys; sys.path[:] = sys.argv[2:]; {busy}"
    code = f"{EXPECT}companion.PROGRAM = {program!r}\n{USE}{fork if end == 'fork' else ''}"
    process = begin(f"{code}print(companion._companion.number, flush=True)\ninput()", kernel, **TWO)
    number = int(process.stdout.readline())
    assert not is_gone(number)
    if end == "exit":
        process.stdin.write("\n")
        process.stdin.close()
    else:
        os.kill(process.pid, signal.SIGKILL)
    assert wait_until(lambda: is_gone(number), 10)
    process.stdout.close()
    process.stdin.close()
    process.wait()


def test_one_process_at_a_time_compiles_ahead(tmp_path):
    code = f"from minigrad_kernels.toolchain import claims; print(claims.held({str(tmp_path / 'lock')!r}))"
    process = begin(f"{code}\nprint(end='', flush=True); input()", tmp_path)
    process.stdout.readline()
    assert python(code, tmp_path) == ["False"]
    process.communicate("\n")
    assert python(code, tmp_path) == ["True"]
