"""capture: a function of Tensors that is run, then captured into a graph, then replayed."""

import functools
from collections import OrderedDict

from minigrad_kernels.errors import StateError
from minigrad_kernels.toolchain.modes import capturing, tf32_mode

from .. import device as devices
from ..anomaly import is_anomaly_enabled
from ..core.check import function_of
from ..core.interceptors import interceptors
from ..core.modes import determinism, recording
from ..core.tensor import Tensor
from ..ops.autocast import autocast_dtype
from ..profile import Profile
from .recorder import Replay, keyed, mapped, recorded

WARM = 2  # calls that run before one is captured: they compile kernels and make what stays, such as state
KEPT = 8  # graphs of a function; the one used longest ago is dropped first
# What each combination of has graphs of its own.
MODES = recording.get, determinism.get, is_anomaly_enabled, autocast_dtype, tf32_mode


def capture(function=None, *, device=None):
    """A function whose work on a GPU is replayed by one launch: the same results, bit for bit, without Python's time.

    function    called with Tensors, other values, and tuples, lists and dictionaries of them
    device      where its work is done; by default where its Tensors are

    The first WARM calls run it, the next one captures what it does on the GPU and launches that, and from then on the
    captured work is launched alone: kernels, copies, collectives of NCCL, steps of optimisers. Calls whose Tensors
    differ in shape, type or device, or whose other arguments have other values, have graphs of their own, and so have
    calls in other modes (no_grad, deterministic); KEPT of them are kept. A graph owns its memory.

    Before each launch the arguments are copied to where the graph reads them. Results lie where it writes them: they
    are valid until the next call of the same kind (`.clone()` one to keep it), and have no history. `.grad` of
    parameters stays at one address. Learning rates and other options of optimisers are those of the moment of the call,
    and schedules that the function steps go on; dropout draws on as it would without a graph. What else Python does in
    the function happens while it is captured, and not again: printing, counting, appending to lists.

    Where there is no GPU, on the CPU, and while a profile is taken, each call simply runs the function.

    Errors  CaptureError, a RuntimeError that names the line, for what cannot be repeated without the host: reading
            values (item, numpy, bool, print), results whose shape depends on values, sending data of the host. The
            state of optimisers, schedules and random numbers, and all memory, is as before the call then. TypeError
            for arguments that cannot be told apart, or that require a gradient
    """
    if function is None:
        return functools.partial(capture, device=device)
    return Captured(function_of("capture", "function", function), None if device is None else devices.place(device))


class Captured:
    """What `capture` gives: called as the function is.

    graphs      how many there are
    """

    def __init__(self, function, place=None):
        functools.update_wrapper(self, function)
        self.function, self.place = function, place
        self._kept: OrderedDict[tuple, int | Replay] = OrderedDict()  # runs so far, or the graph

    graphs = property(lambda self: sum(isinstance(entry, Replay) for entry in self._kept.values()))

    def reset(self):
        """Drop all graphs with their memory, as if it had never been called."""
        self._kept.clear()

    def __call__(self, *args, **kwargs):
        tensors: list[Tensor] = []
        key = keyed(dict(enumerate(args)) | kwargs, tensors, "arguments")
        place = self.place or (devices.place_of(tensors[0].array) if tensors else devices.CPU)
        profiled = any(isinstance(one, Profile) for one in interceptors())
        if not place.captures or capturing.get() is not None or profiled:
            return _without_history(self.function(*args, **kwargs))
        for number, tensor in enumerate(tensors):
            if devices.place_of(tensor.array) is not place:
                here = f"Tensor {number} of the arguments is on {tensor.device}"
                raise StateError(f"capture: {here}, the graph on {place.name}; move it there before the call")
        key = place, *[mode() for mode in MODES], key
        entry = self._kept.pop(key, 0)
        if isinstance(entry, Replay):
            if entry.holds():
                self._keep(key, entry)
                return entry(tensors)
            entry = 0  # parameters or state lie elsewhere by now: begin anew
        if entry < WARM:
            with place.active():
                result = _without_history(self.function(*args, **kwargs))
            self._keep(key, entry + 1)
            return result
        entry, result = recorded(self.function, args, kwargs, tensors, place)
        self._keep(key, entry)
        return result

    def _keep(self, key, entry):
        self._kept[key] = entry  # the last one used stands last
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)


def _without_history(result):
    return mapped(result, lambda tensor: tensor.detach())
