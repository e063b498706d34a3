"""The stand-in for CuPy keeps devices, streams and memory apart as a machine does, runs kernels, and counts."""

import sys
import threading

import numpy as np
import pytest

from minigrad_kernels import interpreter, matmul, optimizer
from minigrad_kernels.errors import KindError, StateError
from minigrad_kernels.optimizer import Adam
from tests import standin
from tests.kernels.interpreter.cuda_kernels import bias_relu
from tests.standin import OrderError, rows
from tests.standin.rows import HOST


@pytest.fixture
def machine():
    with standin.installed(devices=2) as found:
        yield found


@pytest.fixture
def space(machine):
    return rows.space(machine)


def relu(x, row, out, size=None):
    """Starts a kernel itself, without the checks of its family."""
    bias_relu((1,), (256,), (x, row, out, out.size if size is None else size, row.size))


# ---- devices, streams and memory -------------------------------------------------------------------------------------


def test_arrays_work_on_their_own_device_alone(space):
    cupy, a = space["cupy"], space["a"]
    out, sums = cupy.empty((2, 3), np.float32), cupy.empty(3, np.float32)
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
        assert a.get().shape == (2, 3) and a[0, 1:].shape == (2,), "these look, and compute nothing"
        assert a.astype(np.float32, copy=False) is a and cupy.ascontiguousarray(a) is a
    assert space["m"].copied["between devices"] == a.nbytes


def test_the_current_device_is_that_of_the_thread(space):
    cupy, found = space["cupy"], []
    with cupy.cuda.Device(1):
        thread = threading.Thread(target=lambda: found.append(cupy.cuda.runtime.getDevice()))
        thread.start()
        thread.join()
        assert found == [0] and cupy.cuda.runtime.getDevice() == 1
    assert cupy.cuda.runtime.getDevice() == 0


def test_streams(space, machine):
    cupy = space["cupy"]
    stream = cupy.cuda.Stream(non_blocking=True)
    assert cupy.cuda.get_current_stream() == cupy.cuda.Stream.null and cupy.cuda.Stream.null.ptr == 0
    stream.wait_event(cupy.cuda.Stream.null.record())
    with stream:
        assert cupy.cuda.get_current_stream().ptr == stream.ptr
        relu(space["a"], cupy.zeros(3, np.float32), cupy.empty((2, 3), np.float32))
    assert machine.launches[-1].stream == stream.ptr
    with cupy.cuda.Device(1), pytest.raises(RuntimeError, match="not created on the current device"):
        stream.use()


def use_on(stream, wait, x, change):
    """Use an array on a stream after a way of waiting for the default one."""
    import cupy

    waits = {
        "nothing": lambda: None,
        "event": lambda: stream.wait_event(cupy.cuda.get_current_stream().record()),
        "host": lambda: cupy.cuda.get_current_stream().synchronize(),
        "device": lambda: cupy.cuda.Device().synchronize(),
    }
    waits[wait]()
    with stream:
        if change:
            x += 1
        else:
            x.sum()


@pytest.mark.parametrize("wait", ["nothing", "event", "host", "device"])
@pytest.mark.parametrize("change", [False, True], ids=["read", "written"])
def test_streams_that_do_not_wait_are_found(space, wait, change):
    cupy, x = space["cupy"], space["cupy"].ones(8, np.float32)
    stream = cupy.cuda.Stream(non_blocking=True)
    if wait != "nothing":
        use_on(stream, wait, x, change)
        return
    with pytest.raises(OrderError, match="ones|fill.* on stream 0 of device 0 wrote, and does not wait for it"):
        use_on(stream, wait, x, change)
    use_on(cupy.cuda.Stream(), wait, x, change)  # which by itself waits for the default one


def test_kernels_take_part_in_the_order_of_streams(space):
    cupy, a = space["cupy"], space["a"]
    row, out, stream = cupy.ones(3, np.float32), cupy.empty((2, 3), np.float32), cupy.cuda.Stream(non_blocking=True)
    relu(a, row, out)
    with stream, pytest.raises(OrderError, match="add on stream .* reads memory that interpreter_bias_relu .* wrote"):
        out + 1
    with stream, pytest.raises(OrderError, match="fill on stream .* does not wait for it"):
        row[...] = 0
    stream.wait_event(cupy.cuda.Stream.null.record())
    with stream:
        assert (out + row).shape == (2, 3)


def test_memory_that_another_stream_still_uses_must_not_be_given_back(space):
    cupy = space["cupy"]
    stream = cupy.cuda.Stream(non_blocking=True)
    for waits in (True, False):
        x = cupy.ones(8, np.float32)
        stream.wait_event(cupy.cuda.Stream.null.record())
        with stream:
            x.sum()
        if waits:
            cupy.cuda.Stream.null.wait_event(stream.record())
        del x
        if waits:
            cupy.ones(8, np.float32)
        else:
            with pytest.raises(OrderError, match=r"sum \(before it was given back\) on stream"):
                cupy.ones(8, np.float32)


def test_memory_is_counted_and_ends(space, machine):
    cupy = space["cupy"]
    pool = cupy.get_default_memory_pool()
    used = pool.used_bytes()
    block = cupy.empty(1000, np.uint8)
    view = block[10:]
    assert pool.used_bytes() == used + 1024
    del block
    assert pool.used_bytes() == used + 1024, "the view holds the memory"
    del view
    assert pool.used_bytes() == used and pool.total_bytes() >= used + 1024
    pool.free_all_blocks()
    assert pool.total_bytes() == used
    free, total = cupy.cuda.Device().mem_info
    assert free == total - used
    pool.set_limit(size=used + 2048)
    with pytest.raises(cupy.cuda.memory.OutOfMemoryError, match="Out of memory allocating 4,096 bytes"):
        cupy.empty(1024, np.float32)
    assert isinstance(cupy.empty(512, np.float32), cupy.ndarray)


