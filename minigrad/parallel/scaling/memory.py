"""Bytes of one GPU in data-parallel training, and the largest batch that they leave room for.

Math    bytes = parameters + gradients + optimiser state + communication + context + spare (kept + moving) batch
        kept: what the tape holds for backward; moving: the gradients on their way through it; both for one image
Units   bytes
Source  Rajbhandari and others 2020, "ZeRO: memory optimizations toward training trillion parameter models", section 5
        (stage 1: optimiser state / n); NVIDIA, NCCL 2.28, user guide (NCCL_BUFFSIZE) and src/include/device.h (the
        buffers of a channel)
"""

from dataclasses import dataclass

from minigrad_kernels.errors import ShapeError

from .network import check_known
from .timeline import ELEMENT, WIRES

__all__ = ["STATES", "Memory", "memory_of"]

STATES = {"adam": 2, "sgd": 1}  # arrays beside each parameter: Adam's averages; SGD's momentum
CONTEXT = 500_000_000  # driver, libraries and kernels on a GPU, about
# A pool keeps memory in sizes and lends only what fits, and kernels want workspace: the peak of a whole step of the
# networks of minigrad.models on the CPU was 1.0 to 1.8 times kept + moving, so that much is set aside.
SPARE = 2.0
# Of one connection of a channel: LL, LL128 and Simple. A ring receives from one GPU and a tree from up to three.
BUFFERS = 524_288 + 4_915_200 + 4_194_304
CONNECTIONS = 4


@dataclass(frozen=True)
class Memory:
    """Bytes of one GPU; `image` is what each image of its batch adds, `fixed` what does not depend on the batch."""

    parameters: int
    gradients: int
    optimizer: int
    communication: int
    context: int
    image: float

    @property
    def fixed(self):
        return self.parameters + self.gradients + self.optimizer + self.communication + self.context

    def total(self, batch):
        """With a batch of so many images."""
        return self.fixed + batch * self.image

    def largest_batch(self, memory):
        """The most images that fit into so many bytes; 0 if none does."""
        return max(0, int((memory - self.fixed) // self.image))


def memory_of(network, gpus, fabric, plan, optimizer="adam"):
    """The Memory of each of `gpus` GPUs.

    optimizer   one of STATES; with plan.sharded each GPU holds one part in `gpus` of its state
    Errors      ValueError for another optimiser, or fewer than 1 GPU
    """
    check_known("optimizer", optimizer, STATES)
    if gpus < 1:
        raise ShapeError(f"memory_of: gpus is {gpus}, want at least 1")
    count = network.parameters
    held = -(-count // gpus) if plan.sharded else count
    return Memory(
        parameters=ELEMENT * count,
        gradients=ELEMENT * count,
        optimizer=ELEMENT * STATES[optimizer] * held,
        communication=_communication(network, fabric, plan) if gpus > 1 else 0,
        context=CONTEXT,
        image=SPARE * (network.kept + network.moving),
    )


def _communication(network, fabric, plan):
    """NCCL's own buffers; on a 16-bit wire also a bucket in that form, and what arrives of it.

    Gradients of 32 bits need no more: they lie in their buckets already.
    """
    nbytes = fabric.channels * CONNECTIONS * BUFFERS
    if WIRES[plan.wire] < ELEMENT:
        largest = max(sum(network.sizes[start:stop]) for start, stop in plan.bounds(network))
        nbytes += 2 * WIRES[plan.wire] * largest
    return nbytes
