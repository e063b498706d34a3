"""The stand-in for CuPy keeps devices, streams and memory apart as a machine does, runs kernels, and counts."""

import sys
import threading

import numpy as np
import pytest

from minigrad_kernels import optimizer
from minigrad_kernels.errors import StateError
from minigrad_kernels.optimizer import Adam
from tests import standin
from tests.kernels.interpreter.cuda_kernels import bias_relu
from tests.standin import OrderError


@pytest.fixture
def machine():
    with standin.installed(devices=2) as found:
        yield found


@pytest.fixture
def cupy(machine):
    import cupy

    return cupy


@pytest.fixture
def a(cupy):
    return cupy.asarray(np.arange(1, 7, dtype=np.float32).reshape(2, 3))


def relu(x, row, out, size=None):
    """Starts a kernel itself, without the checks of its family."""
    bias_relu((1,), (256,), (x, row, out, out.size if size is None else size, row.size))


# ---- devices, streams and memory -------------------------------------------------------------------------------------


def test_arrays_work_on_their_own_device_alone(machine, cupy, a):
    out, sums, threads = cupy.empty((2, 3), np.float32), cupy.empty(3, np.float32), []
    with cupy.cuda.Device(1):
        cupy.cuda.Device(0).synchronize()
        there = cupy.asarray(a)
        assert int(there.device) == 1 and (there + 1).device == cupy.cuda.Device(1)
        for use in (
            lambda: a + 1, lambda: cupy.sum(a), lambda: a[a > 1], lambda: there + a, lambda: a.fill(0),
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
        thread = threading.Thread(target=lambda: threads.append(cupy.cuda.runtime.getDevice()))
        thread.start()
        thread.join()
    assert threads == [0] and machine.copied["between devices"] == a.nbytes


WAITS = {
    "event": lambda cupy, stream: stream.wait_event(cupy.cuda.get_current_stream().record()),
    "host": lambda cupy, stream: cupy.cuda.get_current_stream().synchronize(),
    "device": lambda cupy, stream: cupy.cuda.Device().synchronize(),
}


@pytest.mark.parametrize("use", [lambda x: x.sum(), lambda x: x.fill(0)], ids=["read", "written"])
def test_streams_that_do_not_wait_are_found(cupy, use):
    x, stream = cupy.ones(8, np.float32), cupy.cuda.Stream(non_blocking=True)
    with stream, pytest.raises(OrderError, match="fill on stream 0 of device 0 wrote, and does not wait for it"):
        use(x)
    with cupy.cuda.Stream():  # which by itself waits for the default one
        use(x)
    arrays = [cupy.ones(8, np.float32) for _ in WAITS]
    for wait, y in zip(WAITS.values(), arrays, strict=True):
        stream = cupy.cuda.Stream(non_blocking=True)
        wait(cupy, stream)
        with stream:
            use(y)


def test_kernels_and_memory_take_part_in_the_order_of_streams(machine, cupy, a):
    row, out, stream = cupy.ones(3, np.float32), cupy.empty((2, 3), np.float32), cupy.cuda.Stream(non_blocking=True)
    relu(a, row, out)
    with stream, pytest.raises(OrderError, match="add on stream .* reads memory that interpreter_bias_relu .* wrote"):
        out + 1
    stream.wait_event(cupy.cuda.Stream.null.record())
    with stream:
        assert (out + row).shape == (2, 3)
        relu(out, row, cupy.empty((2, 3), np.float32))
    assert machine.launches[-1].stream == stream.ptr
    x = cupy.ones(8, np.float32)
    stream.wait_event(cupy.cuda.Stream.null.record())
    with stream:
        x.sum()
    del x
    with pytest.raises(OrderError, match=r"sum \(before it was given back\) on stream"):
        cupy.ones(8, np.float32)


def test_what_the_host_does_is_counted(machine, cupy, a):
    machine.synchronisations.clear(), machine.copied.clear()
    a[0, 0].item(), float(a.sum()), a.get(), cupy.cuda.Device().synchronize()
    assert machine.synchronisations == {"item": 1, "float": 1, "get": 1, "Device.synchronize": 1}
    a.set(np.ones((2, 3), np.float32)), cupy.matmul(a, a.T), a.dot(a.T), a @ a.T, cupy.linalg.norm(a)
    assert machine.copied == {"to device": 24, "to host": 32}
    assert {name: n for name, n in machine.library.items() if n} == {"matmul": 2, "dot": 1, "linalg.norm": 1}


# ---- launches --------------------------------------------------------------------------------------------------------


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


def test_without_running_launches_are_noted_alone():
    with standin.installed(execute=False, capability="130") as machine:
        import cupy

        relu(cupy.ones((2, 3), np.float32), cupy.ones(3, np.float32), out := cupy.empty((2, 3), np.float32))
        (launch,) = machine.launches
        assert (launch.grid, launch.block, launch.words[2:]) == ((1, 1, 1), (256, 1, 1), (out.data.ptr, 6, 3))
        assert b".entry interpreter_bias_relu" in machine.images[0]
    with pytest.raises(RuntimeError, match="not installed any more"):
        out + 1
    assert not hasattr(sys.modules.get("cupy"), "bogus") and "minigrad_kernels.toolchain.cuda.launch" not in sys.modules
