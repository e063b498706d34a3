"""How CUDA kernels are declared, compiled, kept on disk and reported on. Nothing here needs a GPU."""

import re
import zipfile

import numpy as np
import pytest

from minigrad_kernels import interpreter
from minigrad_kernels.errors import KindError, ShapeError, StateError
from minigrad_kernels.toolchain.cuda import KERNELS, cache, compiler, cuda, kernel, report
from minigrad_kernels.toolchain.cuda.kernel import all_kernels
from minigrad_kernels.toolchain.cuda.memory import View
from tests import standin
from tests.kernels.interpreter import cuda_kernels

compiled = pytest.mark.skipif(compiler.missing() is not None, reason=f"compiles: {compiler.missing()}")


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    """A kernel that nobody has compiled yet, and an empty cache."""
    monkeypatch.setenv("MINIGRAD_CACHE", str(tmp_path))
    made = iter(range(100))
    yield lambda **options: cuda_kernels.scale(2, f"test_{next(made)}_{id(tmp_path)}", **options)
    for name in [name for name in KERNELS if str(id(tmp_path)) in name]:
        del KERNELS[name]


# ---- declaring ---------------------------------------------------------------------------------------------------


REFUSED = [  # signature, options
    ("f32** x", {}, KindError, r"wants parts such as 'f32\[:,:\] x' or 'i32 n'"),
    ("i32 x", {}, KindError, "the first parameter is no array"),
    ("f32* x, i32 n", {}, KindError, "the function takes x, the signature has x, n"),
    ("f32* x", {"lowest": "sm_70"}, ShapeError, "lowest is 'sm_70', wants one of sm_75, sm_80"),
]


def test_refuses_what_could_not_be_compiled_and_a_name_that_is_taken(fresh):
    def function(x):
        pass

    for signature, options, error, message in REFUSED:
        with pytest.raises(error, match=message):
            kernel(signature, threads=32, **options)(function)
    name = fresh().name.removeprefix("interpreter_scale_")
    with pytest.raises(StateError, match="there already is one called interpreter_scale_test_0"):
        cuda_kernels.scale(3, name)
    space = {"__name__": "__main__", "kernel": kernel}
    for _ in range(2):
        exec('@kernel("f32* x", threads=32)\ndef of_a_cell(x): pass', space)
    assert KERNELS.pop("__main___of_a_cell") is space["of_a_cell"], "a cell that is run again declares anew"


# ---- arrays with shapes ------------------------------------------------------------------------------------------


@kernel("f32[:,:] x, f32[:] row, f32* out, i32 n", threads=32)
def added(x, row, out, n):
    """out = n * x.T, with a row added to x if there is one"""
    i = cuda.grid(1)
    if i < x.size:
        r, c = i // x.shape[1], i % x.shape[1]
        v = x[r, c] * n
        if row.size:
            v += row[c]
        out[c * x.shape[0] + r] = v


X = np.arange(12, dtype=np.float32).reshape(3, 4)
PART = np.arange(60, dtype=np.float32).reshape(6, 10)[1::2, 1:9:2]


@compiled
def test_arrays_of_any_strides():
    """On the interpreter, and as the launcher packs them for a GPU; a View is what the kernel sees."""
    row = np.float32([1, 2, 3, 4])
    for x in (X, np.asfortranarray(X), PART, X[::-1, ::-1], np.broadcast_to(X[1], (3, 4))):
        for given, want in ((row, 2 * x + row), (None, 2 * x)):
            added((1,), (32,), (x.view(interpreter.Array), given, out := interpreter.empty((4, 3)), 2))
            np.testing.assert_array_equal(out, want.T)
    x, out = interpreter.array(X), interpreter.empty(4)
    with pytest.raises(StateError, match="out of bounds: ld.f32 reads 4 bytes at byte 32 of x, which has 16"):
        added((1,), (32,), (View(x[1], (2, 2), (32, 4)), None, out, 1))
    with standin.installed() as machine:
        import cupy

        x, out = cupy.asarray(PART.base.reshape(6, 10))[1::2, 1:9:2], cupy.empty((4, 3), np.float32)
        added((1,), (32,), (x, None, out, 3))
        np.testing.assert_array_equal(out.get(), 3 * PART.T)
        words = machine.launches[-1].words
        assert words[:9] == (0, 0, 12, 4, x.data.ptr, *x.shape, *x.strides) and words[9:16] == (0,) * 7
        with pytest.raises(KindError, match="toolchain_added: got ndarray, NoneType, ndarray; wants"):
            added((1,), (32,), (x, None, out))
    for arguments, message in (
        ((X[0], None, X, 1), r"toolchain_added: x is an array of 1 axes, wants f32\[:,:\]"),
        ((X.astype("f8"), None, X.copy(), 1), "x has type float64, wants elements of 4 bytes"),
    ):
        with pytest.raises(KindError, match=message):
            added((1,), (32,), arguments)


# ---- compiling ---------------------------------------------------------------------------------------------------


