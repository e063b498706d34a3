"""What names a compiled kernel on disk: two kernels of which the code could differ never share a key."""

import importlib
import os
import re
import sys
import textwrap
import time

import pytest

from minigrad_kernels.errors import KindError, ShapeError, StateError
from minigrad_kernels.toolchain.cuda import KERNELS, cache, compiler, kernel

compiled = pytest.mark.skipif(compiler.missing() is not None, reason=f"compiles: {compiler.missing()}")
HEAD = "from minigrad_kernels.toolchain.cuda import *\nimport enum\nfrom typing import NamedTuple\n"
KERNEL = """
@kernel("f32* x, f32* out", threads=32)
def made(x, out):
    out[cuda.threadIdx.x] = EXPRESSION
"""


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Writes files of Python and gives the kernel of the one called program."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(tmp_path)

    def run(files):
        for name, text in files.items():
            (tmp_path / f"{name}.py").write_text(HEAD + textwrap.dedent(text))
        for name in files:
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        return importlib.import_module("program").made

    yield run
    KERNELS.pop("program_made", None)
    for name in ("program", "helper"):
        sys.modules.pop(name, None)


def kernel_of(expression, before="from helper import value"):
    return before + KERNEL.replace("EXPRESSION", expression)


CHOICE = """
@device
def twice(x): return x + x
@device
def square(x): return x * x
from helper import which
value = (twice, square)[which]
"""
INNER = """
from helper import value
@kernel("f32* x, f32* out", threads=32)
def made(x, out):
    def scaled(v):
        return f32(value) * v
    out[cuda.threadIdx.x] = scaled(x[0])
"""
DEFAULT = "from helper import value\n@device\ndef scaled(x, factor=value): return x * f32(factor)\n"
PAIR = "class Pair(NamedTuple):\n    {}: int\n    {}: int\nvalue = Pair(1, 2)"
ENUM = "class value(enum.IntEnum):\n    A = 1\n    B = 2\n    CHOSEN = {}"
LAMBDAS = """
from helper import which
value = (device(lambda x: x + x), device(lambda x: x * x))[which]
"""
LANE = "value = inline_ptx('lane', 'mov.u32 $0, %laneid;', {}, [])"


@pytest.mark.parametrize(
    "program_text, helpers",
    [
        (kernel_of("value(x[0])", CHOICE), ("which = 0", "which = 1")),
        (kernel_of("value(x[0])"), ("value = f32", "value = i32")),
        (kernel_of("value(x[0])"), ("value = bits", "value = tf32")),
        (kernel_of("value(x[0])", LAMBDAS), ("which = 0", "which = 1")),
        (kernel_of("f32(value())"), (LANE.format("u32"), LANE.format("i32"))),
        (kernel_of("scaled(x[0])", DEFAULT), ("value = 2", "value = 3")),
        (kernel_of("x[value.p]"), (PAIR.format("p", "q"), PAIR.format("q", "p"))),
        (kernel_of("x[value.CHOSEN]"), (ENUM.format(1), ENUM.format(2))),
        (INNER, ("value = 2", "value = 3")),
    ],
    ids=["function", "type", "word", "lambda", "result of PTX", "default", "named tuple", "alias in an enum", "inner"],
)  # fmt: skip
def test_the_key_follows_what_is_defined_in_another_file(program, program_text, helpers):
    keys = [program({"helper": text, "program": program_text}).key for text in (*helpers, helpers[0])]
    assert keys[0] != keys[1]
    assert keys[0] == keys[2], "and nothing else"


CALLER = """
from helper import value
@device
def scaled(x):
    return x * f32(value)

@kernel("f32* x, f32* out", threads=32)
def made(x, out):
    i = cuda.threadIdx.x
    out[i] = scaled(x[i])
"""


def test_the_key_follows_code(program):
    key = lambda text, value="2": program({"helper": f"value = {value}", "program": text}).key
    before = key(CALLER)
    assert key(CALLER + "# behind it\n") == before
    assert key(CALLER.replace("x * f32", "x + f32")) != before, "a function that is called"
    assert key(CALLER.replace("i = cuda.threadIdx.x", "i = cuda.threadIdx.x + 1")) != before, "a constant in the code"
    assert key(CALLER, "3") != before, "a constant from elsewhere"
    assert key("\n" + CALLER) != before, "the lines that PTX names"


@compiled
def test_kept_ptx_names_no_file_and_serves_in_any_folder(program, tmp_path, monkeypatch):
    monkeypatch.setenv("MINIGRAD_CACHE", str(tmp_path / "cache"))
    files = {"helper": "value = 2", "program": CALLER}
    text = program(files).ptx()
    lines = (HEAD + CALLER).splitlines()
    places = {lines[int(line) - 1] for line in re.findall(r"\.loc\s+\d+ (\d+)", text) if line != "0"}
    assert {"    i = cuda.threadIdx.x", "    out[i] = scaled(x[i])"} <= places
    assert str(tmp_path / "program.py") in text
    (kept,) = (tmp_path / "cache").rglob("*.ptx")
    assert str(tmp_path).encode() not in kept.read_bytes()
    monkeypatch.setattr(compiler, "to_ptx", lambda *_: pytest.fail("compiled again"))
    (other := tmp_path / "other").mkdir()
    monkeypatch.syspath_prepend(other)
    for name, source in files.items():
        (other / f"{name}.py").write_text(HEAD + source)
        sys.modules.pop(name)
    importlib.invalidate_caches()
    moved = importlib.import_module("program").made.ptx()
    assert moved == text.replace(str(tmp_path), str(other))


