"""The rung of the matrix product for Hopper alone, tried in a process of its own before others rely on it.

If it hangs, or leaves the device in disorder, it is to take nothing along.
python -m tests.gpu.hopper RUNG DEVICE tries it, on "cuda" or on the interpreter.
"""

import functools
import subprocess
import sys
from functools import partial
from pathlib import Path

import ml_dtypes

from minigrad_kernels.matmul import cuda as ladder
from tests.kernels.cases.matmul import row, transposed
from tests.kernels.kernel_runs import make_inputs, same_bits, wanted
from tests.kernels.kernel_runs import run as run_case

__all__ = ["RUNGS", "run", "works"]

RUNGS = ("tma",)
BF16 = ml_dtypes.bfloat16
SIZES = (16, 8, 8), (136, 6 * 64 + 8, 264)  # edges of tiles, and more steps of k than there are stages
LIMIT = 100  # seconds


def attempt(rung, device):
    """Products of small integers.

    Errors  AssertionError where one is wrong
    """
    for size in SIZES:
        case = row(*size, bias=True, layouts=(None, transposed), relu=True)
        inputs = make_inputs(case, BF16, integers=True)
        results = run_case(case, BF16, inputs, device, partial(ladder.forward, rung=rung))
        same_bits(results, [want.astype(BF16) for want in wanted(case, inputs)])


@functools.cache
def why_not(rung):
    """What goes wrong on this GPU, in words; None where the rung works."""
    from minigrad_kernels.toolchain.cuda.launch import device_architecture

    if device_architecture(0) != (9, 0):
        return "no Hopper"
    command = [sys.executable, "-m", "tests.gpu.hopper", rung, "cuda"]
    try:
        tried = subprocess.run(
            command, cwd=Path(__file__).parents[2], timeout=LIMIT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"not finished in {LIMIT} s"
    return None if not tried.returncode else tried.stdout.strip()[-2000:]


def works(rung):
    return why_not(rung) is None


def run(found):
    for rung in RUNGS:
        found[rung] = why_not(rung) or "right"
        print(f"  {rung}: {found[rung]}", flush=True)
    found["failed"] = any(found[rung] not in ("right", "no Hopper") for rung in RUNGS)


if __name__ == "__main__":
    attempt(*sys.argv[1:])
