"""minigrad scale"""

from dataclasses import replace

from .settings import UsageError, refusing

__all__ = ["add_scale", "run_scale"]

GPUS = (1, 8, 32, 64, 256, 1024)
MEGABYTE, GIGABYTE = 1_000_000, 1_000_000_000
NOTE = """\
PREDICTION: a model, not a measurement; no GPU took part. Latencies are those of NCCL's tuning table, bandwidths about
90 % of the wire, a step varies by 1 % from GPU to GPU and all wait for the slowest. See examples/docs/scaling.md."""


def add_scale(parser):
    """The arguments of the command; their values are checked when it runs."""
    parser.set_defaults(action=run_scale)
    add = parser.add_argument
    add("networks", nargs="*", metavar="NETWORK", help="keras-cnn, lenet, mnist-net, resnet; resnet-18, resnet-50, "
        "vgg-16 (224 x 224 images); default keras-cnn, resnet, resnet-50 and vgg-16")  # fmt: skip
    add("--gpus", nargs="+", type=int, default=GPUS, metavar="N", help="default 1 8 32 64 256 1024")
    add("--fabric", nargs="+", metavar="NAME", help="nvlink-8x400, nvlink-1x400, pcie-1x100, tcp-25; default all")
    add("--step-ms", type=float, metavar="X", help="milliseconds of a step on one GPU; default: assumed, printed")
    add("--measure", action="store_true", help="measure the step of our own networks on this CPU instead")
    add("--batch", type=int, metavar="N", help="images of a step on one GPU; default: of each network, printed")
    add(
        "--bucket-mb",
        type=float,
        metavar="B",
        help="megabytes of a bucket; default an eighth of the gradients, 1 to 25",
    )
    add("--first-mb", type=float, metavar="F", help="megabytes of the first and the last bucket; default 1")
    add("--wire", default="float32", metavar="TYPE", help="float32 (default) or bfloat16: how gradients travel")
    add("--memory-gb", type=float, default=80.0, metavar="M", help="gigabytes of a GPU; default 80")
    add("--optimizer", default="adam", metavar="NAME", help="adam (default) or sgd (with momentum)")
    add("--zero", action="store_true", help="share the optimiser's state among GPUs (ZeRO-1)")
    add("--no-overlap", action="store_true", help="exchange gradients only when backward has ended")


def run_scale(options):
    """Print efficiency, exposed time, bucket sizes and memory of networks on fabrics."""
    from ..parallel import scaling

    with refusing():
        _check(options)
        plan = scaling.Plan(
            first=_bytes(options.first_mb, MEGABYTE),
            bucket=_bytes(options.bucket_mb, MEGABYTE),
            wire=options.wire,
            sharded=options.zero,
            overlap=not options.no_overlap,
        )
        fabrics = [scaling.fabric(name) for name in options.fabric or scaling.FABRICS]
        names = options.networks or ("keras-cnn", "resnet", "resnet-50", "vgg-16")
        for name in names:
            scaling.check_known("network", name, scaling.NETWORKS)
        networks = [_network(scaling, name, options) for name in names]
        pages = ["\n".join(_page(scaling, network, fabrics, plan, options)) for network in networks]
    print(NOTE, *pages, sep="\n\n")
    return 0


def _check(options):
    """Refuse numbers out of range."""
    for name in ("step_ms", "batch", "bucket_mb", "first_mb", "memory_gb"):
        value = getattr(options, name)
        if value is not None and not 0 < value < float("inf"):
            raise UsageError(f"--{name.replace('_', '-')} is {value:g}, want a number above 0")
    for count in options.gpus:
        if count < 1:
            raise UsageError(f"--gpus is {count}, want at least 1")
    if options.measure and options.step_ms is not None:
        raise UsageError("--measure and --step-ms both say how long a step takes; give one of them")


def _bytes(value, unit):
    return None if value is None else value * unit