def test_a_file_that_changed_since_its_import_names_nothing(program, tmp_path):
    """What the process runs is the older code: it must not be kept under the key of the newer one."""
    files = {"program": kernel_of("x[0]", "")}
    usual, older = program(files).key, program(files)
    stamp = time.time() + 0.5
    os.utime(tmp_path / "program.py", (stamp, stamp))
    time.sleep(0.6)
    assert older.key != usual
    assert program(files).key == usual, "imported again"
    os.utime(tmp_path / "program.py", (stamp + 9999, stamp + 9999))
    assert program(files).key == usual, "a clock that is ahead is no change"


def test_builds_of_the_compiler_are_told_apart(monkeypatch):
    if compiler.missing():
        pytest.skip(f"compiles: {compiler.missing()}")
    before = compiler.compiler_versions()
    monkeypatch.setattr(compiler, "_build", lambda library: f"another {library}")
    assert compiler.compiler_versions.__wrapped__() != before


def test_a_user_without_a_home_has_no_cache(monkeypatch):
    def home():
        raise RuntimeError("Could not determine home directory.")

    for name in ("MINIGRAD_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(cache.Path, "home", home)
    cache.save_code("name", "sm_90", "ptx", compiler.Binary(b"code", 8, 0, 0, 0))
    assert cache.load_code("name", "sm_90", "ptx") is None


# ---- declaring ---------------------------------------------------------------------------------------------------


def test_running_a_cell_again_takes_the_place_of_the_older_kernel():
    space = {"__name__": "__main__", "kernel": kernel}
    for _ in range(2):
        exec('@kernel("f32* x", threads=32)\ndef of_a_cell(x): pass', space)
    assert KERNELS.pop("__main___of_a_cell") is space["of_a_cell"]
    with pytest.raises(StateError, match="there already is one called toolchain_same"):
        for _ in range(2):

            @kernel("f32* x", threads=32)
            def same(x):
                pass

    del KERNELS["toolchain_same"]


def function(x):
    pass


@pytest.mark.parametrize(
    "signature, options, error, message",
    [
        ("f32* x", {"variant": "2.5"}, ShapeError, "_function_2.5' is no name for a kernel, wants letters a to z"),
        ("f32* x", {"variant": "a/../b"}, ShapeError, "is no name for a kernel"),
        ("f32* x", {"lowest": "sm_70"}, ShapeError, "lowest is 'sm_70', wants one of sm_75, sm_80"),
        ("f32* x, i32 n", {}, KindError, "the function takes x, the signature has x, n"),
        ("f32* y", {}, KindError, "the function takes x, the signature has y"),
    ],
)
def test_refuses_what_could_not_be_compiled(signature, options, error, message):
    with pytest.raises(error, match=message):
        kernel(signature, threads=32, **options)(function)


@compiled
def test_what_numba_refuses_is_said_with_the_kernel():
    @kernel("f32* x", threads=32)
    def unknown_name(x):
        x[0] = nowhere  # noqa: F821

    with pytest.raises(StateError, match="toolchain_unknown_name: Numba refuses it: (.|\n)*'nowhere' is not defined"):
        unknown_name.ptx()
    del KERNELS[unknown_name.name]


# ---- lines of source ---------------------------------------------------------------------------------------------


@compiled
@pytest.mark.parametrize("folder", ["plain", "größer als sonst", 'a "quoted" one'])
def test_faults_show_lines_of_files_in_any_folder(tmp_path, monkeypatch, folder):
    """Windows' paths have the same signs in LLVM's IR as these."""
    import numpy as np

    from minigrad_kernels.interpreter import interpret

    (tmp_path / folder).mkdir()
    (tmp_path / folder / "shown.py").write_text(HEAD + KERNEL.replace("EXPRESSION", "x[32]").replace("made", "shown"))
    monkeypatch.syspath_prepend(tmp_path / folder)
    importlib.invalidate_caches()
    shown = importlib.import_module("shown").shown
    del sys.modules["shown"], KERNELS[shown.name]
    x = np.zeros(32, np.float32)
    (fault,) = interpret(shown, (1,), (32,), (x, x.copy())).faults
    assert str(fault).endswith("shown.py:7: out[cuda.threadIdx.x] = x[32]")
    assert shown.binary("sm_90").registers


@compiled
def test_faults_show_lines_of_cells():
    import linecache

    import numpy as np

    from minigrad_kernels.interpreter import interpret

    text, name = HEAD + KERNEL.replace("EXPRESSION", "x[32]").replace("made", "of_cell"), "<ipython-input-1>"
    linecache.cache[name] = len(text), None, text.splitlines(True), name
    space = {"__name__": "__main__"}
    exec(compile(text, name, "exec"), space)
    x = np.zeros(32, np.float32)
    (fault,) = interpret(space["of_cell"], (1,), (32,), (x, x.copy())).faults
    assert str(fault).endswith("<ipython-input-1>:7: out[cuda.threadIdx.x] = x[32]")
    del linecache.cache[name], KERNELS["__main___of_cell"]
