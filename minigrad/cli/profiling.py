"""minigrad profile"""

import itertools

from .. import draw, parallel
from ..checkpoint import versions
from ..profile import Profile
from ..train import Trainer
from ..units import in_bytes
from .run import Run, Training
from .settings import Settings

__all__ = ["run_profile"]

WARMING = 2  # steps that come before, in which kernels are compiled and memory is made


def run_profile(options):
    """Train for some steps, print where time and memory went, and write it down as a trace and as pictures."""
    count = options.steps
    settings, note = Settings.of(options)
    run = Run(options.out, f"profile-{settings.names[0]}")
    run.check_new()
    settings.set_threads(options.threads)
    training = Training(settings, *settings.datasets(), parallel.init())
    said = f"{' on '.join(settings.names)}, {settings.device}: steps of {settings.batch_size} images"
    print(*filter(None, (note, said)), sep="\n")
    trainer = Trainer(training.model, training.optimizer)
    batches = itertools.chain.from_iterable(itertools.repeat(training.loader))
    for batch in itertools.islice(batches, WARMING):
        trainer.update(batch)
    with Profile(training.model, optimizer=training.optimizer) as profile:
        for batch in itertools.islice(batches, count):
            trainer.update(batch)
        trainer.history.close()
    print(f"{count} steps recorded after {WARMING} others\n")
    tables = {by: profile.rows(by) for by in ("op", "layer", "kernel")}
    for by in tables:
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
    found |= {"peak": {"seconds": seconds, "bytes": sizes}}
    run.write("profile.json", found | {by: [vars(row) for row in rows] for by, rows in tables.items()})
    trace = "trace.json (chrome://tracing, https://ui.perfetto.dev)"
    print(f"written to {folder}: {trace}, timeline.png, memory.png, profile.json")
    return 0
