"""Products and convolutions in each type, rung by rung, checked and measured beside PyTorch. Both sums are float32."""

from typing import NamedTuple

import cupy
import ml_dtypes
import numpy as np

from minigrad_kernels.toolchain.modes import tf32

from .timing import medians, random

__all__ = ["checked", "in_torch", "measured", "timed"]


class Kind(NamedTuple):
    """A type; digits: bits of mantissa of the operands' products or of the result, whichever are fewer."""

    name: str
    dtype: np.dtype
    digits: int

    @property
    def worst(self):
        """The most that a right result may be off, in the norm or of the largest element."""
        return 2.0**-self.digits * (1 if self.digits < 20 else 256)  # of float32 the sums round, too

    def random(self, *shape):
        """Normal numbers of this type on the device."""
        return random(*shape).astype(self.dtype)

    def mode(self):
        """A context in which float32 is computed as this type says."""
        return tf32(self.name == "tf32")


KINDS = {
    "float32": Kind("float32", np.dtype(np.float32), 23),
    "tf32": Kind("tf32", np.dtype(np.float32), 9),  # both operands are rounded to 10 bits
    "float16": Kind("float16", np.dtype(np.float16), 9),
    "bfloat16": Kind("bfloat16", np.dtype(ml_dtypes.bfloat16), 6),
}


def set_torch(kind):
    """Have PyTorch compute as the Kind says, with sums in float32."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = kind.name == "tf32"
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.backends.cudnn.benchmark = True


def in_torch(array):
    """An array of CuPy as a Tensor of PyTorch on the same memory. Both work on the default stream."""
    import torch

    if array.dtype.name != "bfloat16":
        return torch.from_dlpack(array)
    return torch.from_dlpack(array.view(cupy.uint16).view(cupy.int16)).view(torch.bfloat16)


def checked(case, calls, result, off, worst, wrong):
    """The calls that fit and whose result is right, by off(), which says how far it is off; `wrong` gets the others."""
    found = {}
    for rung, call in calls.items():
        result.fill(cupy.nan)
        try:
            call()
        except ValueError:  # the rung does not fit
            if rung == "default":
                raise
            continue
        error = off()
        if error < worst:
            found[rung] = call
        else:
            wrong.append(f"{' '.join(map(str, case.values()))} {rung}: off by {error}")
    return found


def timed(case, calls, peers, peer, work, budget):
    """A row for each call: its time, its speed for `work` multiplications, and beside the fastest of the peers."""
    times = medians(calls | peers, budget=budget)
    base = min(times[rung][0] for rung in peers)
    for rung, (milliseconds, spread) in times.items():
        row = case | {"rung": rung, "ms": round(milliseconds, 5), "spread": round(spread, 3)}
        yield row | {"tflops": round(2e-9 * work / milliseconds, 2), f"of_{peer}": round(base / milliseconds, 3)}


def measured(found, cases, rows):
    """rows(kind, wrong, *case) of all cases in each type."""
    found |= {"rows": [], "wrong": []}
    for kind in KINDS.values():
        set_torch(kind)
        with kind.mode():
            for case in cases:
                for row in rows(kind, found["wrong"], *case):
                    found["rows"].append(row)
                    if row["rung"] == "default":
                        print(f"  {row}", flush=True)
    print(*found["wrong"], sep="\n", flush=True)
    found["failed"] = bool(found["wrong"])
