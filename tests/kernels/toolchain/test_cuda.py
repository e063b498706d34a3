"""How CUDA kernels are declared, compiled, kept on disk and reported on. Nothing here needs a GPU."""

import ast
import os
import re
import subprocess
import sys
import threading
import zipfile

import numpy as np
import pytest

from minigrad_kernels.errors import KindError, ShapeError, StateError
from minigrad_kernels.toolchain.cuda import (
    KERNELS,
    cache,
    compiler,
    kernel,
    keys,
    report,
)
from minigrad_kernels.toolchain.cuda.kernel import all_kernels
from tests.kernels.interpreter import cuda_kernels

compiled = pytest.mark.skipif(compiler.missing() is not None, reason=f"compiles: {compiler.missing()}")


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    """A kernel that nobody has compiled yet, and an empty cache."""
    monkeypatch.setenv("MINIGRAD_CACHE", str(tmp_path))
    made = iter(range(100))

    def declare(factor=2, **options):
        number = next(made)
        name = f"test_{number}_{id(tmp_path)}"
        return cuda_kernels.scale(factor, name, **options)

    yield declare
    for name in [name for name in KERNELS if str(id(tmp_path)) in name]:
        del KERNELS[name]


# ---- declaring ---------------------------------------------------------------------------------------------------


def test_a_kernel_knows_what_it_was_declared_with(fresh):
    k = fresh(threads=128, lowest="sm_90")
    assert k.parameters == (("x", "f32*"), ("out", "f32*"), ("n", "i32")) and k.threads == 128
    assert k.architectures == ("sm_90", "sm_100", "sm_120")
    assert re.fullmatch(r"<kernel interpreter_scale_\w+\(f32\* x, f32\* out, i32 n\)>", repr(k))
    assert KERNELS[k.name] is k and k.__doc__ == "out = factor * x"
    assert fresh(lowest="sm_90a").architectures == ("sm_90a",), "newer ones lack what it has"


@pytest.mark.parametrize(
    "signature", ["f32*x", "float x", "f32* x,", "f32 * x", "f32** x", "f32[] x", "f32[:, :] x", "f32[3] x", ""]
)
def test_refuses_a_signature_that_it_cannot_read(signature):
    with pytest.raises(KindError, match=r"wants parts such as 'f32\[:,:\] x' or 'i32 n'"):
        kernel(signature, threads=32, variant="refused")(lambda x: None)


def test_refuses_a_second_kernel_of_the_same_name(fresh):
    name = fresh().name.removeprefix("interpreter_scale_")
    with pytest.raises(StateError, match="there already is one called interpreter_scale_test_0"):
        cuda_kernels.scale(3, name)


# ---- keys --------------------------------------------------------------------------------------------------------


def test_the_key_follows_everything_that_shapes_the_code(fresh, monkeypatch):
    def key(*options, **named):
        made = cuda_kernels.scale(*options, "key", **named)
        del KERNELS[made.name]
        return made.key

    base = key(2)
    assert key(2) == base
    assert key(3) != base, "a constant of the closure"
    assert key(2, threads=128) != base, "an option"
    monkeypatch.setattr(cuda_kernels, "SHIFT", 1)
    assert key(2) != base, "a constant of the module"
    monkeypatch.undo()
    assert key(2, lowest="sm_80") != base, "the architecture"
    monkeypatch.setattr(keys, "COMPILER", keys.COMPILER[:1])
    assert key(2) != base, "the code of the compiler"


def test_constants_may_be_numbers_texts_tuples_enums_and_functions():
    used = cuda_kernels.with_constants
    assert len(used.key) == 32
    KERNELS.pop(used.name)


def test_refuses_a_constant_of_which_it_can_take_no_hash():
    with pytest.raises(KindError, match="uses TABLE, a ndarray; wants numbers, tuples, enums and device functions"):
        _ = cuda_kernels.with_an_array.key
    KERNELS.pop(cuda_kernels.with_an_array.name)


# ---- compiling ---------------------------------------------------------------------------------------------------


@compiled
def test_ptx_names_the_kernel_and_nothing_of_the_machine(fresh):
    text = fresh().ptx()
    assert ".target sm_75" in text and ".visible .entry interpreter_scale_test_0" in text
    assert "NumbaEnv" not in text and text.count(".param .") == 3
    all_kernels()
    files = re.findall(r'\.file\s+\d+\s+"([^"]*)"', KERNELS["matmul_plain_f32"].ptx())
    assert files == ["minigrad_kernels/matmul/cuda_plain.py"]


