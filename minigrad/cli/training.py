"""minigrad train"""

import contextlib
import json
import os
import signal
import sys
from dataclasses import asdict, replace

from .. import checkpoint, cuda
from ..core.errors import MinigradError, StateError
from ..draw import save_learning_curve
from ..parallel import CommunicationError, ShardSampler, init
from ..train import History, Interruption, Progress, TensorBoard, evaluate
from ..train.finite import NotFinite
from .run import RESULT, Run, Saver
from .settings import Parts, Settings, UsageError, given_in
from .trained import write_report

__all__ = ["run_train"]


def run_train(options):
    """Train, keep everything in a run folder, and print the accuracy on the test images; on several ranks together."""
    world = init()
    try:
        with contextlib.redirect_stdout(open(os.devnull, "w") if world.rank else sys.stdout):
            return _train(options, world)
    except SystemExit:  # of all ranks
        raise
    except BaseException as error:
        world.abort(f"{type(error).__name__}: {error}")
        raise
    finally:
        world.close()


def _train(options, world):
    plan = _decided(world, lambda: _plan(options, world.size))
    run, settings, number, history = Run(plan["folder"]), Settings(**plan["settings"]), plan["number"], History()
    settings.set_threads(options.threads)
    _decided(world, lambda: settings.datasets() and None)  # rank 0 fetches what is not on disk yet
    here = _together(world, lambda: replace(settings, device=_device(world, settings.device)))
    parts = _together(world, lambda: Parts(here, *here.datasets(), world))
    if number is not None:
        _together(world, lambda: run.load(parts, history, number, world))
    train, test = parts.loader.dataset, parts.test.dataset
    print(f"{plan['said']}data: {settings.data}, {len(train)} training and {len(test)} test images ({train.source})")
    count = sum(parameter.numel() for parameter in parts.model.parameters())
    print(f"model: {settings.model}, {count:,} parameters, {settings.precision}")
    if settings.shards > 1:
        print(f"parallel: {settings.shards} shards on {world.size} ranks ({world.transport.name})")
    print(f"run: {run.folder}" + ("" if number is None else f", from step {history.steps} on"))
    with Interruption() as interruption:
        if number is None and world.rank == 0:
            run.begin(settings.seeing(train), options.argv, train, world.size)
        _fit(run, parts, history, world, options, interruption, begins=number is None)
        result = {}
        if settings.new_writers and not _stopped(world, interruption):
            result = _on_new_writers(here, world, interruption)
        if stopped := _stopped(world, interruption):
            print(f"interrupted at step {history.steps}; go on with: minigrad train --resume {run.argument}")
            # Systems that end a process by SIGTERM take what it says then for how its work went.
            return 0 if stopped == signal.SIGTERM else 128 + signal.SIGINT
    result |= {name: history[-1][name] for name in ("epoch", "step", "test_loss", "test_accuracy")}
    result["weights"] = checkpoint.weights_hash(parts.model)
    if world.rank == 0:
        save_learning_curve(history, run.folder / "learning-curve.png")
        run.write(RESULT, result)
        if options.report:
            print(write_report(run, parts.settings))
    print(f"weights hash {result['weights']}\ntest accuracy {100 * result['test_accuracy']:.2f} %")
    return 0


def _plan(options, ranks):
    """{folder, settings, number of the checkpoint from which it goes on, what to say first}, by rank 0 for all."""
    if options.tensorboard:
        TensorBoard.check_installed()
    settings, said = Settings.of(options, ranks)
    run, number = Run(options.resume or options.out, f"{settings.data}-{settings.model}"), None
    continues = options.continue_ or os.environ.get("MINIGRAD_ATTEMPT", "0") != "0"  # started again by a launcher
    if options.resume or continues and checkpoint.exists(run.folder / "last"):
        run, kept = Run.of(run.folder)
        given = given_in(options)
        wrong = sorted(name for name in given.keys() - {"data_dir", "device"} if given[name] != getattr(kept, name))
        if wrong := wrong or ["out"] * bool(options.resume and options.out):
            named = ", ".join("--" + name.replace("_", "-") for name in wrong)
            raise UsageError(f"{run.folder} holds a run with another {named}; leave that out or give another --out")
        settings, (number, said) = kept.here(options), checkpoint.find(run.folder / "last")
    elif not continues:
        run.check_new()
    ShardSampler(settings.shards, 0, ranks)
    if ranks == 1 and settings.sync_batch_norm and settings.shards > 1:
        raise UsageError("--sync-batch-norm wants as many ranks as shards")
    said = f"{said}\n" if said else ""
    return {"folder": str(run.folder), "settings": asdict(settings), "number": number, "said": said}


