"""How CUDA kernels are declared, compiled, kept on disk and reported on. Nothing here needs a GPU."""

import ast
import json
import re
import subprocess
import sys
import threading

import numpy as np
import pytest

from minigrad_kernels.errors import KindError, ShapeError, StateError
from minigrad_kernels.toolchain.cuda import (
    KERNELS,
    cache,
    compiler,
    cuda,
    f32,
    i32,
    kernel,
    load4,
    report,
    store4,
    unroll,
)
from minigrad_kernels.toolchain.cuda.kernel import all_kernels

from . import cuda_kernels

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
    assert re.fullmatch(r"<kernel tests_scale_\w+\(f32\* x, f32\* out, i32 n\)>", repr(k))
    assert KERNELS[k.name] is k and k.__doc__ == "out = factor * x"
    assert fresh(lowest="sm_90a").architectures == ("sm_90a",), "newer ones lack what it has"


@pytest.mark.parametrize("signature", ["f32*x", "float x", "f32* x,", "f32 * x", "f32** x", ""])
def test_refuses_a_signature_that_it_cannot_read(signature):
    with pytest.raises(KindError, match=r"wants parts such as 'f32\* x' or 'i32 n'"):
        kernel(signature, threads=32, variant="refused")(lambda x: None)


def test_refuses_a_second_kernel_of_the_same_name(fresh):
    name = fresh().name.removeprefix("tests_scale_")
    with pytest.raises(StateError, match="there already is one called tests_scale_test_0"):
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
    known = cache._file
    monkeypatch.setattr(cache, "_file", lambda path: known(path) + "#")
    assert key(2) != base, "the content of the files"


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
    text = fresh().ptx("sm_80")
    assert ".target sm_80" in text and ".visible .entry tests_scale_test_0" in text
    assert "NumbaEnv" not in text and text.count(".param .") == 3
    from minigrad_kernels.matmul import cuda as family

    files = re.findall(r'\.file\s+\d+\s+"([^"]*)"', family.plain.ptx("sm_80"))
    assert files == ["minigrad_kernels/matmul/cuda.py"]


@compiled
def test_loads_do_not_wait_for_stores(fresh):
    """The pointers are promised not to overlap, so four copies are four loads, then four stores."""
    code = [opcode[:3] for opcode in report.code(cuda_kernels.four_copies, "sm_80")]
    assert [opcode for opcode in code if opcode in ("LDG", "STG")] == ["LDG"] * 4 + ["STG"] * 4


@compiled
@pytest.mark.parametrize("count, multiplications", [(0, 12), (1, 1), (4, 4)])
def test_unroll(count, multiplications):
    text = cuda_kernels.power(count).ptx("sm_80")
    assert len(re.findall(r"fma\.rn\.f32", text)) == multiplications
    assert "minigrad.unroll" not in text


@compiled
def test_the_compiler_is_told_lines_but_not_where_variables_live(fresh):
    """On the latter it now and then loses a label, or finds a symbol with characters that it does not support."""
    k = fresh()
    (module,) = k._modules
    assert 'call void @"llvm.dbg.' not in module and "!DILocation(" in module
    assert k.ptx("sm_80").count(".loc") >= 4


@compiled
def test_what_the_compiler_refuses_is_said_with_the_kernel():
    with pytest.raises(StateError, match="tests_too_old: the assembler refuses it for sm_75: (.|\n)*cp.async"):
        cuda_kernels.too_old.binary("sm_75")
    with pytest.raises(ShapeError, match="tests_power_x: got sm_50, wants one of sm_75, sm_80"):
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
    k._ptx.clear()
    return k


@pytest.fixture
def no_compiler(monkeypatch):
    monkeypatch.setattr(compiler, "missing", lambda: "the package numba-cuda is not installed")


@compiled
def test_machine_code_is_kept_and_found_again(fresh, tmp_path, request):
    k = fresh()
    first = k.binary("sm_90")
    assert sorted(file.suffix for file in (tmp_path / "cuda").iterdir()) == [".cubin", ".json"]
    request.getfixturevalue("no_compiler")
    assert forget(k).binary("sm_90") == first, "found without a compiler"
    with pytest.raises(StateError, match=r"there is no CUDA compiler, the package numba-cuda .*engine\[compile"):
        forget(k).binary("sm_80")


@compiled
@pytest.mark.parametrize("damage", ["cut", "flipped", "gone", "no json"])
def test_damaged_entries_are_compiled_again(fresh, tmp_path, damage):
    k = fresh()
    first = k.binary("sm_90")
    (code,), (about,) = (tmp_path / "cuda").glob("*.cubin"), (tmp_path / "cuda").glob("*.json")
    image = code.read_bytes()
    if damage == "cut":
        code.write_bytes(image[: len(image) // 2])
    elif damage == "flipped":
        code.write_bytes(image[:-1] + bytes([image[-1] ^ 1]))
    elif damage == "gone":
        code.unlink()
    else:
        about.write_text(json.dumps({"image": 3}))
    assert forget(k).binary("sm_90") == first
    assert code.read_bytes() == image, "and kept again"


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
    monkeypatch.setattr(cache.os, "replace", full)
    cache.save("name", "sm_90", "key", compiler.Binary(b"code", 8, 0, 0, 0))
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


@compiled
def test_shipped_ptx_serves_where_there_is_no_compiler(fresh, tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "SHIPPED", tmp_path / "ptx")
    k = fresh()
    assert cache.ship(k) and not cache.ship(k), "written once, then up to date"
    text = k.ptx("sm_75")
    monkeypatch.setattr(compiler, "missing", lambda: "the package numba-cuda is not installed")
    assert forget(k).ptx() == text
    vars(k)["key"] = "0" * 32  # the source was changed
    with pytest.raises(StateError, match="there is no CUDA compiler"):
        forget(k).ptx()


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
    found = report.resources(k, "sm_90")
    assert report.problems(k, "sm_90") == []
    assert 0 < found.registers <= 32 and found[1:4] == (0, 0, 0)
    assert found.opcodes.total() == len(report.code(k, "sm_90")) > 10


@compiled
def test_innermost_loops():
    (loop,) = report.loops(cuda_kernels.power(3), "sm_90")
    assert loop["FFMA"] == 3, "twelve steps, unrolled by three"
    assert report.loops(cuda_kernels.four_copies, "sm_90") == []


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
    assert not any(name.startswith("tests_") for name in names)


def test_words_of_kernels_exist():
    assert compiler.missing() or hasattr(cuda, "threadIdx")
    assert all(callable(word) for word in (load4, store4, unroll, f32, i32, np.float32))
