"""minigrad profile"""

from .. import draw, parallel
from ..checkpoint import versions
from ..profile import Profile
from ..train import Callback, History
from ..units import in_bytes
from .run import Run
from .settings import Parts, Settings

__all__ = ["run_profile"]

WARMING = 2  # steps that come before, in which kernels are compiled and memory is made


class _Until(Callback):
    """Ends a training after so many updates in all."""

    def __init__(self, steps):
        self.steps = steps

    def stop(self, history):
        return history.steps >= self.steps


def run_profile(options):
    """Train for some steps, print where time and memory went, and write it down as a trace and as pictures."""
    count = options.steps
    settings, note = Settings.of(options)
    run = Run(options.out, f"profile-{settings.model}")
    run.check_new()
    settings.set_threads(options.threads)
    parts, history = Parts(settings, *settings.datasets(), parallel.init("local")), History()
    print(
        f"{note}\n" * bool(note)
        + f"{settings.model} on {settings.data}, {settings.device}: steps of {settings.batch_size} images"
    )
    train = lambda steps: parts.fit(1 << 30, history=history, test=None, schedule=None, callbacks=[_Until(steps)])
    train(WARMING)
    with Profile(parts.model, optimizer=parts.optimizer) as profile:
        train(WARMING + count)
    print(f"{count} steps recorded after {WARMING} others\n")
    for by in ("op", "layer", "kernel"):
        print(profile.table(by), end="\n\n")
    totals, (sizes, seconds) = profile.totals(), profile.peak()
    each = 1e3 * (totals["wall"] - totals["profiling"]) / count
    print(f"time: {each:.3f} ms a step; milliseconds in all (device: of a GPU; overlap: of both):")
    print(*(f"  {name:<12}{1e3 * value:>12.3f}" for name, value in totals.items()), sep="\n")
    print(f"memory: at most {in_bytes(sum(sizes.values()))}, {1e3 * seconds:.3f} ms after the begin")
    print(*(f"  {name:<12}{in_bytes(size):>12}" for name, size in sizes.items()), sep="\n")
    folder = run.folder
    folder.mkdir(parents=True, exist_ok=True)
    profile.trace(folder / "trace.json")
    updates = [span.end for span in profile.spans if span.kind == "update"]
    begin = updates[-2] if len(updates) > 1 else 0.0  # the pictures are of the last step
    draw.save(draw.timeline(profile.timeline(begin)), folder / "timeline.png")
    draw.save(draw.memory([sample for sample in profile.memory if sample[0] >= begin]), folder / "memory.png")
    found = {"command": ["minigrad", *options.argv], "versions": versions(), "totals": totals}
    found |= {"peak": {"seconds": seconds, "bytes": sizes}} | {
        by: [vars(row) for row in profile.rows(by)] for by in ("op", "layer", "kernel")
    }
    run.write("profile.json", found)
    trace = "trace.json (chrome://tracing, https://ui.perfetto.dev)"
    print(f"written to {folder}: {trace}, timeline.png, memory.png, profile.json")
    return 0
