"""The stand-in for CuPy keeps devices, streams and memory apart, captures as CUDA does, and refuses what would hang."""

import numpy as np
import pytest

from minigrad.parallel.local import run_local
from minigrad_kernels import optimizer
from minigrad_kernels.errors import StateError
from minigrad_kernels.optimizer import Adam
from tests import standin
from tests.kernels.interpreter.cuda_kernels import bias_relu
from tests.standin import OrderError
from tests.standin.graphs import GraphError


@pytest.fixture
def cupy():
    with standin.installed(devices=2):
        import cupy

        yield cupy


@pytest.fixture
def stream(cupy):
    return cupy.cuda.Stream(non_blocking=True)


@pytest.fixture
def a(cupy):
    return cupy.asarray(np.arange(1, 7, dtype=np.float32).reshape(2, 3))


def relu(x, row, out, size=None):
    """Starts a kernel itself, without the checks of its family."""
    bias_relu((1,), (256,), (x, row, out, out.size if size is None else size, row.size))


# ---- devices, streams and memory -------------------------------------------------------------------------------------


def test_arrays_work_on_their_own_device_alone(cupy, a):
    out, sums = cupy.empty((2, 3), np.float32), cupy.empty(3, np.float32)
    with cupy.cuda.Device(1):
        cupy.cuda.Device(0).synchronize()
        there = cupy.asarray(a)
        assert (there + 1).device == cupy.cuda.Device(1)
        for use in (
            lambda: a + 1, lambda: a.sum(), lambda: a[a > 1], lambda: there + a, lambda: a.fill(0), lambda: a.copy(),
            lambda: there.__setitem__(0, a[0]), lambda: cupy.matmul(a, there.T), lambda: cupy.stack([there, a]),
        ):  # fmt: skip
            with pytest.raises(ValueError, match="array device = 0 while current = 1"):
                use()
        with pytest.raises(ValueError, match="x lies on device 0, the current device is 1"):
            relu(a, sums, out)
        with cupy.cuda.Device(0):
            stream = cupy.cuda.Stream()
        with pytest.raises(RuntimeError, match="not created on the current device"):
            stream.use()


def test_streams_that_do_not_wait_are_found(cupy):
    waits = (
        lambda stream: stream.wait_event(cupy.cuda.get_current_stream().record()),
        lambda stream: cupy.cuda.get_current_stream().synchronize(),
        lambda stream: cupy.cuda.Device().synchronize(),
    )
    kept = [cupy.ones(8, np.float32) for _ in waits]  # none is given back while a stream uses it
    for wait, x in zip(waits, kept, strict=True):
        for use in (lambda x: x.sum(), lambda x: x.fill(0)):
            x.fill(1)
            stream = cupy.cuda.Stream(non_blocking=True)
            with stream, pytest.raises(OrderError, match="fill on stream 0 of device 0 wrote"):
                use(x)
            wait(stream)
            with stream:
                use(x)
            stream.synchronize()
    with cupy.cuda.Stream():  # which by itself waits for the default one
        x.sum()


def test_kernels_and_memory_take_part_in_the_order_of_streams(cupy, stream, a):
    row, out = cupy.ones(3, np.float32), cupy.empty((2, 3), np.float32)
    relu(a, row, out)
    with stream, pytest.raises(OrderError, match="add on stream .* reads memory that interpreter_bias_relu .* wrote"):
        out + 1
    x = cupy.ones(8, np.float32)
    stream.wait_event(cupy.cuda.Stream.null.record())
    with stream:
        relu(out, row, cupy.empty((2, 3), np.float32))
        x.sum()
    del x
    with pytest.raises(OrderError, match=r"sum \(before it was given back\) on stream"):
        cupy.ones(8, np.float32)


def test_faults_are_raised(cupy, a):
    row, out, whole = cupy.ones(3, np.float32), cupy.empty((2, 3), np.float32), cupy.ones(64, np.float32)
    for x, to, size, message in (
        (cupy.empty((2, 3), np.float32), out, 6, "unwritten read: .* 24 that nobody wrote"),
        (a, whole[3:5], 6, "out of bounds: .* byte 8 of out, which has 8"),
        (a, cupy.empty(0), 1, "a null pointer"),
    ):
        with pytest.raises(StateError, match=message):
            relu(x, row, to, size)