@compiled
def test_ptx_names_the_kernel_its_lines_and_nothing_of_the_machine(fresh):
    text = fresh().ptx()
    assert ".version 7.8" in text, "every driver of CUDA 12 reads it"
    assert ".target sm_75" in text and ".visible .entry interpreter_scale_test_0" in text and text.count(".loc") >= 4
    assert "NumbaEnv" not in text and text.count(".param .") == 3
    all_kernels()
    files = re.findall(r'\.file\s+\d+\s+"([^"]*)"', KERNELS["matmul_plain_f32"].ptx())
    assert files == ["minigrad_kernels/matmul/cuda_plain.py"]


@compiled
def test_what_the_compiler_refuses_is_said_with_the_kernel():
    @kernel("f32* x", threads=32)
    def unknown_name(x):
        x[0] = nowhere  # noqa: F821

    with pytest.raises(StateError, match="toolchain_unknown_name: Numba refuses it: (.|\n)*'nowhere' is not defined"):
        unknown_name.ptx()
    del KERNELS[unknown_name.name]
    with pytest.raises(ShapeError, match="interpreter_power_x: got sm_50, wants one of sm_75, sm_80"):
        cuda_kernels.power("x").binary("sm_50")


# ---- keeping -----------------------------------------------------------------------------------------------------


def forget(k):
    """The same kernel as a new process would see it."""
    k._binaries.clear()
    for form in ("key", "kept", "_ptx"):
        vars(k).pop(form, None)
    return k


@pytest.fixture
def no_compiler(monkeypatch):
    monkeypatch.setattr(compiler, "missing", lambda: "the package numba-cuda is not installed")


@compiled
def test_machine_code_is_kept_and_found_again(fresh, tmp_path, request, monkeypatch):
    """Damaged files are made again."""
    k = fresh()
    found = k.binary("sm_90")
    files = sorted((tmp_path / "cuda").iterdir())
    assert sorted(file.suffix for file in files) == [".cubin", ".ptx"]
    for file in files:
        content = file.read_bytes()
        for damaged in (content[: len(content) // 2], content[:-1] + bytes([content[-1] ^ 1])):
            file.write_bytes(damaged)
            assert forget(k).binary("sm_90") == found and file.read_bytes() == content
    (tmp_path / "file").write_text("in the way")
    with monkeypatch.context() as patch:
        patch.setenv("MINIGRAD_CACHE", str(tmp_path / "file"))
        assert fresh().binary("sm_90").registers > 0
    request.getfixturevalue("no_compiler")
    assert forget(k).binary("sm_90") == found, "found without a compiler"
    with pytest.raises(StateError, match=r"there is no CUDA compiler, the package numba-cuda .*\[compile\]"):
        forget(k).binary("sm_80")


@compiled
def test_an_archive_serves_where_there_is_no_compiler(fresh, tmp_path, monkeypatch, request):
    """In the package, named by MINIGRAD_PTX, or in a wheel; the same kernels make the same archive."""
    k, file, wheel = fresh(), tmp_path / "ptx.zip", tmp_path / "minigrad_engine-0.whl"
    text = k.ptx()
    for name in (file, tmp_path / "again.zip"):
        cache.pack(name, [k])
    assert (tmp_path / "again.zip").read_bytes() == file.read_bytes()
    with zipfile.ZipFile(wheel, "w") as written:
        written.writestr("minigrad_kernels/cli.py", "")
        written.write(file, cache.ARCHIVE)
    monkeypatch.setenv("MINIGRAD_CACHE", str(tmp_path / "empty"))
    monkeypatch.setattr(cache, "SHIPPED", file)
    request.getfixturevalue("no_compiler")
    for where in (None, file, wheel):
        cache._archive.cache_clear()
        monkeypatch.setenv("MINIGRAD_PTX", str(where)) if where else monkeypatch.delenv("MINIGRAD_PTX", raising=False)
        assert forget(k).ptx() == text
        vars(forget(k))["key"] = "0" * 32  # the source was changed
        with pytest.raises(compiler.NoCompilerError, match="no CUDA compiler, .*or set MINIGRAD_PTX to a wheel"):
            k.ptx()
    cache._archive.cache_clear()
    wheel.write_bytes(b"no archive")
    with pytest.raises(StateError, match="MINIGRAD_PTX=.*whl: .*; wants a wheel of minigrad-engine or its"):
        cache.load_ptx("name", "key")
    cache._archive.cache_clear()


# ---- reporting ---------------------------------------------------------------------------------------------------


@compiled
def test_problems_are_found(fresh):
    for name, problem in (
        ("spilling", r"\d+ bytes of spills"), ("with_a_stack", r"\d+ bytes of stack"),
        ("with_a_stack", r"LDL\S* in the code"), ("with_a_bare_number", r"DMUL in the code"),
        ("without_its_opcode", r"no LDG\.E\.128"),
    ):  # fmt: skip
        found = report.problems(getattr(cuda_kernels, name), "sm_90")
        assert any(re.fullmatch(problem, line) for line in found), found
    k = fresh(opcodes=("LDG.E", "STG.E"))
    found = k.binary("sm_90")
    assert report.problems(k, "sm_90") == [] and len(report.code(k, "sm_90")) > 10
    assert 0 < found.registers <= 32 and found[2:] == (0, 0, 0)
