"""minigrad train"""

import contextlib

from ..train import History, Progress, evaluate, fit
from .interruption import Interruption
from .run import Run, Saver
from .settings import Parts, Settings, UsageError, checked_folder, chosen_data, kernel_threads, refusing

__all__ = ["run_train"]

FREE_WITH_RESUME = {"resume", "device", "threads", "data_dir", "command", "action", "argv"}
INTERRUPTED = 130


def run_train(options):
    """Train, keep everything in a run folder, and print the accuracy on the test images."""
    with refusing():
        run, settings, note = _resumed(options) if options.resume is not None else _new(options)
    with kernel_threads(options.threads or settings.threads):
        return _train(options, run, settings, note)


def _train(options, run, settings, note):
    with refusing():
        train, test = settings.datasets()
        parts, history = Parts(settings, train, test), History()
        settings.check_new_writers()
        if options.resume:
            run.load(parts, history)
    if note:
        print(f"data auto: {note}")
    print(f"data: {settings.data}, {len(train)} training and {len(test)} test images ({train.source})")
    count = sum(parameter.numel() for parameter in parts.model.parameters())
    print(f"model: {settings.model}, {count:,} parameters")
    print(f"run: {run.folder}" + (f", from step {history.steps} on" if options.resume else ""))
    with Interruption() as interruption:
        if not options.resume:
            run.begin(settings, options.argv, train, parts, history)
        _fit(run, settings, parts, history, [interruption])
        new_writers = None
        if settings.new_writers and not interruption.requested:
            new_writers = _accuracy_on_new_writers(settings, interruption)
        if interruption.requested:
            print(f"interrupted at step {history.steps}; go on with: minigrad train --resume {run.argument}")
            return INTERRUPTED
    _finish(run, history, new_writers)
    return 0


def _new(options):
    """(run, settings, what to say about the data) of a run that begins."""
    name, note = chosen_data(options.data, options.data_dir)
    settings = Settings.of(options, name)
    return Run.fresh(options.out, settings), settings, note


def _resumed(options):
    """(run, settings, nothing to say) of a run that goes on."""
    given = [name for name, value in vars(options).items() if value is not None and name not in FREE_WITH_RESUME]
    if given:
        named = ", ".join("--" + name.replace("_", "-") for name in given)
        raise UsageError(f"--resume goes on with the run's own options; leave out {named}")
    run, settings, _ = Run.of(options.resume)
    if options.data_dir is not None:
        settings.data_dir = checked_folder(options.data_dir)
    settings.device = options.device or settings.device
    return run, settings, None


def _fit(run, settings, parts, history, callbacks):
    """Train to the end or the interruption; either way the folder then holds the state that was reached."""
    positional, named = parts.fit_arguments(settings)
    progress = Progress(len(parts.loader.dataset), settings.epochs)
    with contextlib.closing(progress):
        fit(*positional, **named, history=history, callbacks=[Saver(run, parts), progress, *callbacks])
    if history.running.images:
        run.save("last", parts, history)
    run.write_curve(history)


def _accuracy_on_new_writers(settings, interruption):
    """Train a second network on the first half of the writers, and measure it on the others."""
    print("extra: training again on half of the writers alone, to test on the others ...", flush=True)
    parts = Parts(settings, *settings.datasets("writers"))
    positional, named = parts.fit_arguments(settings)
    fit(*positional, **named | {"test": None}, callbacks=[interruption])
    if interruption.requested:
        return None
    loss, accuracy = evaluate(parts.model, parts.test)
    print(f"test accuracy on new writers {100 * accuracy:.2f} %", flush=True)
    return {"test_loss": loss, "test_accuracy": accuracy}


def _finish(run, history, new_writers):
    row = history[-1]
    result = {name: row[name] for name in ("epoch", "step", "test_loss", "test_accuracy")}
    run.write_json("result.json", result | ({"new_writers": new_writers} if new_writers else {}))
    print(f"test accuracy {100 * row['test_accuracy']:.2f} %")
