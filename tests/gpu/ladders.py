"""The matrix product and convolution in each type, rung by rung, checked and timed beside PyTorch's cuBLAS and cuDNN.

Both sums are float32, and both work on the default stream.
"""

from functools import partial
from typing import NamedTuple

import cupy
import ml_dtypes
import numpy as np

from minigrad_kernels import conv2d, matmul
from minigrad_kernels.conv2d import cuda as convolution
from minigrad_kernels.conv2d.cuda_plan import RUNGS
from minigrad_kernels.layout import CHANNELS_LAST, FILTER
from minigrad_kernels.matmul import cuda as product
from minigrad_kernels.toolchain.modes import tf32

from .small import runs_on
from .timing import medians, random, space

BUDGET = 0.05  # seconds for each call


class Kind(NamedTuple):
    """A type; digits: bits of mantissa of the operands' products or of the result, whichever are fewer."""

    name: str
    dtype: np.dtype
    digits: int

    @property
    def worst(self):
        """The most that an element of a right result may be off, of the largest."""
        return 2.0**-self.digits * (1 if self.digits < 20 else 256)  # of float32 the sums round, too

    def random(self, shape, order):
        """Normal numbers of this type on the device, whose axes lie in this order."""
        made = random(*(shape[axis] for axis in order)).astype(self.dtype)
        return made.transpose(np.argsort(order).tolist())


KINDS = [
    Kind("float32", np.dtype(np.float32), 23),
    Kind("tf32", np.dtype(np.float32), 9),  # both operands are rounded to 10 bits
    Kind("float16", np.dtype(np.float16), 9),
    Kind("bfloat16", np.dtype(ml_dtypes.bfloat16), 6),
]


