"""Profile: the recording, and what can be asked of it afterwards."""

import contextlib

from minigrad_kernels.errors import KindError, StateError

from ..nn import Module
from . import hooks, tables, trace
from .current import active, opened, profiles
from .memory import Memory
from .recorder import Recorder
from .spans import BACKWARD, FORWARD, REGION, UPDATE

__all__ = ["Profile", "record_function"]


class Profile:
    """Records what happens inside a with block, in this thread; the methods are for afterwards.

    model       whose layers are named as its named_modules() names them; without one each Module that is called from
                outside names its own parts
    optimizer   whose state counts as memory from the begin; others do from their first step on
    memory      whether to look at the memory too, after each operation

    spans       a Span for each call, in the order in which they began
    memory      [(seconds since the begin, {category: bytes})]; the categories are those of profile/memory.py
    Profiles may be nested; each sees everything inside it. An exception ends the profile and goes on; what was recorded
    until then stays, but for the times on a GPU.
    Errors  RuntimeError if one is entered twice, or asked before it has ended; TypeError for what is no Module
    """

    def __init__(self, model=None, memory=True, optimizer=None):
        if model is not None and not isinstance(model, Module):
            raise KindError(f"Profile: model is a {type(model).__name__}, wanted a Module or None")
        self._model, self._optimizer, self._wanted = model, optimizer, memory
        self._recorder = self._token = None
        self._ended = False

    def __enter__(self):
        if self._recorder is not None:
            raise StateError("Profile: this one has begun already; make a new one for each with block")
        memory = Memory(self._model, self._optimizer) if self._wanted else None
        self._recorder = recorder = Recorder(self._model, memory)
        hooks.install()
        self._token = profiles.set((*profiles.get(), recorder))
        recorder.begin()
        return self

    def __exit__(self, kind, error, traceback):
        hooks.remove()
        profiles.reset(self._token)
        self._ended = True
        self._model = self._optimizer = None
        self._recorder.finish(whole=kind is None)

    def _done(self):
        if not self._ended:
            raise StateError("Profile: it has not ended yet; ask after the with block")
        return self._recorder

    # ---- what was recorded ---------------------------------------------------------------------------------------

    @property
    def spans(self):
        return self._done().spans

    @property
    def memory(self):
        memory = self._done().memory
        return [] if memory is None else memory.samples

    @property
    def seconds(self):
        """From the begin to the end, by the host's clock."""
        return self._done().wall

    def rows(self, by="op", sort="time"):
        """A Row for each operation, layer or kernel; see table."""
        return tables.rows(self._done(), by, sort)

    def table(self, by="op", sort="time"):
        """The rows as text.

        by      "op": operations, "conv2d.backward" being the gradients of conv2d, and steps of optimisers;
                "layer": Modules, by their dotted names, with what they and their gradients cost;
                "kernel": compiled code that was entered
        sort    "time": those first that took most of it themselves; "calls", "device", "bytes", "memory", "name", or
                "order": as they were first called

        calls       how often
        total, ms   of the host from begin to end, calls inside included; of a layer, with the layers below it
        self, ms    of the host less the calls inside; the column adds up to less than the time of the whole profile
        share       of self in the time of the whole profile
        kernels     milliseconds of self within compiled kernels: on the CPU the computation itself, the rest being
                    Python; on a GPU the launches alone
        device      milliseconds of the GPU less the calls inside, between two events around each call: with the time
                    in which it waited for the host
        bytes       of the results, of gradients for backward
        memory      bytes that the tape began to keep for backward
        Errors      ValueError for another word
        """
        return tables.table(self._done(), by, sort)

    def totals(self):
        """{name: seconds} of the whole profile.

        wall        from the begin to the end
        host        in operations, gradients, walks over the tape, updates, and kernels that others enter, such as a
                    Loader; the rest is other Python
        kernels     of these, in compiled kernels; on a GPU, in launching them
        device      in which a GPU worked, or waited within an operation
        overlap     in which both host and device did
        profiling   of wall, in which the profile itself looked at results and memory; shares are of the rest
        """
        return tables.totals(self._done())

    def peak(self):
        """({category: bytes} when memory was fullest, seconds since the begin); ({}, 0.0) if it was not looked at."""
        seconds, found = max(self.memory, key=lambda sample: sum(sample[1].values()), default=(0.0, {}))
        return found, seconds

    def timeline(self, begin=0.0, end=float("inf")):
        """[(lane, name, begin, end)] in seconds, for minigrad.draw.timeline; of what began in that time.

        The lanes are "forward", "backward" and "update" on the host, then the streams of GPUs. Nothing in a lane lies
        inside another: the operations of which a gradient is made belong to its span.
        """
        found = [s for s in self.spans if begin <= s.begin < end and s.kind in (FORWARD, BACKWARD, UPDATE)]
        found = [s for s in found if s.parent is None or not s.parent.within(FORWARD, BACKWARD, UPDATE)]
        host = [(s.kind, s.name, s.begin, s.end) for s in found]
        return host + [(s.lane, s.name, *s.device) for s in found if s.device]

    def trace(self, path):
        """Write it as a file of Chrome's Trace Event Format, for chrome://tracing or https://ui.perfetto.dev."""
        trace.write(self._done(), path)


def record_function(name):
    """Give what happens inside a name, which profiles that are under way show; a with block or a decorator."""
    if not isinstance(name, str):
        raise KindError(f"record_function: name is {name!r}, wanted a string")
    return _named(name)


@contextlib.contextmanager
def _named(name):
    with opened(active(), name, REGION):
        yield
