"""Kernels that notebooks declare run where no compiler is installed too: their PTX lies in the folder ptx."""

import hashlib
import inspect
import re
from pathlib import Path

from minigrad_kernels.toolchain.cuda import Kernel

__all__ = ["portable"]

FOLDER = Path(__file__).with_name("ptx")
HERE = "the notebook"  # stands for the file that the kernel was declared in, whose lines count from its first
NAME = "the_kernel"  # stands for its whole name, which begins with that of the module


def portable(kernel: Kernel):
    """The kernel, with its PTX from the folder ptx; where that is not of this source it is compiled and kept there.

    Above a declaration, as `@portable` over `@kernel(...)`.
    Errors  RuntimeError if it has to be compiled and there is no compiler
    """
    function = kernel.function
    file = FOLDER / f"{function.__name__}{kernel.name.partition(f'_{function.__name__}')[2]}.ptx"
    key, code = f"// key {_key(kernel)}\n", function.__code__
    if not file.exists() or not file.read_text(encoding="utf-8").startswith(key):
        text = kernel.compile(kernel.architectures[0]).replace(kernel.name, NAME)
        FOLDER.mkdir(exist_ok=True)
        file.write_text(key + _moved(text, code.co_filename, HERE, 1 - code.co_firstlineno), encoding="utf-8")
    text = file.read_text(encoding="utf-8").removeprefix(key).replace(NAME, kernel.name)
    kernel.use_ptx(_moved(text, HERE, code.co_filename, code.co_firstlineno - 1))
    return kernel


def _key(kernel):
    """A hash of the kernel's source and of the numbers that it takes from around it."""
    around = inspect.getclosurevars(kernel.function)
    numbers = sorted((name, value) for name, value in (around.nonlocals | around.globals).items() if _plain(value))
    parts = inspect.getsource(kernel.function), kernel.parameters, kernel.bounds, numbers
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


def _plain(value):
    return isinstance(value, int | float | str)


def _moved(text, before, after, lines):
    """PTX whose lines of one file are those of another, so many further down."""
    found = re.search(rf'\.file\s+(\d+) "{re.escape(Path(before).as_posix())}"', text)
    if found is None:
        return text
    number = found[1]
    text = text.replace(found[0], f'.file\t{number} "{Path(after).as_posix()}"')
    move = lambda match: f"{match[1]}{int(match[2]) + lines}" if int(match[2]) else match[0]
    return re.sub(rf"(\.loc\s+{number} |inlined_at {number} )(\d+)", move, text)
