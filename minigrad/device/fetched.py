"""Numbers of a GPU that come to the host while both go on."""

import cupy
import numpy as np

__all__ = ["Fetched"]


class Fetched:
    """An array that comes to the host while both go on."""

    def __init__(self, gpu, array):
        self._gpu, stream, shape = gpu, cupy.cuda.get_current_stream(), array.shape
        memory = cupy.cuda.alloc_pinned_memory(max(array.nbytes, 1))
        self._values = np.frombuffer(memory, array.dtype, array.size).reshape(shape)
        array.get(stream, out=self._values, blocking=False)
        self._there = cupy.cuda.Event(disable_timing=True)
        self._there.record(stream)

    @property
    def done(self):
        return self._there.done

    def value(self):
        """NumPy's array, once it is there. Errors: what kernels reported until then."""
        self._there.synchronize()
        self._gpu.check()
        return self._values
