"""What names a compiled kernel on disk: two kernels of which the code could differ never share a key."""

import importlib
import linecache
import os
import re
import sys
import textwrap
import time

import numpy as np
import pytest

from minigrad_kernels.errors import KindError
from minigrad_kernels.interpreter import interpret
from minigrad_kernels.toolchain.cuda import KERNELS, compiler, keys
from tests.kernels.interpreter import cuda_kernels

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

    def run(files, folder=tmp_path):
        for name, text in files.items():
            (folder / f"{name}.py").write_text(HEAD + textwrap.dedent(text))
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
DEFAULT = "from helper import value\n@device\ndef scaled(x, factor=value): return x * f32(factor)\n"
CALLER = DEFAULT.replace(", factor=value", "").replace("factor", "value")
PAIR = "class Pair(NamedTuple):\n    {}: int\n    {}: int\nvalue = Pair(1, 2)"
ENUM = "class value(enum.IntEnum):\n    A = 1\n    B = 2\n    CHOSEN = {}"
LANE = "value = inline_ptx('lane', 'mov.u32 $0, %laneid;', {}, [])"
SCALED = kernel_of("scaled(x[0])", CALLER)
CHANGES = {  # the program, and what else it finds in another file, before and after; or the program after
    "function": (kernel_of("value(x[0])", CHOICE), "which = 0", "which = 1"),
    "type": (kernel_of("value(x[0])"), "value = f32", "value = i32"),
    "word": (kernel_of("value(x[0])"), "value = bits", "value = tf32"),
    "result of PTX": (kernel_of("f32(value())"), LANE.format("u32"), LANE.format("i32")),
    "number": (SCALED, "value = 2", "value = 3"),
    "default": (kernel_of("scaled(x[0])", DEFAULT), "value = 2", "value = 3"),
    "named tuple": (kernel_of("x[value.p]"), PAIR.format("p", "q"), PAIR.format("q", "p")),
    "alias in an enum": (kernel_of("x[value.CHOSEN]"), ENUM.format(1), ENUM.format(2)),
    "a function that is called": (SCALED, SCALED.replace("x * f32", "x + f32")),
    "a constant": (SCALED, SCALED.replace("x[0]", "x[1]")),
    "the lines that PTX names": (SCALED, "\n" + SCALED),
    "a type of the signature": (SCALED, SCALED.replace("f32* x", "f64* x")),
}


def test_the_key_follows_code_options_and_the_compiler(program, monkeypatch):
    for what, (text, *helpers) in CHANGES.items():
        if len(helpers) == 2:
            before, after = ({"helper": helper, "program": text} for helper in helpers)
        else:
            before, after = ({"helper": "value = 2", "program": one} for one in (text, *helpers))
        found = [program(files).key for files in (before, after, before)]
        assert found[0] == found[2] != found[1], what

    def scale(*options, **named):
        made = cuda_kernels.scale(*options, "key", **named)
        del KERNELS[made.name]
        return made.key

    base = scale(2)
    assert base == scale(2) and base not in (scale(3), scale(2, threads=128), scale(2, lowest="sm_80"))
    monkeypatch.setattr(keys, "COMPILER", keys.COMPILER[:1])
    assert scale(2) != base, "the code of the compiler"
    with pytest.raises(KindError, match="uses TABLE, a ndarray; wants numbers, tuples, enums and device functions"):
        _ = cuda_kernels.with_an_array.key


def test_a_file_that_changed_since_its_import_names_nothing(program, tmp_path):
    """What the process runs is the older code: it must not be kept under the key of the newer one."""
    files = {"program": kernel_of("x[0]", "")}
    usual, older = program(files).key, program(files)
    stamp = time.time() + 0.5
    os.utime(tmp_path / "program.py", (stamp, stamp))
    time.sleep(0.6)
    assert older.key != usual
    assert program(files).key == usual, "imported again"


@compiled
def test_kept_ptx_names_no_file_and_serves_in_any_folder(program, tmp_path, monkeypatch):
    monkeypatch.setenv("MINIGRAD_CACHE", str(tmp_path / "cache"))
    files = {"helper": "value = 2", "program": SCALED}
    text = program(files).ptx()
    lines = (HEAD + SCALED).splitlines()
    places = {lines[int(line) - 1] for line in re.findall(r"\.loc\s+\d+ (\d+)", text) if line != "0"}
    assert "    out[cuda.threadIdx.x] = scaled(x[0])" in places
    assert str(tmp_path / "program.py") in text
    (kept,) = (tmp_path / "cache").rglob("*.ptx")
    assert str(tmp_path).encode() not in kept.read_bytes()
    monkeypatch.setattr(compiler, "to_ptx", lambda *_: pytest.fail("compiled again"))
    (other := tmp_path / "other").mkdir()
    monkeypatch.syspath_prepend(other)
    assert program(files, other).ptx() == text.replace(str(tmp_path), str(other))


@compiled
def test_faults_show_lines_of_files_in_any_folder_and_of_cells(program, tmp_path, monkeypatch):
    """Windows' paths have the same signs in LLVM's IR as this folder."""
    x, source = np.zeros(32, np.float32), KERNEL.replace("EXPRESSION", "x[32]")
    (folder := tmp_path / 'größer, "quoted"').mkdir()
    monkeypatch.syspath_prepend(folder)
    name, space = "<ipython-input-1>", {"__name__": "__main__"}
    monkeypatch.setitem(linecache.cache, name, (0, None, (HEAD + source).splitlines(True), name))
    exec(compile(HEAD + source, name, "exec"), space)
    for made, place in ((program({"program": source}, folder), "program.py"), (space["made"], name)):
        (fault,) = interpret(made, (1,), (32,), (x, x.copy())).faults
        assert str(fault).endswith(f"{place}:7: out[cuda.threadIdx.x] = x[32]")
        assert made.binary("sm_90").registers
    del KERNELS["__main___made"]