@compiled
def test_loads_do_not_wait_for_stores(fresh):
    """The pointers are promised not to overlap, so four copies are four loads, then four stores."""
    code = [opcode[:3] for opcode in report.code(cuda_kernels.four_copies, "sm_80")]
    assert [opcode for opcode in code if opcode in ("LDG", "STG")] == ["LDG"] * 4 + ["STG"] * 4


@compiled
@pytest.mark.parametrize("count, multiplications", [(0, 12), (1, 1), (4, 4)])
def test_unroll(count, multiplications):
    text = cuda_kernels.power(count).ptx()
    assert len(re.findall(r"fma\.rn\.f32", text)) == multiplications
    assert "minigrad.unroll" not in text


@compiled
def test_the_compiler_is_told_lines_but_not_where_variables_live(fresh, monkeypatch):
    """On the latter it now and then loses a label, or finds a symbol with characters that it does not support."""
    given = []
    keep = lambda *arguments: given.append(names(*arguments)) or given[-1]
    names = compiler.rename
    monkeypatch.setattr(compiler, "rename", keep)
    assert fresh().ptx().count(".loc") >= 4
    (module,) = given
    assert 'call void @"llvm.dbg.' not in module and "!DILocation(" in module


@compiled
def test_what_the_compiler_refuses_is_said_with_the_kernel():
    with pytest.raises(StateError, match="interpreter_too_old: the assembler refuses it for sm_75: (.|\n)*cp.async"):
        cuda_kernels.too_old.binary("sm_75")
    with pytest.raises(ShapeError, match="interpreter_power_x: got sm_50, wants one of sm_75, sm_80"):
        cuda_kernels.power("x").binary("sm_50")


