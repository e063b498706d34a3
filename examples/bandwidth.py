"""How fast bytes travel: in the host's memory, between host and GPU, within a GPU, between two GPUs.

python examples/bandwidth.py [MEBIBYTES]

Prints GB/s, 10^9 bytes a second, the best of seven copies of 256 MiB. A copy within a device reads and writes, and
counts once. Without a GPU: the memory of the host alone.
"""

import argparse
import time

import numpy as np

from minigrad import cuda

ROUNDS = 7


def rate(copy, nbytes, wait=lambda: None):
    """GB/s of the fastest of several calls; the first warms up."""
    times = []
    for _ in range(ROUNDS + 1):
        wait()
        begun = time.perf_counter()
        copy()
        wait()
        times.append(time.perf_counter() - begun)
    return nbytes / min(times[1:]) / 1e9


def gpu_rates(number, nbytes):
    """{what is copied: GB/s} of one GPU, to the host and to every other GPU."""
    import cupy

    with cupy.cuda.Device(number) as gpu:
        here, other = (cupy.zeros(nbytes, cupy.uint8) for _ in range(2))
        pageable = np.ones(nbytes, np.uint8)
        pinned = np.frombuffer(cupy.cuda.alloc_pinned_memory(nbytes), np.uint8, nbytes)
        stream = cupy.cuda.get_current_stream()
        copies = {
            "pageable memory to GPU": lambda: here.set(pageable),
            "GPU to pageable memory": lambda: here.get(out=pageable),
            "pinned memory to GPU": lambda: here.set(pinned, stream),
            "GPU to pinned memory": lambda: here.get(stream, out=pinned),
            "GPU to itself": lambda: other.data.copy_from_device_async(here.data, nbytes),
        }
        for peer in range(cuda.device_count()):
            if peer != number:
                direct = cupy.cuda.runtime.deviceCanAccessPeer(peer, number)
                name = f"GPU {number} to GPU {peer} ({'direct' if direct else 'through the host'})"
                copies[name] = lambda peer=peer: to_peer(here, peer)
        return {name: rate(copy, nbytes, gpu.synchronize) for name, copy in copies.items()}


def to_peer(array, peer):
    import cupy

    with cupy.cuda.Device(peer):
        target = cupy.empty(array.shape, array.dtype)
        target.data.copy_from_device_async(array.data, array.nbytes)
        cupy.cuda.get_current_stream().synchronize()


def main(mebibytes=256):
    nbytes = mebibytes << 20
    source, target = (np.ones(nbytes, np.uint8) for _ in range(2))
    rates = {"host memory, one thread": rate(lambda: np.copyto(target, source), nbytes)}
    for number in range(cuda.device_count()):
        rates |= {f"cuda:{number}, {name}": value for name, value in gpu_rates(number, nbytes).items()}
    for name, value in rates.items():
        print(f"{name:<48}{value:8.1f}")
    return rates


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("mebibytes", nargs="?", type=int, default=256)
    main(parser.parse_args().mebibytes)
