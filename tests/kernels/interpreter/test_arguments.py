"""What kernels are given to work on by the interpreter: arrays of its device, addresses, numbers; what it refuses."""

import gc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from minigrad_kernels.errors import KindError, ShapeError, StateError
from minigrad_kernels.interpreter import Array, address, array, empty, interpret

from .ptx import kernel


def test_pointers_that_kernels_find_in_memory():
    arrays = [np.arange(i, i + 4, dtype=np.float32) for i in (0, 10)]
    whole = np.zeros(12, np.float32)
    arrays.append(whole[4:8])
    table = np.array([address(x) for x in arrays], np.uint64)
    body = """
    mov.u32 %r30, %tid.x; mov.u32 %r31, %ctaid.x; mad.wide.u32 %rd1, %r31, 8, %rd0; ld.global.u64 %rd2, [%rd1];
    mad.wide.u32 %rd3, %r30, 4, %rd2; ld.global.f32 %f1, [%rd3]; add.f32 %f1, %f1, 0f3F800000;
    st.global.f32 [%rd3], %f1;
    """
    assert not interpret(kernel(body, "u64"), (3,), (4,), (table,)).faults
    assert arrays[0].tolist() == [1, 2, 3, 4] and arrays[1].tolist() == [11, 12, 13, 14]
    assert whole.tolist() == [0] * 4 + [1] * 4 + [0] * 4


def test_addresses_are_those_of_the_memory():
    x = np.zeros((4, 6), np.float32)
    assert address(x[1:, 2:]) - address(x) == 32 and address(x.T) == address(x) and address(x[::-1]) == address(x) + 72
    assert address(x) % 4096 == 0
    first = address(np.zeros(3))
    gc.collect()
    assert address(np.zeros(3)) != first
    with pytest.raises(KindError, match="address: got list, wants a NumPy array"):
        address([1, 2])


def test_arrays_of_the_device():
    x = empty((3, 4))
    assert type(x) is Array and np.isnan(x).all() and np.isnan(empty(3, np.float64)).all()
    assert type(x[1:].T.reshape(-1)) is Array and type(x + 1) is Array and type(array([1, 2])) is Array
    y = array(np.arange(3))
    y += 1
    assert type(y) is Array and y.tolist() == [1, 2, 3]
    assert np.isnan(empty((), np.float16)) and empty((0, 3)).size == 0


class Named:
    name, parameters = "scale", (("x", "f32*"), ("n", "i32"), ("a", "f32"))

    def ptx(self):
        return kernel("ld.global.f32 %f10, [%rd0]; mul.f32 %f10, %f10, %f2; st.global.f32 [%rd0], %f10;", "u64 u32 f32",
                      attributes=".maxntid 8, 2, 1")  # fmt: skip


def test_a_kernel_that_names_its_parameters():
    x = np.ones(1, np.float32)
    report = interpret(Named(), (1,), 1, (x, 1, 3))
    assert report.outputs["x"] is x and x[0] == 3
    assert report.counts.bytes_loaded["x"] == 4
    for arguments, error, message in (
        ((x, 1), KindError, "scale: got 2 arguments, wants 3: f32. x, i32 n, f32 a"),
        ((x, x, 1.0), KindError, "scale: n is an array, wants a number"),
        ((x, 1.5, 1.0), KindError, "scale: n is 1.5 .float., wants a number .i32."),
        ((x, 1 << 31, 1.0), ShapeError, "scale: n is 2147483648, which does not fit i32"),
        ((x.astype("f8"), 1, 1.0), KindError, "scale: x has type float64, wants elements of 4 bytes"),
        ((x.astype(">f4"), 1, 1.0), KindError, "scale: x has type >f4, wants elements of 4 bytes"),
        ((2.5, 1, 1.0), KindError, "scale: x is 2.5 .float., wants an array or an address"),
        ((None, 1, 1.0), KindError, "scale: x is None .NoneType., wants an array or an address"),
        ((x, 1, -1e39), ShapeError, r"scale: a is -1e\+39, which does not fit f32"),
        ((x, 1, 10**400), ShapeError, "scale: a is 10{19}, which does not fit f32"),
    ):
        with pytest.raises(error, match=message):
            interpret(Named(), (1,), (1,), arguments)
    with pytest.raises(ShapeError, match="has 17 threads, the kernel is compiled for at most 16"):
        interpret(Named(), (1,), (17,), (x, 1, 3))
    with pytest.raises(ShapeError, match="has 4096 threads, the kernel is compiled for at most 1024"):
        interpret(kernel("", ""), (1,), (64, 64), ())
    with pytest.raises(ShapeError, match="grid is .0,., wants sizes from 1"):
        interpret(Named(), (0,), (1,), (x, 1, 3))
    with pytest.raises(KindError, match="block is .1.5,., wants one to three whole numbers"):
        interpret(Named(), (1,), (1.5,), (x, 1, 3))
    with pytest.raises(ShapeError, match="shared is 300000"):
        interpret(Named(), (1,), (1,), (x, 1, 3), shared=300000)


# ---- what is refused ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line, message",
    [
        ("frobnicate.b32 %r1, %r2;", "is an opcode that is not known"),
        ("add.strange.u32 %r1, %r2, %r3;", "has the modifier .strange, which is not known"),
        ("add.u32 %r1, %r2, somewhere;", "has the operand somewhere, which is not known"),
        ("ld.global.odd.u32 %r1, [%rd0];", "has the modifier .odd, which is not known"),
        ("add.rz.f64 %fd1, %fd2, %fd3;", "rounds with .rz, which is known for f32 alone"),
        ("add.u64 %r1, %rd2, %rd3;", "writes 8 bytes to a register of 4"),
        ("ld.shared::cluster.u32 %r1, [%r2];", "has the modifier .shared::cluster, which is not known"),
        ("prmt.b32.f4e %r1, %r2, %r3, %r4;", "has the modifier .f4e, which is not known"),
        ("cvt.rn.f32.f64 %f1;", "has 0 sources, wants 1"),
        ("st.global.u32 [%rd0];", "has a form that is not known"),
        ("shfl.idx.b32 %r1, %r2, 0, 31;", "lacks .sync"),
        ("barrier.cluster.arrive;", "is a barrier that is not known"),
        ("cp.async.bulk.commit_group;", "is a copy that is not known"),
        ("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%r1}, {%r2}, {%r3}, {%r4};", "has a form that is not known"),
        ("trap;", "was executed by thread"),
    ],
)
def test_what_is_not_known_is_named_with_its_line(line, message):
    text = kernel(line)
    with pytest.raises(StateError, match=message) as caught:
        interpret(text, (1,), (1,), ())
    number = next(i for i, row in enumerate(text.splitlines(), 1) if line in row)
    assert line.rstrip(";") in str(caught.value) and f"PTX:{number}" in str(caught.value)


def test_threads_do_not_disturb_each_other():
    text = kernel("ld.global.f32 %f1, [%rd0]; add.f32 %f1, %f1, %f1; st.global.f32 [%rd0], %f1;", "u64")

    def double(i):
        x = np.full(1, i, np.float32)
        for _ in range(5):
            assert not interpret(text, (1,), (1,), (x,)).faults
        return x[0]

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(double, range(40))) == [32 * i for i in range(40)]


def test_endless_loops_end():
    text = kernel("AGAIN: add.u32 %r1, %r1, 1; bra AGAIN;")
    with pytest.raises(StateError, match="is there an endless loop") as caught:
        interpret(text, (1,), (32,), (), budget=10_000)
    assert "add.u32 %r1" in str(caught.value)