def test_addresses_in_tables_are_reached_and_lie_on_the_device(cupy):
    hyper, makes = np.zeros(len(Adam)), (cupy.ones, cupy.ones, cupy.zeros, cupy.zeros)
    state = [[make(5, np.float32)] for make in makes]
    hyper[[Adam.RATE, Adam.BETA1, Adam.BETA2, Adam.EPS, Adam.STEP]] = 0.1, 0.9, 0.999, 1e-8, 1
    optimizer.adam(*state, None, hyper)
    np.testing.assert_allclose(state[0][0].get(), 0.9, rtol=1e-6)
    with cupy.cuda.Device(1):
        state[1][0] = cupy.ones(5, np.float32)
    with pytest.raises(ValueError, match="lies on device 1, the current device is 0"):
        optimizer.adam(*state, None, hyper)


# ---- graphs ----------------------------------------------------------------------------------------------------------

FORBIDDEN = {
    "item": lambda cupy, x, s: x.sum().item(),
    "get to pageable memory": lambda cupy, x, s: x.get(s, out=np.empty(3, np.float32), blocking=False),
    "asarray": lambda cupy, x, s: cupy.asarray(np.ones(3)),
    "a mask": lambda cupy, x, s: x[x > 0],
    "a list": lambda cupy, x, s: x[[0, 1]],
    "the stream": lambda cupy, x, s: s.synchronize(),
    "whether an event is done": lambda cupy, x, s: s.record().done,
}


def captured(stream, function):
    stream.begin_capture()
    function()
    return stream.end_capture()


def test_what_waits_spoils_the_capture(cupy, stream):
    with stream:
        for forbidden in FORBIDDEN.values():
            x = cupy.ones(3, np.float32)
            stream.begin_capture()
            with pytest.raises(RuntimeError, match="StreamCaptureUnsupported|CapturedEvent"):
                forbidden(cupy, x, stream)
            with pytest.raises(RuntimeError, match="StreamCaptureInvalidated"):
                stream.end_capture()
            assert not stream.is_capturing() and x.tolist() == [1, 1, 1]
        y = cupy.ones((2, 2), np.float32)
        stream.begin_capture()
        with pytest.raises(NotImplementedError, match="cuBLAS"):
            y @ y


def test_other_streams_join_by_events_and_must_come_back(cupy, stream):
    def fork(come_back):
        beside.wait_event(stream.record())
        with beside:
            cupy.multiply(x[0], 3, out=x[0])
        if come_back:
            stream.wait_event(beside.record())
        cupy.add(x[0] if come_back else y, 1, out=y)

    with stream:
        beside, x, y = cupy.cuda.Stream(non_blocking=True), [cupy.ones(4, np.float32)], cupy.ones(4, np.float32)
        with pytest.raises(RuntimeError, match="StreamCaptureUnjoined"):
            captured(stream, lambda: fork(False))
        found = captured(stream, lambda: fork(True))
        found.launch(stream)
        found.launch(stream)
        assert y.tolist() == [10] * 4
        found.launch(stream)
        with pytest.raises(OrderError):
            found.launch(beside)
        x.clear()
        with pytest.raises(GraphError, match="given back"):
            found.launch(stream)


# ---- NCCL ------------------------------------------------------------------------------------------------------------

WRONG = {  # what is wrong with a call: (the call, the error, what it says)
    "size": (lambda r, x, other, s: r.allReduce(x, x, 9, 7, 0, s), ValueError, "36 bytes at .* no such memory is"),
    "overlap": (lambda r, x, other, s: r.allReduce(x, x + 4, 7, 7, 0, s), ValueError, "receives in, in part"),
    "device": (lambda r, x, other, s: r.allReduce(x, other, 8, 7, 0, s), ValueError, "of memory of device"),
    "stream": (lambda r, x, other, s: r.allReduce(x, x, 8, 7, 0, s + 1), ValueError, "which is none of device"),
    "no group": (lambda r, x, other, s: r.send(x, 8, 7, 1, s), ValueError, "outside of a group"),
    "order": (lambda r, x, other, s: r.allReduce(x, x, 8, 7, 0, 0), OrderError, "does not wait for it"),
    "others": (
        lambda r, x, other, s: r.allReduce(x, x, 8 - r.rank_id(), 7, 0, s),
        ValueError,
        "ranks call differently",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_collectives_that_would_hang_or_write_where_they_should_not(cupy, name):
    from cupy.cuda import nccl

    call, error, message = WRONG[name]
    key = nccl.get_unique_id()

    def run(world):
        with cupy.cuda.Device(1 - world.rank):
            other = cupy.zeros(8, np.float32)
        with cupy.cuda.Device(world.rank), cupy.cuda.Stream(non_blocking=True) as stream:
            x, rank = cupy.zeros(8, np.float32), nccl.NcclCommunicator(2, key, world.rank)
            call(rank, x.data.ptr, other.data.ptr, stream.ptr)

    with pytest.raises(error, match=message):
        run_local(run, 2)
