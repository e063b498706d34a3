"""A strict stand-in for CuPy: the GPU's path of this package on a machine without a GPU.

    with installed(devices=2) as machine:
        import cupy
        ...
        machine.launches, machine.synchronisations

Arrays lie in memory of the interpreter; kernels that the real launcher starts are interpreted, and their faults are
raised. CuPy's names, arguments and refusals are those of names.json. Stricter than the real one: an array of another
device than the current one is refused everywhere, as if no device could reach the memory of another; and memory that
two streams use while neither waits for the other is an OrderError. What it cannot tell: time, the rounding of CuPy's
own kernels (arithmetic is NumPy's), and what the host does to pinned memory while a copy is under way.
"""

import sys
from contextlib import contextmanager

from minigrad_kernels.toolchain.cuda import KERNELS, Kernel
from minigrad_kernels.toolchain.cuda.compiler import Binary

from .machine import Machine, current, use
from .modules import MODULES
from .order import OrderError

__all__ = ["Machine", "OrderError", "current", "installed"]

LAUNCH = "minigrad_kernels.toolchain.cuda.launch"


def _forget(names):
    """What was made with another CuPy: the launcher, and the modules that are named."""
    for name in (LAUNCH, *names):
        sys.modules.pop(name, None)
        package, _, name = name.rpartition(".")
        vars(sys.modules.get(package, sys)).pop(name, None)
    for kernel in KERNELS.values():
        kernel.__dict__.pop("_launch", None)


def _marker(self, architecture):
    """In place of machine code, which nothing here could run."""
    return Binary(f"{self.name} for {architecture}".encode(), 1, 0, 0, 0)


@contextmanager
def installed(devices=1, capability="90", capacity=1 << 34, execute=True, error=None, forget=()):
    """Has `import cupy` give the stand-in within; gives its Machine.

    devices     how many there are, of a compute capability, each with so many bytes of memory
    execute     whether kernels are interpreted; else launches are only noted, of code that is really compiled
    error       the number of the runtime's error with which everything fails, such as 35 for no driver
    forget      modules to be imported anew within, and again after
    """
    ours = lambda name: name.partition(".")[0] in ("cupy", "cupyx")
    before = {name: module for name, module in sys.modules.items() if ours(name)}
    machine_before = use(machine := Machine(devices, capability, capacity, execute, error))
    binary = Kernel.binary
    for name in before:
        del sys.modules[name]
    sys.modules.update(MODULES)
    _forget(forget)
    if execute:
        Kernel.binary = _marker
    try:
        yield machine
    finally:
        Kernel.binary = binary
        use(machine_before)
        for name in [name for name in sys.modules if ours(name)]:
            del sys.modules[name]
        sys.modules.update(before)
        _forget(forget)
