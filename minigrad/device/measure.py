"""How fast bytes travel: between host and GPU, within a GPU, between two GPUs.

Units   GB/s, 10^9 bytes a second, the best of several rounds; a copy within a device reads and writes, and counts once
"""

import time

import numpy as np

from .places import place

__all__ = ["bandwidths", "host_copy"]

BYTES = 1 << 28
ROUNDS = 7


def _rate(copy, nbytes, wait=lambda: None):
    """GB/s of the fastest of several calls; the first warms up."""
    times = []
    for _ in range(ROUNDS + 1):
        wait()
        begun = time.perf_counter()
        copy()
        wait()
        times.append(time.perf_counter() - begun)
    return nbytes / min(times[1:]) / 1e9


def host_copy():
    """GB/s of a copy in the memory of the host, by one thread."""
    source, target = (np.ones(BYTES, np.uint8) for _ in range(2))
    return _rate(lambda: np.copyto(target, source), BYTES)


def bandwidths(number=0):
    """{what is copied: GB/s} of a GPU: both ways from pageable and from pinned memory, within it, to every other GPU.

    Errors  RuntimeError if there is no such GPU
    """
    gpu = place(f"cuda:{number}")
    from .cuda import count, cupy

    nbytes = BYTES
    with gpu.active():
        wait = cupy.cuda.Device(number).synchronize
        there, other = (cupy.zeros(nbytes, cupy.uint8) for _ in range(2))
        pageable = np.ones(nbytes, np.uint8)
        memory = cupy.cuda.alloc_pinned_memory(nbytes)
        pinned = np.frombuffer(memory, np.uint8, nbytes)
        stream = cupy.cuda.get_current_stream()
        copies = {
            "pageable memory to GPU": lambda: there.set(pageable),
            "GPU to pageable memory": lambda: there.get(out=pageable),
            "pinned memory to GPU": lambda: there.set(pinned, stream),
            "GPU to pinned memory": lambda: there.get(stream, out=pinned),
            "GPU to itself": lambda: cupy.copyto(other, there),
        }
        found = {name: _rate(copy, nbytes, wait) for name, copy in copies.items()}
        for peer in range(count()):
            if peer != number:
                found[_peer_name(cupy, number, peer)] = _rate(
                    lambda peer=peer: _to_peer(cupy, there, peer), nbytes, wait
                )
    return found


def _peer_name(cupy, number, peer):
    direct = cupy.cuda.runtime.deviceCanAccessPeer(peer, number)
    return f"GPU {number} to GPU {peer} ({'direct' if direct else 'through the host'})"


def _to_peer(cupy, array, peer):
    with cupy.cuda.Device(peer):
        target = cupy.empty(array.shape, array.dtype)
        target.data.copy_from_device_async(array.data, array.nbytes)
        cupy.cuda.get_current_stream().synchronize()
