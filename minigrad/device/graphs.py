"""Graphs of CUDA through CuPy: capturing the work of a thread on one GPU, with memory that is the graph's alone."""

import contextlib
import gc

import cupy

from minigrad_kernels.toolchain.cuda import launch

__all__ = ["Graph"]

NO_MEMORY = 2  # cudaErrorMemoryAllocation


class _Private(cupy.cuda.UnownedMemory):
    """A block of a graph's pool. It keeps the pool, too: CuPy's blocks do not, and arrays may outlive the graph."""


class Graph:
    """The work that was done inside of recording(), as often as launch() asks for it.

    Its memory comes from a pool of its own, which goes with it, and with the last array there.

    recorded        CuPy's graph, None until there is one and after reset()
    begun, ended    events around the latest launch
    """

    def __init__(self, place):
        self.place = place
        self.recorded = self.begun = self.ended = None
        with place.active():
            self.pool = cupy.cuda.MemoryPool(self._from_driver)
            self.pool.set_limit(size=0)  # at a limit, too, a pool gives back what is free
            self.stream = cupy.cuda.Stream(non_blocking=True)
            self.beside = cupy.cuda.Stream(non_blocking=True)  # for what is there before the first launch

    # ---- memory ------------------------------------------------------------------------------------------------------

    @staticmethod
    def _from_driver(nbytes):
        """Memory for the pool.

        Where the driver has none, CuPy's pool would give back its free blocks and ask again. But captured work uses
        those. So the error that it waits for becomes another one, and the pool of all others gives back instead.
        """
        for last in (False, True):
            try:
                return cupy.cuda.MemoryPointer(cupy.cuda.Memory(nbytes), 0)
            except cupy.cuda.runtime.CUDARuntimeError as error:
                if error.status != NO_MEMORY:
                    raise
                if last:
                    raise cupy.cuda.memory.OutOfMemoryError(nbytes, 0) from error
            gc.collect()
            cupy.get_default_memory_pool().free_all_blocks()

    def _take(self, nbytes):
        taken = self.pool.malloc(nbytes)
        if not nbytes:
            return taken
        memory = _Private(taken.ptr, nbytes, (taken, self.pool), self.place.number)
        return cupy.cuda.MemoryPointer(memory, 0)

    @staticmethod
    def owns(array):
        """Whether an array lies in the pool of a graph."""
        return isinstance(array.data.mem, _Private)

    def upload(self, array):
        with self.place.active(), cupy.cuda.using_allocator(), self.beside:
            made = cupy.empty(array.shape, array.dtype)
        if made.size:
            self.write(made, array)
        return made

    def write(self, target, values):
        with self.place.active(), self.beside:
            launch.write(target, values)
            self.beside.synchronize()

    # ---- capture and replay ------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def recording(self):
        """Inside, this thread's work on the GPU is not done but becomes the graph."""
        self.place.wait()
        self.place.empty_cache()
        with self.place.active(), cupy.cuda.using_allocator(self._take), self.stream:
            self.stream.begin_capture()
            try:
                yield
            except BaseException:
                with contextlib.suppress(Exception):  # of a capture that something has spoilt
                    self.stream.end_capture()
                raise
            self.recorded = self.stream.end_capture()

    def reset(self):
        """Give up what was recorded; its memory stays as long as arrays there do."""
        self.recorded = None

    def follow(self):
        """Have the current stream wait for the launch before, which shares its memory with what is next."""
        if self.ended is not None:
            cupy.cuda.get_current_stream().wait_event(self.ended)

    def launch(self, copies):
        """Copy dense arrays, pairs (to, from) that lie alike, and start the graph, on the current stream."""
        with self.place.active():
            stream = cupy.cuda.get_current_stream()
            for target, source in copies:
                if source is not target and source.nbytes:
                    target.data.copy_from_device_async(source.data, source.nbytes, stream)
            self.begun = stream.record(cupy.cuda.Event(disable_timing=True))
            self.recorded.launch(stream)
            self.ended = stream.record(cupy.cuda.Event(disable_timing=True))
