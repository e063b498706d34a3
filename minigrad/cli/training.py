"""minigrad train"""

import contextlib
import signal
import sys
from dataclasses import asdict, fields, replace

from .. import checkpoint
from ..core.errors import MinigradError
from ..parallel import ShardSampler
from ..train import Histograms, History, Interruption, Progress, TensorBoard, evaluate, fit
from ..train.team import module_of
from .lasting import Keeper, note
from .parts import Parts
from .ranks import Ranks, attempt, job
from .report import write_report
from .run import HISTOGRAMS, RESULT, TENSORBOARD, Run, Saver
from .settings import Images, Settings, UsageError, checked_folder, chosen_data, kernel_threads, refusing

__all__ = ["run_train"]

# Who asks by SIGTERM soon ends the process by force.
HASTE = dict.fromkeys(
    ("mistakes", "cost"), "The training was asked to end, so this was not measured; minigrad report does."
)


def run_train(options):
    """Train, keep everything in a run folder, and print the accuracy on the test images."""
    with Ranks() as ranks:
        with refusing():
            plan = ranks.decided(lambda: _planned(options, ranks.world.size))
            run, settings = Run(plan["folder"], plan["settings"]), Settings(**plan["settings"])
        with kernel_threads(options.threads or settings.threads):
            return _train(options, ranks, run, settings, plan)


def _train(options, ranks, run, settings, plan):
    world, resumed = ranks.world, plan["resumed"]
    here = replace(settings, device=ranks.device(settings.device))
    ranks.decided(lambda: settings.datasets() and None)  # rank 0 fetches what is not on disk yet
    train, test = ranks.together(settings.datasets)
    parts, history = ranks.together(lambda: Parts(here, train, test, world)), History()
    ranks.together(settings.check_new_writers)
    if resumed:
        ranks.together(lambda: run.load(parts, history, plan["number"], world))
    print(*(f"{plan[name]}\n" for name in ("note", "damage") if plan[name]), sep="", end="")
    print(f"data: {settings.data}, {len(train)} training and {len(test)} test images ({train.source})")
    count = sum(parameter.numel() for parameter in parts.model.parameters())
    precision = "" if settings.precision == "float32" else f", {settings.precision}"
    print(f"model: {settings.model}, {count:,} parameters{precision}")
    if settings.shards > 1:
        print(f"parallel: {settings.shards} shards on {world.size} ranks ({world.transport.name})")
    print(f"run: {run.folder}" + (f", from step {history.steps} on" if resumed else ""))
    with Interruption() as interruption:
        if not resumed:
            run.begin(settings, options.argv, train, parts, history, world)
        _fit(Keeper(run, parts, world, history), settings, history, ranks, options, interruption)
        new_writers = None
        report = lambda lacking: _report(ranks, run, here, parts.model, history, (train, test), lacking)
        stopped = ranks.greatest(interruption.requested)
        if settings.new_writers and not stopped:
            new_writers = _accuracy_on_new_writers(here, world, interruption)
            stopped = ranks.greatest(interruption.requested)
        if stopped:
            print(
                f"interrupted at step {history.steps}; go on with: minigrad train --resume {run.argument}", flush=True
            )
            if options.report:
                report(HASTE if stopped == signal.SIGTERM else {})
            # Systems that end a process by SIGTERM take what it says then for how its work went.
            return 0 if stopped == signal.SIGTERM else 128 + signal.SIGINT
    _finish(run, history, new_writers, parts.model, ranks, report if options.report else None)
    return 0


# ---- what is to be done ------------------------------------------------------------------------------------------


def _planned(options, ranks):
    """{folder, settings, resumed, note, number of the checkpoint, damage of a newer} for all ranks, by rank 0."""
    with refusing():
        run, settings, resumed, note = _resumed(options) if options.resume is not None else _new(options, ranks)
        ShardSampler(settings.shards, 0, ranks)
        if options.tensorboard:
            TensorBoard.check_installed()
        if ranks == 1 and settings.sync_batch_norm and settings.shards > 1:
            raise UsageError("--sync-batch-norm wants as many ranks as shards")
        plan = {"folder": str(run.folder), "settings": asdict(settings), "resumed": resumed, "note": note}
        number, damage = checkpoint.find(run.folder / "last") if resumed else (None, None)
        return plan | {"number": number, "damage": damage}