def _fit(run, parts, history, world, options, interruption, begins):
    """Train to the end or the interruption; either way the folder then holds the state that was reached."""
    histograms = run.histograms(parts.model, len(history)) if options.report and world.rank == 0 else None
    saver = Saver(run, parts, world, history, options.save_every, histograms)
    callbacks = [histograms, saver, interruption] if histograms else [saver, interruption]
    with contextlib.ExitStack() as stack:
        if world.rank == 0:
            callbacks.append(progress := Progress(len(parts.loader.dataset), parts.settings.epochs))
            stack.callback(progress.close)
            if options.tensorboard:
                callbacks.append(stack.enter_context(TensorBoard(run.folder / "tensorboard", parts.optimizer)))
        try:
            if begins:
                saver.save("last", history)
            parts.fit(history=history, callbacks=callbacks)
            if saver.step != history.steps:
                saver.save("last", history)
        except (NotFinite, checkpoint.CheckpointError) as error:
            hint = (
                f"{run.folder / 'last'} holds step {saver.step}; minigrad train --resume {run.argument} goes on there"
            )
            raise StateError(f"{error}; {hint}") from error


def _on_new_writers(settings, world, interruption):
    """Train a second network on the first half of the writers, and measure it on the others."""
    print("extra: training again on half of the writers alone, to test on the others ...", flush=True)
    train, test = settings.datasets("writers")
    parts = Parts(replace(settings, batch_size=min(settings.batch_size, len(train))), train, test, world)
    if len(parts.fit(test=None, callbacks=[interruption])) < settings.epochs:
        return {}
    loss, accuracy = evaluate(parts.model, parts.test, precision=settings.precision)
    print(f"test accuracy on new writers {100 * accuracy:.2f} %", flush=True)
    return {"new_writers": {"test_loss": loss, "test_accuracy": accuracy}}


# ---- ranks -----------------------------------------------------------------------------------------------------------


def _together(world, work):
    """What work() gives on this rank; where it refuses on any, rank 0 says why, and all end."""
    result, refusal = None, ""
    try:
        result = work()
    except CommunicationError:
        raise
    except MinigradError as error:
        refusal = str(error)
    try:
        found = [message.decode() for message in world.all_gather_bytes(refusal.encode())]
    except CommunicationError:
        if not refusal:
            raise
        found = [refusal]
    for rank, said in enumerate(found):
        if said:
            if world.rank == 0 or len(found) < world.size:
                print(f"minigrad train: error: {f'rank {rank}: ' * bool(rank)}{said}", file=sys.stderr)
            sys.exit(2)
    return result


def _decided(world, decide):
    """What decide() gives on rank 0, a JSON value; where it refuses, all ranks end."""
    decision = _together(world, lambda: None if world.rank else decide())
    return json.loads(world.broadcast_bytes(json.dumps(decision).encode()))


def _stopped(world, interruption):
    """The number of the signal by which any rank was asked to end; 0 if none was."""
    return max(message[0] for message in world.all_gather_bytes(bytes([interruption.requested])))


def _device(world, name):
    """The device of this rank: of several ranks on one host that were told "cuda", each takes a GPU of its own."""
    if name == "cuda" and world.transport.local_size > 1:
        name = f"cuda:{world.transport.local_rank % max(cuda.device_count(), 1)}"
        cuda.set_device(name)
    return name
