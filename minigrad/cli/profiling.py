"""minigrad profile, and the measure of a step for the report."""

from .. import draw, ops
from ..device import manual_seed
from ..profile import measure_step
from ..train.precision import computing
from ..units import in_bytes
from .run import Run
from .settings import Settings


def profiled(settings, train, steps=1):
    """The Profile of some steps of a new network like the one that is trained, by this process alone."""
    manual_seed(settings.seed)
    model, batch = settings.build_model(), next(iter(settings.train_loader(train, prefetch=0)))
    with computing(settings.precision):
        return measure_step(model, ops.cross_entropy, batch, settings.build_optimizer(model), steps)


def run_profile(options):
    """Train for some steps, print where time and memory went, and write it down as a trace and as pictures."""
    settings, note = Settings.of(options)
    run = Run(options.out, f"profile-{settings.names[0]}")
    run.check_new()
    settings.set_threads(options.threads)
    train, _ = settings.datasets()
    said = f"{' on '.join(settings.names)}, {settings.device}: {options.steps} steps of {settings.batch_size} images\n"
    print(*filter(None, (note, said)), sep="\n")
    profile = profiled(settings.seeing(train), train, options.steps)
    for by in ("op", "layer", "kernel"):
        print(profile.table(by), end="\n\n")
    totals, (sizes, seconds) = profile.totals(), profile.peak()
    each = 1e3 * (totals["wall"] - totals["profiling"]) / options.steps
    print(f"time: {each:.3f} ms a step; milliseconds in all (device: of a GPU):")
    print(*(f"  {name:<12}{1e3 * value:>12.3f}" for name, value in totals.items()), sep="\n")
    print(f"memory: at most {in_bytes(sum(sizes.values()))}, {1e3 * seconds:.3f} ms after the begin")
    print(*(f"  {name:<12}{in_bytes(size):>12}" for name, size in sizes.items()), sep="\n")
    run.folder.mkdir(parents=True, exist_ok=True)
    profile.trace(run.folder / "trace.json")
    begin = [span.begin for span in profile.spans if span.name == "forward"][-1]  # the pictures are of the last step
    draw.save(draw.timeline(profile.timeline(begin)), run.folder / "timeline.png")
    samples = [sample for sample in profile.memory if sample[0] >= begin]
    draw.save(draw.memory(samples), run.folder / "memory.png")
    print(f"written to {run.folder}: trace.json (chrome://tracing, https://ui.perfetto.dev), timeline.png, memory.png")
    return 0
