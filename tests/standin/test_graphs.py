"""The stand-in captures streams as CUDA does: nothing runs, replays work on the same memory, and misuse is refused."""

import numpy as np
import pytest

from tests import standin
from tests.standin import OrderError
from tests.standin.graphs import GraphError


@pytest.fixture
def cupy():
    with standin.installed(devices=2) as machine:
        import cupy

        cupy.machine = machine
        yield cupy
        del cupy.machine


@pytest.fixture
def stream(cupy):
    with cupy.cuda.Stream(non_blocking=True) as found:
        yield found


def captured(stream, function):
    stream.begin_capture()
    function()
    return stream.end_capture()


FORBIDDEN = {
    "item": lambda cupy, x, s: x.sum().item(),
    "get": lambda cupy, x, s: x.get(),
    "get to pageable memory": lambda cupy, x, s: x.get(s, out=np.empty(3, np.float32), blocking=False),
    "set": lambda cupy, x, s: x.set(np.ones(3, np.float32)),
    "set from pageable memory": lambda cupy, x, s: x.set(np.ones(3, np.float32), s),
    "asarray": lambda cupy, x, s: cupy.asarray(np.ones(3)),
    "a mask": lambda cupy, x, s: x[x > 0],
    "a list": lambda cupy, x, s: x[[0, 1]],
    "the stream": lambda cupy, x, s: s.synchronize(),
    "the device": lambda cupy, x, s: cupy.cuda.Device().synchronize(),
    "an event": lambda cupy, x, s: s.record().synchronize(),
    "whether an event is done": lambda cupy, x, s: s.record().done,
}


def test_what_waits_spoils_the_capture(cupy, stream):
    for forbidden in FORBIDDEN.values():
        x = cupy.ones(3, np.float32)
        stream.begin_capture()
        with pytest.raises(RuntimeError, match="StreamCaptureUnsupported|CapturedEvent"):
            forbidden(cupy, x, stream)
        assert stream.is_capturing()
        with pytest.raises(RuntimeError, match="StreamCaptureInvalidated"):
            stream.end_capture()
        assert not stream.is_capturing() and x.tolist() == [1, 1, 1]


def test_libraries_and_the_default_stream_are_not_captured(cupy, stream):
    x = cupy.ones((2, 2), np.float32)
    stream.begin_capture()
    with pytest.raises(NotImplementedError, match="cuBLAS"):
        x @ x
    stream.end_capture()
    with pytest.raises(RuntimeError, match="StreamCaptureUnsupported"):
        cupy.cuda.Stream.null.begin_capture()
    with pytest.raises(RuntimeError, match="StreamCaptureUnsupported"):
        stream.end_capture()


def test_other_streams_join_by_events_and_must_come_back(cupy, stream):
    beside, x = cupy.cuda.Stream(non_blocking=True), cupy.zeros(4, np.float32)

    def fork(come_back):
        cupy.add(x, 1, out=x)
        beside.wait_event(stream.record())
        with beside:
            cupy.multiply(x, 3, out=x)
        if come_back:
            stream.wait_event(beside.record())
            cupy.add(x, 1, out=x)

    with pytest.raises(RuntimeError, match="StreamCaptureUnjoined"):
        captured(stream, lambda: fork(False))
    found = captured(stream, lambda: fork(True))
    found.launch(stream)
    found.launch(stream)
    assert x.tolist() == [16] * 4
    outside = beside.record()
    stream.begin_capture()
    with pytest.raises(RuntimeError, match="StreamCaptureIsolation"):
        stream.wait_event(outside)


def test_a_graph_keeps_the_order_of_streams(cupy, stream):
    x, other = cupy.zeros(4, np.float32), cupy.cuda.Stream(non_blocking=True)
    stream.synchronize()
    found = captured(stream, lambda: cupy.add(x, 1, out=x))
    found.launch(stream)
    with pytest.raises(OrderError):
        found.launch(other)
    other.wait_event(stream.record())
    found.launch(other)
    with pytest.raises(RuntimeError, match="InvalidResourceHandle"), cupy.cuda.Device(1):
        found.launch(cupy.cuda.Stream(non_blocking=True))


def test_memory_that_was_given_back_is_not_used(cupy, stream):
    arrays = [cupy.zeros(4, np.float32)]
    found = captured(stream, lambda: cupy.add(arrays[0], 1, out=arrays[0]))
    arrays.clear()
    with pytest.raises(GraphError, match="given back"):
        found.launch(stream)
    pool = cupy.cuda.MemoryPool()
    with cupy.cuda.using_allocator(pool.malloc):
        arrays.append(cupy.zeros(4, np.float32))
        found = captured(stream, lambda: (arrays[0] + 1) * 2)
    arrays.clear()
    found.launch(stream)  # nobody else gets the memory of that pool
    del pool
    with pytest.raises(GraphError, match="given back"):
        found.launch(stream)
