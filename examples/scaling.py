"""How data-parallel training will scale: a model, not a measurement.

python examples/scaling.py resnet-50 --fabric nvlink-1x400 pcie-1x100 --step-ms 45 --batch 32

Prints efficiency, exposed communication and memory for 1 to 1024 GPUs. docs/scaling.md has the formulas and says where
the constants come from.
"""

import argparse
import math
from typing import NamedTuple

from minigrad.parallel.buckets import bucket_bounds

MICROSECOND, MEGABYTE = 1e-6, 1_000_000

# ---- networks --------------------------------------------------------------------------------------------------------


class Layer(NamedTuple):
    parameters: tuple  # elements of each
    macs: int  # multiply-adds of an image in forward
    kept: int  # bytes of an image that wait for backward
    output: int  # bytes of the result for an image


class Network(NamedTuple):
    """What the model must know of a network; `batch` images take `seconds` on one GPU."""

    name: str
    sizes: tuple  # elements of each parameter, in the order in which gradients arrive
    ready: tuple  # for each, the share of backward after which its gradient is complete
    backward: float  # the share of backward in a step
    kept: float
    moving: float  # bytes of an image: the gradient that a layer is given and the one that it makes
    batch: int
    seconds: float


def assembled(name, layers, batch, seconds):
    """A Network of Layers in the order of forward, which backward takes from the last to the first."""
    costs = [2 * layer.macs for layer in layers]  # in backward: the gradient of the weights and that of the input,
    first = next((index for index, cost in enumerate(costs) if cost), 0)
    costs[first] //= 2  # which the first layer does without
    total, spent, arriving = sum(costs), 0, []
    for layer, cost in zip(reversed(layers), reversed(costs), strict=True):
        spent += cost
        arriving += [(size, spent / total if total else 1.0) for size in reversed(layer.parameters)]
    sizes, ready = zip(*arriving, strict=True)
    share = total / (total + sum(layer.macs for layer in layers)) if total else 2 / 3
    kept, moving = sum(layer.kept for layer in layers), 2 * max(layer.output for layer in layers)
    return Network(name, sizes, ready, share, kept, moving, batch, seconds)


def convolution(inputs, outputs, taps, size, stride=1, bias=False):
    weights, out = outputs * inputs * taps**2, size // stride
    return Layer((weights, outputs)[: 1 + bias], weights * out**2, 4 * inputs * size**2, 4 * outputs * out**2)


def norm(channels, size):
    return Layer((channels, channels), 0, 4 * channels * size**2, 4 * channels * size**2)