def test_waiting_is_counted_and_can_be_forbidden(space, machine):
    cupyx, a = space["cupyx"], space["a"]
    machine.synchronisations.clear()
    a[0, 0].item(), float(a.sum()), a.get(), space["cupy"].cuda.Device().synchronize()
    assert machine.synchronisations == {"item": 1, "float": 1, "get": 1, "Device.synchronize": 1}
    with cupyx.allow_synchronize(False), pytest.raises(cupyx.DeviceSynchronized):
        a.tolist()


def test_copies_and_libraries_are_counted(space, machine):
    cupy, a = space["cupy"], space["a"]
    machine.copied.clear()
    b = cupy.asarray(HOST)
    b.get(), b.set(HOST), cupy.matmul(a, b.T), a.dot(b.T), a @ b.T, cupy.linalg.norm(a)
    assert machine.copied == {"to device": 48, "to host": 24}
    assert machine.library == {"matmul": 2, "dot": 1, "linalg.norm": 1}


def test_copies_by_address(space, machine):
    cupy, cupyx = space["cupy"], space["cupyx"]
    runtime, a, out = cupy.cuda.runtime, space["a"], space["cupy"].empty((2, 3), np.float32)
    pinned = cupyx.empty_pinned((2, 3), np.float32)
    pinned[...] = 5
    runtime.memcpyAsync(out.data.ptr, pinned.ctypes.data, out.nbytes, runtime.memcpyHostToDevice, 0)
    assert (out.get() == 5).all()
    with cupy.cuda.Device(1):
        there = cupy.empty((2, 3), np.float32)
    cupy.cuda.Device(0).synchronize()
    runtime.memcpyPeerAsync(there.data.ptr, 1, a.data.ptr, 0, a.nbytes, 0)
    assert there.tolist() == a.tolist()
    a.get(out=pinned)
    assert pinned.tolist() == a.tolist()


def test_ranges_have_names(space, machine):
    nvtx = space["cupy"].cuda.nvtx
    nvtx.RangePush("forward")
    nvtx.RangePush("conv2d")
    nvtx.RangePop()
    assert (machine.ranges, machine.open_ranges) == (["forward", "conv2d"], ["forward"])


# ---- launches --------------------------------------------------------------------------------------------------------


def test_kernels_are_interpreted_on_the_memory_of_arrays(space, machine):
    cupy, a = space["cupy"], space["a"]
    out = cupy.empty((2, 2), np.float32)
    matmul.forward(a, a.T, None, False, out, cupy.empty(matmul.workspace(a, a.T), np.uint8))
    assert out.tolist() == [[14, 32], [32, 77]]
    assert [launch.name.startswith("matmul_") for launch in machine.launches] == [True]
    assert not machine.library


def test_pinned_memory_is_reached_by_kernels(space):
    cupy, cupyx = space["cupy"], space["cupyx"]
    out = cupyx.zeros_pinned((2, 3), np.float32)
    memory = cupy.cuda.UnownedMemory(out.ctypes.data, out.nbytes, out, 0)
    there = cupy.ndarray((2, 3), np.float32, cupy.cuda.MemoryPointer(memory, 0))
    relu(space["a"], cupy.ones(3, np.float32), there, 6)
    assert out.tolist() == [[2, 3, 4], [5, 6, 7]]
    bias_relu((1,), (32,), (space["a"], cupy.zeros(3, np.float32), out.ctypes.data, 6, 3))
    assert (out == space["a"].get()).all()


def test_faults_are_raised(space):
    cupy, a = space["cupy"], space["a"]
    row, out = cupy.ones(3, np.float32), cupy.empty((2, 3), np.float32)
    relu(a, row, out)
    assert out.tolist() == [[2, 3, 4], [5, 6, 7]]
    with pytest.raises(StateError, match="unwritten read: .* at byte 0 of x, which has 24 that nobody wrote"):
        relu(cupy.empty((2, 3), np.float32), row, out)
    with pytest.raises(StateError, match="out of bounds: .* byte 24 of x, which has 24"):
        relu(a, row, out, 7)
    whole = cupy.ones(64, np.float32)
    with pytest.raises(StateError, match="out of bounds: .* byte 8 of out, which has 8"):
        relu(a, row, whole[3:5], 6)
    with pytest.raises(KindError, match="x has type float64, wants elements of 4 bytes"):
        relu(a.astype("f8"), row, out)
    with pytest.raises(StateError, match="a null pointer"):
        relu(a, row, cupy.empty(0), 1)
    place = cupy.ones(6, np.float32).data.ptr
    with pytest.raises(StateError, match="belongs to no array"):
        bias_relu((1,), (32,), (a, place, out, 6, 3))


def test_addresses_in_tables_are_reached_and_lie_on_the_device(space):
    cupy = space["cupy"]
    state, hyper = (
        [[make(5, np.float32)] for make in (cupy.ones, cupy.ones, cupy.zeros, cupy.zeros)],
        np.zeros(len(Adam)),
    )
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


def test_a_launch_amid_one_of_another_thread_finds_its_arrays(machine, monkeypatch):
    import cupy

    mine, others = cupy.ones(3, "float32"), cupy.ones(5, "float32")
    place, elsewhere = mine.data.ptr, others.data.ptr
    register, found = interpreter.address, []

    def amid(view):
        if not found:
            found.append(None)
            found[0] = machine.arguments({place}).get(place)
        return register(view)

    monkeypatch.setattr(interpreter, "address", amid)
    assert machine.arguments({elsewhere})[elsewhere].shape == others.shape
    assert found[0] is not None and found[0].shape == mine.shape and not machine.recent
