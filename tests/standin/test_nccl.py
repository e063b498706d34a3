"""The stand-in for NCCL refuses what would hang the real one, or have it write where it should not."""

import numpy as np
import pytest

from minigrad.parallel.local import run_local
from tests import standin
from tests.standin import OrderError

SUM, FLOAT = 0, 7


@pytest.fixture
def machine():
    with standin.installed(devices=2) as found:
        yield found


def group(size, do, devices=(0, 1)):
    """What do(communicator, cupy, stream) gives on each of some ranks, each on its device."""
    import cupy
    from cupy.cuda import nccl

    key = nccl.get_unique_id()

    def run(world):
        with cupy.cuda.Device(devices[world.rank]):
            stream = cupy.cuda.Stream(non_blocking=True)
            return do(nccl.NcclCommunicator(size, key, world.rank), cupy, stream)

    return run_local(run, size)


REFUSED = {
    "rank.allReduce(x.data.ptr, x.data.ptr, 9, 7, 0, s.ptr)": (ValueError, "36 bytes at .* where no such memory is"),
    "rank.allReduce(host.ctypes.data, x.data.ptr, 8, 7, 0, s.ptr)": (ValueError, "where no such memory is"),
    "rank.allReduce(x.data.ptr, x.data.ptr + 4, 7, 7, 0, s.ptr)": (ValueError, "sends from and receives in, in part"),
    "rank.allReduce(x.data.ptr, other.data.ptr, 8, 7, 0, s.ptr)": (ValueError, "on device 0 of memory of device 1"),
    "rank.allReduce(x.data.ptr, x.data.ptr, 8, 7, 0, wrong.ptr)": (ValueError, "which is none of device 0"),
    "rank.broadcast(x.data.ptr, x.data.ptr, 8, 7, 1, s.ptr)": (RuntimeError, "NCCL_ERROR_INVALID_ARGUMENT"),
    "rank.send(x.data.ptr, 8, 7, 0, s.ptr)": (ValueError, "outside of a group"),
    "nccl.groupEnd()": (RuntimeError, "NCCL_ERROR_INVALID_USAGE"),
    "rank.destroy(), rank.allReduce(x.data.ptr, x.data.ptr, 8, 7, 0, s.ptr)": (RuntimeError, "INVALID_ARGUMENT"),
    "nccl.NcclCommunicator(1, tuple(key), 0)": (TypeError, "expected bytes, got tuple"),
    "x.fill(1), rank.allReduce(x.data.ptr, x.data.ptr, 8, 7, 0, s.ptr)": (OrderError, "does not wait for it"),
}


def test_refuses():
    for code, (error, message) in REFUSED.items():
        with standin.installed(devices=2):
            import cupy
            from cupy.cuda import nccl

            with cupy.cuda.Device(1):
                other, wrong = cupy.zeros(8, np.float32), cupy.cuda.Stream(non_blocking=True)
            s, host, key = cupy.cuda.Stream(non_blocking=True), np.zeros(8, np.float32), nccl.get_unique_id()
            with s:
                x = cupy.zeros(8, np.float32)
            cupy.cuda.Device(0).synchronize()
            space = {"rank": nccl.NcclCommunicator(1, key, 0), "nccl": nccl, "x": x, "other": other, "s": s}
            with pytest.raises(error, match=message):
                eval(code, space | {"host": host, "key": key, "wrong": wrong})  # of this file


def test_ranks_that_call_differently(machine):
    def do(rank, cupy, stream):
        with stream:
            x = cupy.zeros(8, np.float32)
        rank.allReduce(x.data.ptr, x.data.ptr, 8 - rank.rank_id(), FLOAT, SUM, stream.ptr)

    with pytest.raises(ValueError, match="ranks call differently"):
        group(2, do)


def test_messages_of_another_size(machine):
    def do(rank, cupy, stream):
        from cupy.cuda import nccl

        with stream:
            x, y = cupy.zeros(8, np.float32), cupy.zeros(8, np.float32)
        nccl.groupStart()
        rank.send(x.data.ptr, 8 - rank.rank_id(), FLOAT, 1 - rank.rank_id(), stream.ptr)
        rank.recv(y.data.ptr, 8, FLOAT, 1 - rank.rank_id(), stream.ptr)
        nccl.groupEnd()

    with pytest.raises(ValueError, match=r"1 sends \(7, 7\) \(count, type\), rank 0 receives \(8, 7\)"):
        group(2, do)


def test_one_gpu_for_two_ranks(machine, monkeypatch):
    monkeypatch.delenv("NCCL_MULTI_RANK_GPU_ENABLE", raising=False)
    with pytest.raises(RuntimeError, match="NCCL_ERROR_INVALID_USAGE"):
        group(2, lambda *_: None, devices=(1, 1))
    monkeypatch.setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1")
    assert group(2, lambda rank, *_: rank.rank_id(), devices=(1, 1)) == [0, 1]
