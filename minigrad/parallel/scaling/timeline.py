"""One training step of a data-parallel network on a time axis.

    forward | backward .......................... | update
                  bucket 0 ready -> exchange 0
                         bucket 1 ready -> exchange 1
                                             last ready -> exchange, which nothing hides

Exchanges run one after another, in the order of the buckets, beside backward. What is left of them when backward
has ended is exposed: the step is longer by it. And all wait for the slowest GPU.

Math    slow = 1 + jitter sqrt(2 ln n), the expected largest of n normal deviations
        ready_i = slow (forward + backward share_i), share_i the largest of the gradients of bucket i
        end_i = max(end_(i-1), ready_i) + exchange(bytes_i)
        step = max(slow T, end_last);  exposed = step - slow T;  efficiency = T / step
Units   seconds, bytes
Source  Li and others 2020, "PyTorch Distributed", section 3.2; Dean and Barroso 2013, "The tail at scale" (waiting for
        the slowest); Gumbel 1958, "Statistics of extremes", for sqrt(2 ln n)
"""

import math
from dataclasses import dataclass, replace

from minigrad_kernels.errors import ShapeError

from ..buckets import bucket_bounds
from .exchange import all_reduce_seconds, half_seconds
from .network import check_known

__all__ = ["Plan", "Step", "best_bucket", "predicted", "simulated", "slowest"]

ELEMENT = 4  # bytes of a parameter and its gradient
WIRES = {"float32": 4, "bfloat16": 2}  # bytes of an element on its way
JITTER = 0.01
CANDIDATES = tuple(megabytes * 1_000_000 for megabytes in (1, 2, 5, 10, 25, 50, 100, 1000))


@dataclass(frozen=True)
class Plan:
    """How gradients are exchanged.

    first, bucket   bytes, as bucket_bounds takes them; None for its own choice
    wire            "float32" or "bfloat16", the form in which gradients travel
    sharded         reduce-scatter, update of one's own share, all-gather (ZeRO-1) instead of all-reduce
    overlap         exchanges run beside backward; without, all begins when backward has ended, in the same buckets
    jitter          standard deviation of a GPU's step, as a share of the step
    """

    first: float | None = None
    bucket: float | None = None
    wire: str = "float32"
    sharded: bool = False
    overlap: bool = True
    jitter: float = JITTER

    def __post_init__(self):
        check_known("wire", self.wire, WIRES)
        if not self.jitter >= 0:
            raise ShapeError(f"Plan: jitter is {self.jitter}, want at least 0")

    def bounds(self, network):
        """The buckets of a network, cut as DataParallel cuts them: by the bytes of gradients in memory."""
        return bucket_bounds([ELEMENT * size for size in network.sizes], self.first, self.bucket)


@dataclass(frozen=True)
class Step:
    """What a step takes: seconds in all, those that are exposed communication, and the efficiency, 0 to 1."""

    seconds: float
    exposed: float
    efficiency: float


def slowest(gpus, jitter):
    """How many times longer the slowest of so many GPUs takes than the average."""
    return 1 + jitter * math.sqrt(2 * math.log(gpus)) if gpus > 1 else 1.0


def simulated(network, seconds, buckets, exchange, *, slow=1.0, overlap=True, after=0.0):
    """A Step of a network that takes `seconds` alone.

    buckets     ranges of its gradients in the order of arrival
    exchange    gives the seconds of an exchange of so many elements
    slow        see slowest
    after       seconds of communication that cannot begin before the last exchange
    """
    compute, end = slow * seconds, 0.0
    backward = compute * network.backward
    for start, stop in buckets:
        share = max(network.ready[start:stop], default=1.0) if overlap else 1.0
        end = max(end, compute - backward * (1 - share)) + exchange(sum(network.sizes[start:stop]))
    total = max(compute, end) + after
    return Step(total, total - compute, seconds / total)


def predicted(network, gpus, fabric, plan, seconds=None):
    """The Step of a network on so many GPUs of a fabric.

    seconds     of a step on one GPU; default the network's own
    Errors      ValueError for fewer than 1 GPU, or a step that takes no time
    """
    seconds = network.seconds if seconds is None else seconds
    if gpus < 1:
        raise ShapeError(f"predicted: gpus is {gpus}, want at least 1")
    if not 0 < seconds < math.inf:
        raise ShapeError(f"predicted: a step takes {seconds * 1000:g} ms, want more than 0")
    width = WIRES[plan.wire]
    # Updated parameters are gathered in full precision, after the update, when nothing else is left to do.
    after = half_seconds(ELEMENT * network.parameters, gpus, fabric) if plan.sharded else 0.0
    cost = half_seconds if plan.sharded else all_reduce_seconds
    exchange = lambda elements: cost(width * elements, gpus, fabric)
    slow = slowest(gpus, plan.jitter)
    return simulated(network, seconds, plan.bounds(network), exchange, slow=slow, overlap=plan.overlap, after=after)


def best_bucket(network, gpus, fabric, plan, seconds=None):
    """Bytes of the bucket that gives the shortest step, of those worth trying; the largest of equals."""
    total = ELEMENT * network.parameters
    sizes = [size for size in CANDIDATES if size < total] + [total]

    def time(size):
        tried = predicted(network, gpus, fabric, replace(plan, bucket=size), seconds)
        return round(tried.seconds, 9), -size

    return min(sizes, key=time)
