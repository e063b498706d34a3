"""The stand-in for CuPy refuses what CuPy, CUDA and NCCL refuse, or would do wrongly without a word."""

import json
import subprocess
import sys
from contextlib import nullcontext

import numpy as np
import pytest

from minigrad.parallel.local import run_local
from minigrad_kernels.errors import StateError
from tests import standin
from tests.kernels.interpreter.cuda_kernels import bias_relu
from tests.standin import OrderError, names
from tests.standin.graphs import GraphError

HOST = np.ones((2, 3), np.float32)


@pytest.fixture
def cupy():
    with standin.installed(devices=2):
        import cupy

        yield cupy


@pytest.fixture
def stream(cupy):
    return cupy.cuda.Stream(non_blocking=True)


def relu(x, row, out, size=None):
    """Starts a kernel itself, without the checks of its family."""
    bias_relu((1,), (256,), (x, row, out, out.size if size is None else size, row.size))


# ---- names, arguments, devices ---------------------------------------------------------------------------------------

REFUSED = {
    "host + a": (TypeError, "Unsupported type <class 'numpy.ndarray'>"),
    "cupy.bogus": (AttributeError, "module 'cupy' has no attribute 'bogus'"),
    "a.max(initial=0)": (TypeError, "unexpected keyword argument 'initial'"),
    "cupy.fuse": (NotImplementedError, "cupy.fuse is one of CuPy's names, but is not modelled"),
    "there + a": (ValueError, "array device = 1 while current = 0"),
    "relu(there, a[0], a)": (ValueError, "x lies on device 1, the current device is 0"),
    "stream.use()": (RuntimeError, "not created on the current device"),
}


def test_refuses(cupy):
    a = cupy.asarray(HOST)
    with cupy.cuda.Device(1):
        there, stream = cupy.asarray(HOST), cupy.cuda.Stream()
    space = dict(cupy=cupy, np=np, a=a, there=there, stream=stream, host=HOST, relu=relu)
    for expression, (error, message) in REFUSED.items():
        with pytest.raises(error, match=message):
            eval(expression, space)
            print(expression)


def test_names_are_those_of_cupy():
    """In a process of its own, which has the real CuPy if it is installed."""
    done = subprocess.run([sys.executable, names.__file__, "--print"], capture_output=True, text=True)
    if "ModuleNotFoundError: No module named 'cupy'" in done.stderr:
        pytest.skip("CuPy is not installed: its names cannot be compared")
    assert not done.returncode, done.stderr
    real, kept = json.loads(done.stdout), names.known()
    if real["version"] != kept["version"]:
        pytest.skip(f"names.json is of CuPy {kept['version']}, {real['version']} is installed")
    assert real == kept


# ---- streams and memory ----------------------------------------------------------------------------------------------


def test_streams_that_do_not_wait_are_found(cupy, stream):
    x = cupy.ones(8, np.float32)
    for wait in (
        lambda: stream.wait_event(cupy.cuda.get_current_stream().record()),
        cupy.cuda.get_current_stream().synchronize,
        cupy.cuda.Device().synchronize,
    ):
        x.fill(1)
        for use in (x.sum, lambda: x.fill(0)):
            with stream, pytest.raises(OrderError, match="fill on stream 0 of device 0 wrote"):
                use()
        wait()
        with stream:
            x.fill(0)
        stream.synchronize()


def test_kernels_and_memory_take_part_in_the_order_of_streams(cupy, stream):
    a, row, out, x = map(cupy.asarray, (HOST, HOST[0], np.empty_like(HOST), np.ones(8, np.float32)))
    with pytest.raises(StateError, match="out of bounds: .* byte 8 of out, which has 8"):
        relu(a, row, cupy.ones(64, np.float32)[3:5], 6)
    relu(a, row, out)
    with stream, pytest.raises(OrderError, match="add on stream .* reads memory that interpreter_bias_relu .* wrote"):
        out + 1
    stream.wait_event(cupy.cuda.Stream.null.record())
    with stream:
        x.sum()
    del x
    with pytest.raises(OrderError, match=r"sum \(before it was given back\) on stream"):
        cupy.ones(8, np.float32)


# ---- graphs ----------------------------------------------------------------------------------------------------------

FORBIDDEN = {
    "item": lambda cupy, x, s: x.sum().item(),
    "get to pageable memory": lambda cupy, x, s: x.get(s, out=np.empty(3, np.float32), blocking=False),
    "whether an event is done": lambda cupy, x, s: s.record().done,
}


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


def test_other_streams_come_back_and_memory_stays(cupy, stream):
    with stream:
        beside, x = cupy.cuda.Stream(non_blocking=True), [cupy.ones(4, np.float32)]
        for comes_back in (False, True):
            stream.begin_capture()
            beside.wait_event(stream.record())
            with beside:
                cupy.multiply(x[0], 3, out=x[0])
            if comes_back:
                stream.wait_event(beside.record())
            with nullcontext() if comes_back else pytest.raises(RuntimeError, match="StreamCaptureUnjoined"):
                found = stream.end_capture()
        found.launch(stream)
        found.launch(stream)
        assert x[0].tolist() == [9] * 4
        found.launch(stream)
        with pytest.raises(OrderError):
            found.launch(beside)
        x.clear()
        with pytest.raises(GraphError, match="given back"):
            found.launch(stream)


# ---- NCCL ------------------------------------------------------------------------------------------------------------

WRONG = {  # (the call, the error, what it says)
    "size": (lambda r, x, other, s: r.allReduce(x, x, 9, 7, 0, s), ValueError, "36 bytes at .* no such memory is"),
    "device": (lambda r, x, other, s: r.allReduce(x, other, 8, 7, 0, s), ValueError, "of memory of device"),
    "no group": (lambda r, x, other, s: r.send(x, 8, 7, 1, s), ValueError, "outside of a group"),
    "order": (lambda r, x, other, s: r.allReduce(x, x, 8, 7, 0, 0), OrderError, "does not wait for it"),
    "others": (lambda r, x, other, s: r.broadcast(x, x, 8, 7, r.rank_id(), s), ValueError, "ranks call differently"),
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