@compiled
def test_kernels_may_be_typed_at_a_prompt():
    program = """
from minigrad_kernels.toolchain.cuda import kernel, cuda, f32
keys = []
for factor in (2, 3):
    @kernel("f32* x, f32* out, i32 n", threads=256, variant=str(factor))
    def scale(x, out, n):
        i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
        if i < n:
            out[i] = f32(factor) * x[i]
    keys.append(scale.key)
    assert ".entry" in scale.ptx()
assert keys[0] != keys[1]
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


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
def test_machine_code_is_kept_and_found_again(fresh, tmp_path, request):
    k = fresh()
    first = k.binary("sm_90")
    assert sorted(file.suffix for file in (tmp_path / "cuda").iterdir()) == [".cubin", ".ptx"]
    request.getfixturevalue("no_compiler")
    assert forget(k).binary("sm_90") == first, "found without a compiler"
    with pytest.raises(StateError, match=r"there is no CUDA compiler, the package numba-cuda .*engine\[compile"):
        forget(k).binary("sm_80")


@compiled
@pytest.mark.parametrize("kind", ["ptx", "cubin"])
@pytest.mark.parametrize("damage", ["cut", "flipped", "gone"])
def test_damaged_entries_are_compiled_again(fresh, tmp_path, damage, kind):
    k = fresh()
    first = k.binary("sm_90")
    (file,) = (tmp_path / "cuda").glob(f"*.{kind}")
    content = file.read_bytes()
    if damage == "cut":
        file.write_bytes(content[: len(content) // 2])
    elif damage == "flipped":
        file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    else:
        file.unlink()
    assert forget(k).binary("sm_90") == first
    assert file.read_bytes() == content, "and kept again"


@compiled
def test_without_a_folder_to_write_to_there_is_no_cache_and_no_error(fresh, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("MINIGRAD_CACHE", str(tmp_path / "file"))
    assert fresh().binary("sm_90").registers > 0


@compiled
def test_says_that_numpy_is_too_new(monkeypatch):
    monkeypatch.delattr(np, "row_stack")
    said = compiler.missing.__wrapped__()
    assert said == f"numba-cuda wants a numpy below 2.5, here is {np.__version__}"


def test_a_full_disk_leaves_nothing_behind(tmp_path, monkeypatch):
    def full(*_):
        raise OSError("No space left on device")

    monkeypatch.setenv("MINIGRAD_CACHE", str(tmp_path))
    monkeypatch.setattr(os, "replace", full)
    cache.save_code("name", "sm_90", "ptx", compiler.Binary(b"code", 8, 0, 0, 0))
    assert not list((tmp_path / "cuda").iterdir())


@compiled
def test_threads_compile_one_kernel_once(fresh):
    k, found = fresh(), []
    threads = [threading.Thread(target=lambda: found.append(k.binary("sm_90"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4 and all(one is found[0] for one in found)


@pytest.fixture
def archive(fresh, tmp_path, monkeypatch):
    """(a kernel, its PTX, an archive that has it, a wheel that has the archive), and an empty cache."""
    k, file, wheel = fresh(), tmp_path / "ptx.zip", tmp_path / "minigrad_engine-0.whl"
    text = k.ptx()
    cache.pack(file, [k])
    with zipfile.ZipFile(wheel, "w") as written:
        written.writestr("minigrad_kernels/cli.py", "")
        written.write(file, cache.ARCHIVE)
    monkeypatch.setenv("MINIGRAD_CACHE", str(tmp_path / "empty"))
    cache._archive.cache_clear()
    yield k, text, file, wheel
    cache._archive.cache_clear()


@compiled
@pytest.mark.parametrize("where", ["package", "archive", "wheel"])
def test_an_archive_serves_where_there_is_no_compiler(archive, monkeypatch, no_compiler, where):
    k, text, file, wheel = archive
    if where == "package":
        monkeypatch.delenv("MINIGRAD_PTX", raising=False)
        monkeypatch.setattr(cache, "SHIPPED", file)
    else:
        monkeypatch.setenv("MINIGRAD_PTX", str(file if where == "archive" else wheel))
    assert forget(k).ptx() == text
    vars(forget(k))["key"] = "0" * 32  # the source was changed
    with pytest.raises(
        compiler.NoCompilerError, match="there is no CUDA compiler, .*or set MINIGRAD_PTX to a wheel"
    ) as said:
        k.ptx()
    assert "\n" not in str(said.value)


@compiled
def test_the_same_kernels_make_the_same_archive(archive, tmp_path):
    k, _, file, _ = archive
    cache.pack(tmp_path / "again.zip", [k])
    assert (tmp_path / "again.zip").read_bytes() == file.read_bytes()


@pytest.mark.parametrize("content", [None, b"no archive"])
def test_refuses_what_is_no_archive(tmp_path, monkeypatch, content):
    if content:
        (tmp_path / "file").write_bytes(content)
    monkeypatch.setenv("MINIGRAD_PTX", str(tmp_path / "file"))
    with pytest.raises(StateError, match="MINIGRAD_PTX=.*file: .*; wants a wheel of minigrad-engine or its"):
        cache.load_ptx("name", "key")


# ---- reporting ---------------------------------------------------------------------------------------------------


@compiled
@pytest.mark.parametrize(
    "name, problem",
    [
        ("spilling", r"\d+ bytes of spills"),
        ("with_a_stack", r"\d+ bytes of stack"),
        ("with_a_stack", r"LDL\S* in the code"),
        ("with_a_bare_number", r"DMUL in the code"),
        ("without_its_opcode", r"no LDG\.E\.128"),
    ],
)
def test_problems_are_found(name, problem):
    found = report.problems(getattr(cuda_kernels, name), "sm_90")
    assert any(re.fullmatch(problem, line) for line in found), found


@compiled
def test_a_clean_kernel_has_no_problems(fresh):
    k = fresh(opcodes=("LDG.E", "STG.E"))
    found = k.binary("sm_90")
    assert report.problems(k, "sm_90") == []
    assert 0 < found.registers <= 32 and found[2:] == (0, 0, 0)
    assert len(report.code(k, "sm_90")) > 10


@compiled
def test_innermost_loops():
    k = cuda_kernels.power(3)
    (loop,) = report.loops(k, "sm_90")
    assert loop["FFMA"] == 3, "twelve steps, unrolled by three"
    assert report.inner_loop(k, "sm_90") == loop
    assert report.loops(cuda_kernels.four_copies, "sm_90") == []
    assert report.inner_loop(cuda_kernels.four_copies, "sm_90").total() == 0


def test_bytes_that_a_thread_moves():
    found = {"LDG.E.128.CONSTANT": 2, "STS.64": 1, "LDS": 3, "LDG.E.U16": 1, "LDSM.16.MT88.4": 1, "STG.E.U8": 5}
    found |= {"LDGSTS.E.BYPASS.128.ZFILL": 1, "FFMA": 9, "UTMALDG.2D": 1, "LDC.64": 1}
    assert report.bytes_moved(found) == 2 * 16 + 8 + 3 * 4 + 2 + 16 + 5 + 16


WITHOUT_COMPILER = """
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "numba_cuda" else find(name, *rest)
from minigrad_kernels.toolchain.cuda.kernel import all_kernels
print({k.name: k.key for k in all_kernels()})
"""


def test_keys_are_the_same_where_there_is_no_compiler():
    done = subprocess.run([sys.executable, "-W", "error", "-c", WITHOUT_COMPILER], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert ast.literal_eval(done.stdout) == {k.name: k.key for k in all_kernels()}


# ---- running -----------------------------------------------------------------------------------------------------


def test_kernels_of_the_package_are_found():
    names = [k.name for k in all_kernels()]
    assert names == sorted(names) and "matmul_plain_f32" in names
    assert not any(name.startswith(("toolchain_", "interpreter_")) for name in names)