def _network(scaling, name, options):
    """The Network with the batch and the step that the options say."""
    network = scaling.network(name)
    batch = options.batch or network.batch
    if options.step_ms is not None:
        return replace(network, batch=batch, seconds=options.step_ms / 1000, origin="as --step-ms says")
    if options.measure:
        if name not in scaling.OWN:
            own = ", ".join(scaling.OWN)
            raise UsageError(f"--measure runs our own networks alone ({own}); for {name} give --step-ms")
        seconds = scaling.step_seconds(name, batch)
        return replace(network, batch=batch, seconds=seconds, origin="measured here, on the CPU")
    seconds = network.seconds * batch / network.batch
    return replace(network, batch=batch, seconds=seconds, origin="assumed; state yours by --step-ms")


def _page(scaling, network, fabrics, plan, options):
    """The lines about one network."""
    gradients = 4 * network.parameters
    held = [4 * sum(network.sizes[start:stop]) / MEGABYTE for start, stop in plan.bounds(network)]
    yield f"{network.name}: {network.parameters:,} parameters, {gradients / MEGABYTE:.1f} MB of gradients"
    yield (
        f"  step on one GPU: {network.seconds * 1000:.4g} ms for {network.batch} images "
        f"({network.origin}), of it backward {100 * network.backward:.0f} %"
    )
    ways = "reduce-scatter and all-gather (ZeRO-1)" if plan.sharded else "all-reduce"
    when = "beside backward" if plan.overlap else "after backward"
    yield f"  exchange: {ways} as {plan.wire}, {when}; MB of the {_number(len(held))}: {_listed(held)}"
    yield "  predicted efficiency, % (exposed communication, ms)"
    yield from _efficiencies(scaling, network, fabrics, plan, options)
    yield f"  predicted memory of a GPU, MB (communication: {fabrics[0].title})"
    yield from _memories(scaling, network, fabrics[0], plan, options)


def _number(count):
    return "1 bucket" if count == 1 else f"{count} buckets"


def _listed(sizes):
    return ", ".join(map(_three, sizes))


def _three(value):
    """Three digits, and no power of ten."""
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"


def _efficiencies(scaling, network, fabrics, plan, options):
    most = max(options.gpus)
    yield _row("GPUs", [str(count) for count in options.gpus], f"best bucket at {most}")
    for fabric in fabrics:
        steps = [scaling.predicted(network, count, fabric, plan) for count in options.gpus]
        cells = [f"{100 * step.efficiency:.1f} ({_three(1000 * step.exposed)})" for step in steps]
        best = scaling.best_bucket(network, most, fabric, plan) / MEGABYTE if most > 1 else None
        yield _row(fabric.title, cells, "-" if best is None else f"{_three(best)} MB")


def _memories(scaling, network, fabric, plan, options):
    """The parts of the memory, with and without sharded optimiser state, by the number of GPUs."""
    whole, shared = (
        [
            scaling.memory_of(network, count, fabric, replace(plan, sharded=sharded), options.optimizer)
            for count in options.gpus
        ]
        for sharded in (False, True)
    )
    chosen = shared if plan.sharded else whole
    megabytes = lambda values: [f"{value / MEGABYTE:,.1f}" for value in values]
    yield _row("GPUs", [str(count) for count in options.gpus])
    yield _row("parameters", megabytes(one.parameters for one in chosen))
    yield _row("gradients", megabytes(one.gradients for one in chosen))
    yield _row(f"state of {options.optimizer}", megabytes(one.optimizer for one in whole))
    yield _row(f"state of {options.optimizer}, ZeRO-1", megabytes(one.optimizer for one in shared))
    yield _row("communication buffers", megabytes(one.communication for one in chosen))
    yield _row("driver and libraries", megabytes(one.context for one in chosen))
    yield _row(f"activations of {network.batch} images", megabytes(one.image * network.batch for one in chosen))
    yield _row(f"sum{' with ZeRO-1' * plan.sharded}", megabytes(one.total(network.batch) for one in chosen))
    largest = [f"{one.largest_batch(options.memory_gb * GIGABYTE):,}" for one in chosen]
    yield _row(f"largest batch in {options.memory_gb:g} GB", largest)


def _row(name, cells, last=""):
    return f"  {name:<31}" + "".join(f"{cell:>15}" for cell in cells) + f"   {last}".rstrip()
