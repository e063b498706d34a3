"""minigrad interpret"""

import json

import numpy as np

from minigrad_kernels import interpreter

from .settings import UsageError

__all__ = ["run_interpret"]


def run_interpret(options):
    """Run a kernel from a file of PTX; print what it wrote, what it cost and its faults; exit code 1 if there are any.

    The arguments are a JSON file: a list of what the parameters get, in order. A number is itself, a text is the name
    of an .npy file; {"shape": [64, 64], "dtype": "float32"} is memory that nobody wrote, with "fill" also a number
    or "random", for numbers of the normal distribution.
    """
    with open(options.ptx, encoding="utf-8") as file:
        text = file.read()
    arguments = []
    if options.args:
        with open(options.args, encoding="utf-8") as file:
            arguments = [_argument(number, value) for number, value in enumerate(json.load(file))]
    report = interpreter.interpret(text, tuple(options.grid), tuple(options.block), arguments, options.shared)
    for name, array in report.outputs.items():
        print(f"argument {name}, {array.dtype} {array.shape}: {np.array2string(np.asarray(array), threshold=16)}")
    print(report.counts, *(str(fault) for fault in report.faults), f"{len(report.faults)} faults", sep="\n")
    return 1 if report.faults else 0


def _argument(number, value):
    if isinstance(value, int | float):
        return value
    try:
        if isinstance(value, str):
            return interpreter.array(np.load(value))
        array = interpreter.empty(value["shape"], value.get("dtype", "float32"))
        fill = value.get("fill")
        if fill is not None:
            array[...] = np.random.default_rng(number).standard_normal(array.shape) if fill == "random" else fill
        return array
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(
            f"--args: argument {number} is {value!r}: {error}; wants a number, a file or a shape"
        ) from error