def _new(options, ranks):
    """(run, settings, whether it goes on, what to say) of a run that begins, or goes on where --continue finds it."""
    name, note = chosen_data(options.data, options.data_dir)
    note = note and f"data auto: {note}"
    settings = Settings.of(options, name, ranks)
    run = Run.named(options.out, settings)
    if not (options.continue_ or attempt() and run.begun_by(job())):
        return Run.fresh(options.out, settings), settings, False, note
    if not checkpoint.exists(run.folder / "last"):
        return run, settings, False, note
    run, kept, _ = Run.of(run.folder)
    given = {"data", *_given(options)} - {"device", "data_dir"}
    wrong = sorted(name for name in given if getattr(kept, name) != getattr(settings, name))
    if wrong:
        raise UsageError(
            f"{run.folder} holds a run with another {_named(wrong)}; give its own options or another --out"
        )
    return run, _on(kept, options), True, note


def _resumed(options):
    """The same of a run that goes on."""
    given = [name for name in _given(options) if name not in ("device", "data_dir")]
    given += ["out"] if options.out is not None else []
    if given:
        raise UsageError(f"--resume goes on with the run's own options; leave out {_named(given)}")
    run, settings, _ = Run.of(options.resume)
    return run, _on(settings, options), True, None


def _given(options):
    """The names of settings that options state."""
    return [one.name for one in fields(Settings) if getattr(options, one.name, None) is not None]


def _named(names):
    """The options of these names."""
    return ", ".join("--" + name.replace("_", "-") for name in names)


def _on(settings, options):
    """The settings of a run that goes on here: another folder of data and another device may be given."""
    folder = settings.data_dir if options.data_dir is None else checked_folder(options.data_dir)
    return replace(settings, data_dir=folder, device=options.device or settings.device)


# ---- doing it ----------------------------------------------------------------------------------------------------


def _fit(keeper, settings, history, ranks, options, interruption):
    """Train to the end or the interruption; either way the folder then holds the state that was reached."""
    run, parts, first = keeper.run, keeper.parts, ranks.first
    positional, named = parts.fit_arguments(settings)
    progress = Progress(len(parts.loader.dataset), settings.epochs)
    with contextlib.ExitStack() as stack:
        stack.callback(progress.close)
        stack.enter_context(keeper.hints(settings))
        histograms = _histograms(run, parts.model, history) if options.report and first else None
        callbacks = [] if histograms is None else [histograms]
        callbacks.append(Saver(keeper, options.save_every, histograms))
        if first:
            callbacks.append(progress)
            if options.tensorboard:
                board = TensorBoard(run.folder / TENSORBOARD, parts.optimizer, note)
                callbacks.append(stack.enter_context(board))
        fit(*positional, **named, history=history, callbacks=[*callbacks, interruption])
        keeper.finish(history, ranks)
    if first:
        with keeper.writing("learning-curve.png"):
            run.write_curve(history)


def _histograms(run, model, history):
    """Those that the run has counted so far, to go on with; new ones where the file of them cannot be used."""
    histograms = Histograms(model)
    with contextlib.suppress(MinigradError):
        histograms.load_state_dict(run.read_json(HISTOGRAMS), len(history))
    return histograms


def _accuracy_on_new_writers(settings, world, interruption):
    """Train a second network on the first half of the writers, and measure it on the others."""
    print("extra: training again on half of the writers alone, to test on the others ...", flush=True)
    parts = Parts(settings, *settings.datasets("writers"), world)
    positional, named = parts.fit_arguments(settings)
    history = fit(*positional, **named | {"test": None}, callbacks=[interruption])
    if len(history) < settings.epochs:
        return None
    loss, accuracy = evaluate(parts.model, parts.test, precision=settings.precision)
    print(f"test accuracy on new writers {100 * accuracy:.2f} %", flush=True)
    return {"test_loss": loss, "test_accuracy": accuracy}


def _finish(run, history, new_writers, model, ranks, report):
    row = history[-1]
    result = {name: row[name] for name in ("epoch", "step", "test_loss", "test_accuracy")}
    weights = checkpoint.weights_hash(model)
    if ranks.first:
        with Keeper.writing(RESULT):
            more = {"new_writers": new_writers} if new_writers else {}
            run.write_json(RESULT, result | {"weights": weights} | more)
    if report is not None:
        report({})
    print(f"weights hash {weights}")
    print(f"test accuracy {100 * row['test_accuracy']:.2f} %")


def _report(ranks, run, settings, model, history, datasets, lacking):
    """Rank 0 writes the report, and the others wait. A training that is done is done without one, too."""

    def write():
        parts = run, settings, Images.of(datasets[0]), module_of(model), history
        try:
            return [write_report(*parts, None if lacking else datasets, run.seconds, lacking), ""]
        except (MinigradError, OSError) as error:
            return ["", f"minigrad train: the report could not be written: {error}"]
        except KeyboardInterrupt:
            return ["", f"minigrad train: no report was written; minigrad report {run.argument} does"]

    said, wrong = ranks.decided(write)
    if wrong and ranks.first:
        print(wrong, file=sys.stderr)
    print(said, end="\n" if said else "", flush=True)
