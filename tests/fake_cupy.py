"""As much of CuPy as a launch touches, with a driver that notes what it is asked for instead of doing it."""

import ctypes
import types

__all__ = ["Array", "FakeCupy"]


class Array:
    """Stands for a cupy.ndarray: an address."""

    def __init__(self, address):
        self.data = types.SimpleNamespace(ptr=address)


class FakeCupy:
    """modules: for sys.modules; launches: [(function, sizes, shared, stream, words of the parameter block), ...]."""

    def __init__(self, capability="90", device=0, error=None):
        self.capability, self.device, self.error = capability, device, error
        self.launches, self.loaded, self.attributes = [], [], {}
        self.stream, self.words, self.made_current = 7, 0, []
        cuda = types.ModuleType("cupy.cuda")
        cuda.Device = lambda number: types.SimpleNamespace(compute_capability=self.capability)
        cuda.get_current_stream = lambda: types.SimpleNamespace(ptr=self.stream)
        cuda.driver, cuda.runtime = self._driver(), self._runtime()
        function = types.ModuleType("cupy.cuda.function")
        function.Module = lambda: types.SimpleNamespace(load=self.loaded.append, get_function=self._function)
        cupy = types.ModuleType("cupy")
        cupy.cuda = cuda
        self.modules = {"cupy": cupy, "cupy.cuda": cuda, "cupy.cuda.function": function}

    def _driver(self):
        def launch(function, x, y, z, width, height, depth, shared, stream, parameters, extra):
            places = (ctypes.c_void_p * self.words).from_address(parameters)
            words = [ctypes.c_uint64.from_address(place).value for place in places]
            self.launches.append((function, (x, y, z, width, height, depth), shared, stream, words))

        return types.SimpleNamespace(
            launchKernel=launch,
            funcGetAttribute=lambda attribute, function: 1024,
            funcSetAttribute=lambda function, attribute, value: self.attributes.update({attribute: value}),
        )

    def _runtime(self):
        class CUDARuntimeError(RuntimeError):
            pass

        def get_device():
            if self.error:
                raise CUDARuntimeError(self.error)
            return self.device

        return types.SimpleNamespace(
            CUDARuntimeError=CUDARuntimeError,
            getDevice=get_device,
            setDevice=self.made_current.append,
            cudaDevAttrMaxSharedMemoryPerBlockOptin=97,
            deviceGetAttribute=lambda attribute, device: 232448,
        )

    def _function(self, name):
        return types.SimpleNamespace(ptr=100 + len(self.loaded))