def pool(channels, size):
    """It keeps its input, the result of a ReLU, and a position of 4 bytes for each result."""
    out = 4 * channels * (size // 2) ** 2
    return Layer((), 0, 4 * channels * size**2 + out, out)


def linear(inputs, outputs):
    return Layer((outputs * inputs, outputs), outputs * inputs, 4 * inputs, 4 * outputs)


def resnet_50():
    """Source  He, Zhang, Ren and Sun 2016, table 1; a stride of 2 stands in the 3x3 convolution, as in torchvision"""
    layers, channels, size = [convolution(3, 64, 7, 224, 2), norm(64, 112), pool(64, 112)], 64, 56
    for stage, count in enumerate((3, 4, 6, 3)):
        for index in range(count):
            narrow, wide, stride = 64 << stage, 256 << stage, 2 if stage and not index else 1
            out = size // stride
            layers += [convolution(channels, narrow, 1, size), norm(narrow, size)]
            layers += [convolution(narrow, narrow, 3, size, stride), norm(narrow, out)]
            layers += [convolution(narrow, wide, 1, out), norm(wide, out)]
            if channels != wide:  # a shortcut, whose input is kept already
                layers += [convolution(channels, wide, 1, size, stride)._replace(kept=0), norm(wide, out)]
            channels, size = wide, out
    return [*layers, Layer((), 0, 4 * channels * size**2, 4 * channels), linear(channels, 1000)]


def vgg_16():
    """Source  Simonyan and Zisserman 2015, table 1, column D"""
    layers, channels, size = [], 3, 224
    for filters, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            layers.append(convolution(channels, filters, 3, size, bias=True))
            channels = filters
        layers.append(pool(channels, size))
        size //= 2
    return [*layers, linear(channels * size**2, 4096), linear(4096, 4096), linear(4096, 1000)]


NETWORKS = {  # the steps are assumed
    "resnet-50": lambda: assembled("resnet-50", resnet_50(), 64, 0.09),
    "vgg-16": lambda: assembled("vgg-16", vgg_16(), 64, 0.12),
}

# ---- exchanges -------------------------------------------------------------------------------------------------------


class Fabric(NamedTuple):
    """How GPUs are joined, in bytes a second each way."""

    title: str
    gpus: int  # of a machine
    inside: float  # between the GPUs of a machine
    between: float  # of all network ports of a machine
    nvlink: bool = False  # else PCIe
    switched: float = 0.0  # of all-reduces that the NVLink switch adds up itself
    latency: float = 0.0  # seconds that data and their flag take on the network beyond NCCL's own figure
    channels: int = 16  # rings that NCCL runs side by side, each with buffers of its own


WIRE = 0.9 * 1e9 / 8  # bytes a second that are reached, of a Gb/s
FABRICS = {
    "nvlink-8x400": Fabric("8 GPUs by NVLink, 8 x 400 Gb/s", 8, 18 * 20.6e9, 3200 * WIRE, True, 470e9),
    "nvlink-1x400": Fabric("8 GPUs by NVLink, 1 x 400 Gb/s", 8, 18 * 20.6e9, 400 * WIRE, True, 470e9),
    "pcie-1x100": Fabric("8 GPUs by PCIe 4, 1 x 100 Gb/s", 8, 20e9, 100 * WIRE, channels=4),
    "tcp-25": Fabric("1 GPU a machine, 25 Gb/s TCP", 1, 20e9, 25 * WIRE, latency=30e-6, channels=2),
}
# Of NCCL's protocols LL, LL128 (by NVLink alone) and Simple: microseconds of an exchange, of a step over NVLink, PCIe
# and a network, and the share of the bandwidth that carries data.
RING = ((6.6, 0.6, 1.0, 2.7, 0.5), (14.0, 1.9, 2.5, 4.0, 0.92), (8.4, 3.4, 5.7, 14.0, 1.0))
TREE = ((6.8, 0.6, 1.0, 5.0, 0.24), (14.0, 1.25, 1.9, 8.5, 0.86), (8.4, 4.0, 4.0, 14.0, 0.92))
SWITCH, BETWEEN_SWITCHES, LAUNCH = 25.0, 14.0, 8.0  # microseconds, the first two where the NVLink switch adds


def all_reduce_seconds(nbytes, gpus, fabric):
    """Seconds until each GPU has the sum of their arrays: the least over NCCL's algorithms and protocols.

    Source  NVIDIA, NCCL 2.28, src/graph/tuning.cc
    """
    if gpus == 1:
        return 0.0
    machines = -(-gpus // fabric.gpus)
    bandwidth = fabric.inside if machines == 1 else min(fabric.inside, fabric.between)
    rings, trees = (RING, TREE) if fabric.nvlink else (RING[::2], TREE[::2])
    levels, volume = math.log2(machines), 2 * (gpus - 1) / gpus * nbytes
    ways = [(2 * (gpus - machines), 2 * (machines - 1), volume, row) for row in rings]
    ways += [(2 * (min(gpus, fabric.gpus) - 1), 2 * levels, 2 * nbytes, row) for row in trees]
    found = []
    for inner, crossing, moved, (base, nvlink, pcie, network, share) in ways:
        steps = inner * (nvlink if fabric.nvlink else pcie) + crossing * network
        found.append(MICROSECOND * (base + steps) + crossing * fabric.latency + moved / (share * bandwidth))
    if fabric.switched:
        narrowest = fabric.switched if machines == 1 else min(fabric.switched, fabric.between)
        found.append(MICROSECOND * (SWITCH + 2 * levels * BETWEEN_SWITCHES) + volume / narrowest)
    return MICROSECOND * LAUNCH + min(found)


# ---- a step ----------------------------------------------------------------------------------------------------------


class Plan(NamedTuple):
    """How gradients are exchanged; sharded: reduce-scatter, update of one's share, all-gather (ZeRO-1)."""

    bucket: float | None = None  # bytes; None: DataParallel's own choice
    first: float | None = None
    wire: int = 4  # bytes of an element on its way
    sharded: bool = False
    overlap: bool = True  # exchanges run beside backward
    jitter: float = 0.01  # standard deviation of a GPU's step, as a share of the step

    def bounds(self, network):
        return bucket_bounds([4 * size for size in network.sizes], self.first, self.bucket)


class Step(NamedTuple):
    seconds: float
    exposed: float  # seconds of communication that nothing hides
    efficiency: float


def simulated(network, seconds, buckets, exchange, slow=1.0, overlap=True, after=0.0):
    """A Step of a network that takes `seconds` alone; exchange(elements) and what comes after the last are seconds."""
    compute, end = slow * seconds, 0.0
    for start, stop in buckets:
        share = max(network.ready[start:stop]) if overlap else 1.0
        ready = compute * (1 - network.backward * (1 - share))
        end = max(end, ready) + exchange(sum(network.sizes[start:stop]))
    total = max(compute, end) + after
    return Step(total, total - compute, seconds / total)


def predicted(network, gpus, fabric, plan):
    """The Step of a network on so many GPUs of a fabric; all wait for the slowest."""
    slow = 1 + plan.jitter * math.sqrt(2 * math.log(gpus))
    half = 0.5 if plan.sharded else 1.0  # a reduce-scatter is half of an all-reduce, the all-gather the other
    exchange = lambda elements: half * all_reduce_seconds(plan.wire * elements, gpus, fabric)
    after = half * all_reduce_seconds(4 * sum(network.sizes), gpus, fabric) if plan.sharded else 0.0
    return simulated(network, network.seconds, plan.bounds(network), exchange, slow, plan.overlap, after)


# ---- memory ----------------------------------------------------------------------------------------------------------

BUFFERS = 4 * (524_288 + 4_915_200 + 4_194_304)  # of NCCL for a channel: LL, LL128 and Simple of four connections
CONTEXT = 500_000_000  # bytes of driver, libraries and kernels, about
SPARE = 2  # a pool rounds up, and kernels want workspace


def memory(network, gpus, fabric, plan, gigabytes):
    """({what: bytes} of a GPU by Adam, the most images that fit into so many GB)."""
    count = sum(network.sizes)
    parts = {
        "parameters": 4 * count,
        "gradients": 4 * count,
        "state of Adam": 8 * (-(-count // gpus) if plan.sharded else count),
        "communication buffers": fabric.channels * BUFFERS * (gpus > 1),
        "driver and libraries": CONTEXT,
    }
    fixed, image = sum(parts.values()), SPARE * (network.kept + network.moving)
    parts |= {f"{network.batch} images": network.batch * image, "sum": fixed + network.batch * image}
    return parts, max(0, int((1e9 * gigabytes - fixed) // image))


# ---- the command -----------------------------------------------------------------------------------------------------


def row(name, cells):
    return f"  {name:<31}" + "".join(f"{cell:>15}" for cell in cells)


def page(network, fabrics, plan, gpus, gigabytes):
    """The lines about one network."""
    held = [4 * sum(network.sizes[start:stop]) / MEGABYTE for start, stop in plan.bounds(network)]
    yield f"\n{network.name}: {sum(network.sizes):,} parameters, MB of buckets: {', '.join(f'{x:.3g}' for x in held)}"
    yield f"  step on one GPU: {1000 * network.seconds:.4g} ms for {network.batch} images; --step-ms states yours"
    yield row("efficiency, % (exposed, ms)", [f"{count} GPUs" for count in gpus])
    for fabric in fabrics:
        steps = [predicted(network, count, fabric, plan) for count in gpus]
        yield row(fabric.title, [f"{100 * step.efficiency:.1f} ({1000 * step.exposed:.3g})" for step in steps])
    yield row("memory of a GPU, MB", [f"{count} GPUs" for count in gpus])
    found = [memory(network, count, fabrics[0], plan, gigabytes) for count in gpus]
    for name in found[0][0]:
        yield row(name, [f"{parts[name] / MEGABYTE:,.1f}" for parts, _ in found])
    yield row(f"largest batch in {gigabytes:g} GB", [f"{batch:,}" for _, batch in found])


def main(words=None):
    parser = argparse.ArgumentParser(description="Predict how training scales to many GPUs.")
    add = parser.add_argument
    add("networks", nargs="*", metavar="NETWORK", help=f"of {', '.join(NETWORKS)}; default resnet-50")
    add("--gpus", nargs="+", type=int, default=(1, 8, 32, 64, 256, 1024))
    add("--fabric", nargs="+", choices=FABRICS, default=list(FABRICS))
    add("--step-ms", type=float, help="milliseconds of a step on one GPU; default: assumed")
    add("--batch", type=int, help="images of a step on one GPU; default: of each network")
    add("--bucket-mb", type=float, help="megabytes of a bucket; default an eighth of the gradients, 1 to 25")
    add("--bfloat16", dest="wire", action="store_const", const=2, default=4, help="gradients travel in 16 bits")
    add("--memory-gb", type=float, default=80.0, help="gigabytes of a GPU")
    add("--zero", action="store_true", help="share the optimiser's state among GPUs (ZeRO-1)")
    add("--no-overlap", action="store_true", help="exchange gradients only when backward has ended")
    options = parser.parse_args(words)
    if unknown := set(options.networks) - set(NETWORKS):
        parser.error(f"{', '.join(sorted(unknown))}: wanted networks of {', '.join(NETWORKS)}")
    if min(options.gpus) < 1:
        parser.error(f"--gpus is {min(options.gpus)}, wanted at least 1")
    bucket = options.bucket_mb and options.bucket_mb * MEGABYTE
    plan = Plan(bucket, wire=options.wire, sharded=options.zero, overlap=not options.no_overlap)
    print("PREDICTION: a model, not a measurement; no GPU took part. See examples/docs/scaling.md")
    for name in options.networks or ["resnet-50"]:
        network = NETWORKS[name]()
        batch = options.batch or network.batch
        seconds = options.step_ms / 1000 if options.step_ms else network.seconds * batch / network.batch
        network = network._replace(batch=batch, seconds=seconds)
        fabrics = [FABRICS[name] for name in options.fabric]
        print(*page(network, fabrics, plan, options.gpus, options.memory_gb), sep="\n")


if __name__ == "__main__":
    main()
