"""minigrad profile"""

import json
import time
from dataclasses import replace
from pathlib import Path

from tqdm import tqdm

from .. import draw, parallel
from ..checkpoint.versions import versions
from ..profile import Profile
from ..train import Callback, History, fit
from ..units import in_bytes
from .parts import Parts
from .run import Run
from .settings import Settings, chosen_data, kernel_threads, refusing

__all__ = ["run_profile"]

STEPS, WARMING = 5, 2  # that are recorded; that come before, in which kernels are compiled and memory is made
EVERY_EPOCH = 1 << 30


class _Steps(Callback):
    """Ends a training after so many updates, with a bar on a terminal."""

    def __init__(self, count, what):
        self.left, self.bar = count, tqdm(total=count, desc=what, unit=" steps", leave=False, disable=None)

    def on_step(self, history):
        self.left -= 1
        self.bar.update()

    def stop(self, history):
        if not self.left:
            self.bar.close()
        return not self.left


def run_profile(options):
    """Train for some steps, print where time and memory went, and write it down as a trace and as pictures."""
    with refusing():
        name, note = chosen_data(options.data, options.data_dir)
        settings = replace(Settings.of(options, name), new_writers=False)
        folder = _folder(options.out, settings)
    print(f"data auto: {note}\n" if note else "", end="")
    with kernel_threads(options.threads or settings.threads):
        with refusing():
            parts = Parts(settings, *settings.datasets(), parallel.init("local"))
        count = options.steps or STEPS
        print(f"{settings.model} on {settings.data}, {settings.device}: steps of {settings.batch_size} images")
        profile = _recorded(settings, parts, count)
    print(f"{count} steps recorded after {WARMING} others\n")
    for by in ("op", "layer", "kernel"):
        print(profile.table(by, "order" if by == "layer" else "time"), end="\n\n")
    for line in (*_times(profile, count), *_memory(profile)):
        print(line)
    _write(folder, profile, options.argv)
    trace = "trace.json (chrome://tracing, https://ui.perfetto.dev)"
    print(f"written to {folder}: {trace}, timeline.png, memory.png, profile.json")
    return 0


def _folder(given, settings):
    """Where the files go. Errors: UsageError if it cannot be written or holds a run."""
    stamp = f"{time.strftime('%Y%m%d-%H%M%S')}-profile-{settings.model}"
    return Run.fresh(given or Path("runs") / stamp, settings).folder


def _recorded(settings, parts, count):
    """The Profile of so many steps, in the training loop of the package."""
    history = History()

    def train(steps, what):
        fit(
            parts.model,
            parts.loader,
            parts.optimizer,
            EVERY_EPOCH,
            accumulate=settings.accumulate,
            clip=settings.clip,
            history=history,
            callbacks=[_Steps(steps, what)],
        )

    train(WARMING, "warming up")
    with Profile(parts.model, optimizer=parts.optimizer) as profile:
        train(count, "recording")
    return profile


def _times(profile, count):
    """Host, device and their overlap, in words."""
    found = {name: 1e3 * seconds for name, seconds in profile.totals().items()}
    each = (found["wall"] - found["profiling"]) / count
    yield f"time: {each:.3f} ms a step; {found['wall']:.3f} ms in all, {found['profiling']:.3f} of it by profiling"
    yield f"host: {found['host']:.3f} ms in operations and updates, {found['kernels']:.3f} of it in kernels"
    if found["device"]:
        share = 100 * found["overlap"] / found["device"]
        yield f"device: {found['device']:.3f} ms, {found['overlap']:.3f} of it ({share:.1f} %) beside work of the host"
    else:
        yield "device: none beside the host"


def _memory(profile):
    """The fullest moment, by category."""
    sizes, seconds = profile.peak()
    yield f"memory: at most {in_bytes(sum(sizes.values()))}, {1e3 * seconds:.3f} ms after the begin"
    for name, size in sizes.items():
        yield f"  {name:<12}{in_bytes(size) if size else 'none':>12}"


def _write(folder, profile, command):
    """The trace of all steps; pictures of the last; what was printed, as JSON."""
    folder.mkdir(parents=True, exist_ok=True)
    run = Run(folder)
    profile.trace(folder / "trace.json")
    updates = [span.end for span in profile.spans if span.kind == "update"]
    begin = updates[-2] if len(updates) > 1 else 0.0
    draw.save(draw.timeline(profile.timeline(begin)), folder / "timeline.png")
    draw.save(draw.memory([sample for sample in profile.memory if sample[0] >= begin]), folder / "memory.png")
    tables = {by: [vars(row) for row in profile.rows(by)] for by in ("op", "layer", "kernel")}
    about = {"command": ["minigrad", *command], "versions": versions(), "totals": profile.totals()}
    sizes, seconds = profile.peak()
    run.write(
        "profile.json", json.dumps(about | {"peak": {"seconds": seconds, "bytes": sizes}} | tables, indent=1) + "\n"
    )