def set_torch(kind):
    """Have PyTorch compute as the Kind says, with sums in float32."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = kind.name == "tf32"
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.backends.cudnn.benchmark = True


def in_torch(array):
    """An array of CuPy as a Tensor of PyTorch on the same memory."""
    import torch

    if array.dtype.name != "bfloat16":
        return torch.from_dlpack(array)
    return torch.from_dlpack(array.view(cupy.uint16).view(cupy.int16)).view(torch.bfloat16)


def contest(found, kind, case, result, exact, calls, peers, work):
    """Check the calls {rung: call} that write a result, and time those that are right beside the calls of PyTorch.

    case: what a row says of it; of the result, the elements that `exact` has are compared; work: multiplications
    """
    right, largest = dict(peers), float(abs(exact).max())
    for rung, call in calls.items():
        result.fill(cupy.nan)
        try:
            call()
        except ValueError:  # the rung does not fit
            if rung == "default":
                raise
            continue
        off = float(abs(result[: len(exact)].astype(cupy.float64) - exact).max()) / largest
        if off < kind.worst:
            right[rung] = call
        else:
            found["wrong"].append(f"{kind.name} {' '.join(map(str, case.values()))} {rung}: off by {off}")
    times, (library,) = medians(right, budget=BUDGET), next(iter(peers)).split(" ")[:1]
    base = min(times[name][0] for name in peers)
    for rung, (milliseconds, spread) in times.items():
        row = dict(kind=kind.name, **case, rung=rung, ms=round(milliseconds, 5), spread=round(spread, 3))
        row |= {"tflops": round(2e-9 * work / milliseconds, 2), f"of_{library}": round(base / milliseconds, 3)}
        found["rows"].append(row)
        if rung == "default":
            print(f"  {row}", flush=True)


def _measured(found, cases, compare):
    """compare(found, kind, *case) for all cases in each type."""
    found |= {"rows": [], "wrong": []}
    for kind in KINDS:
        set_torch(kind)
        with tf32(kind.name == "tf32"):
            for case in cases:
                compare(found, kind, *case)
    print(*found["wrong"], sep="\n", flush=True)
    found["failed"] = bool(found["wrong"])


# ---- products --------------------------------------------------------------------------------------------------------

SIZES = (256, 512, 1024, 2048, 4096, 8192)
LAYOUTS = {"NN": ((0, 1), (0, 1)), "NT": ((0, 1), (1, 0)), "TN": ((1, 0), (0, 1))}  # axes of both operands in memory
SHAPES = [  # M, N, K of small networks: the head of a CNN, its weight gradient, a 1x1 convolution, its weight gradient
    (64, 10, 512),
    (10, 512, 64),
    (64 * 28 * 28, 32, 16),
    (32, 16, 64 * 28 * 28),
]
SLOW = {"plain": 1024, "tiled": 2048}  # the largest size at which a rung is worth the time
RUNGS_UP_TO = 4096  # beyond it the default rung alone is measured
ROWS = 64  # of the result that are compared with float64


def _cublas(a, b, out):
    """The call of PyTorch that writes a @ b to out."""
    import torch

    return partial(torch.matmul, in_torch(a), in_torch(b), out=in_torch(out))


def _products(found, kind, m, n, k, layout):
    a, b = map(kind.random, ((m, k), (k, n)), LAYOUTS[layout])
    out = cupy.empty((m, n), kind.dtype)
    calls, size = {"default": partial(matmul.forward, a, b, None, False, out, space)}, max(m, n, k)
    for rung in product.LADDERS[product.kind_of(a.dtype)] if size <= RUNGS_UP_TO else ():
        if size <= SLOW.get(rung, RUNGS_UP_TO) and runs_on("cuda", rung):
            calls[rung] = partial(product.forward, a, b, None, False, out, space, rung)
    exact = cupy.matmul(a[:ROWS].astype(cupy.float64), b.astype(cupy.float64))
    case = dict(m=m, n=n, k=k, layout=layout)
    contest(found, kind, case, out, exact, calls, {"cublas": _cublas(a, b, out)}, m * n * k)


def products(found):
    cases = [(size, size, size, layout) for size in SIZES for layout in LAYOUTS if layout == "NN" or size == 4096]
    _measured(found, cases + [(*shape, "NN") for shape in SHAPES], _products)


# ---- convolutions ----------------------------------------------------------------------------------------------------

LAYERS = [  # name; N, C, H (= W), O, P (= Q), stride, padding
    ("keras-cnn 1", 512, 1, 28, 32, 3, 1, 0),
    ("keras-cnn 2", 512, 32, 13, 64, 3, 1, 0),
    ("lenet 1", 512, 1, 28, 6, 5, 1, 2),
    ("lenet 2", 512, 6, 14, 16, 5, 1, 0),
    ("mnist-net 2", 512, 32, 26, 64, 3, 1, 0),
    ("resnet 64", 128, 64, 32, 64, 3, 1, 1),
    ("resnet 128", 128, 128, 16, 128, 3, 1, 1),
    ("resnet 256", 128, 256, 8, 256, 3, 1, 1),
    ("resnet 512", 128, 512, 4, 512, 3, 1, 1),
    ("resnet 64-128", 128, 64, 32, 128, 3, 2, 1),
    ("resnet 64-128, 1x1", 128, 64, 32, 128, 1, 2, 0),
    ("resnet 64, one image", 1, 64, 32, 64, 3, 1, 1),
]
PLAIN_UP_TO = 2e9  # multiplications, beyond which the plain rung is not worth the time


def _ours(direction, x, w, g, geometry):
    """(the result, {rung: call that makes it})"""
    inputs, like = {
        "forward": ((x, w, None, False), g),
        "input_grad": ((g, w), x),
        "weight_grad": ((g, x), w),
    }[direction]
    memory = cupy.empty(like.size, like.dtype)
    result = cupy.ndarray(like.shape, like.dtype, memory.data, like.strides)
    calls = {"default": partial(getattr(conv2d, direction), *inputs, *geometry, result, space)}
    for rung in RUNGS:
        calls[rung] = partial(getattr(convolution, direction), *inputs, *geometry, result, space, rung=rung)
    return result, calls


def _cudnn(direction, arrays, stride, padding):
    """Calls of PyTorch in both memory layouts, and the exact result. At its first call cuDNN looks for the best way."""
    import torch

    tensors = [in_torch(cupy.ascontiguousarray(array)) for array in arrays]
    last = [tensor.to(memory_format=torch.channels_last) for tensor in tensors]

    def call(x, w, g):
        if direction == "forward":
            return torch.nn.functional.conv2d(x, w, None, stride, padding)
        mask = [direction == "input_grad", direction == "weight_grad", False]
        sizes = [stride] * 2, [padding] * 2, [1, 1], False, [0, 0], 1
        return torch.ops.aten.convolution_backward(g, x, w, None, *sizes, mask)[mask.index(True)]

    exact = cupy.from_dlpack(call(*(tensor.double() for tensor in tensors)).contiguous())
    return {"cudnn NCHW": partial(call, *tensors), "cudnn NHWC": partial(call, *last)}, exact


def _convolutions(found, kind, name, n, c, size, o, kernel, stride, padding):
    out = (size + 2 * padding - kernel) // stride + 1
    shapes = (n, c, size, size), (o, c, kernel, kernel), (n, o, out, out)
    arrays = [*map(kind.random, shapes, (CHANNELS_LAST, FILTER, CHANNELS_LAST))]
    geometry, work = ((stride, stride), (padding, padding), (1, 1), 1), arrays[2].size * c * kernel * kernel
    for direction in ("forward", "input_grad", "weight_grad"):
        theirs, exact = _cudnn(direction, arrays, stride, padding)
        result, calls = _ours(direction, *arrays, geometry)
        if work > PLAIN_UP_TO:
            calls.pop("plain")
        contest(found, kind, dict(layer=name, direction=direction), result, exact, calls, theirs, work)


def convolutions(found):
    _measured(found, LAYERS, _convolutions)
