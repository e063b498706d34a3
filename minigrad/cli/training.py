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
from ..train import Interruption, Progress, TensorBoard
from ..train.finite import NotFinite
from .run import RESULT, Run, Saver, Training
from .settings import Settings, UsageError, given_in
from .trained import write_report

__all__ = ["run_train"]


class Refused(Exception):
    """Some rank was refused something, rank 0 said what, and all ranks end in good order."""


def run_train(options):
    """Train, keep everything in a run folder, and print the accuracy on the test images; on several ranks together."""
    with init() as world, contextlib.redirect_stdout(open(os.devnull, "w") if world.rank else sys.stdout):
        try:
            return _train(options, world)
        except Refused:
            return 2


def _train(options, world):
    # Rank 0 decides for all, and fetches data that are not on disk yet.
    plan = _together(world, lambda: None if world.rank else _plan(options, world.size))
    plan = json.loads(world.broadcast_bytes(json.dumps(plan).encode()))
    run, settings, number = Run(plan["folder"]), Settings(**plan["settings"]), plan["number"]
    settings.set_threads(options.threads)
    training = _together(world, lambda: _training(settings, world, run, number))
    train, test, history = training.loader.dataset, training.test.dataset, training.history
    print(f"{plan['said']}data: {settings.data}, {len(train)} training and {len(test)} test images ({train.source})")
    count = sum(parameter.numel() for parameter in training.model.parameters())
    print(f"model: {settings.model}, {count:,} parameters, {settings.precision}")
    if settings.shards > 1:
        print(f"parallel: {settings.shards} shards on {world.size} ranks ({world.transport.name})")
    print(f"run: {run.folder}" + ("" if number is None else f", from step {history.steps} on"))
    with Interruption() as interruption:
        if number is None and world.rank == 0:
            run.begin(settings.seeing(train), options.argv, train.source, world.size)
        saver, callbacks = Saver(run, training, options.save_every), [interruption]
        if world.rank == 0:
            callbacks.append(Progress(len(train), settings.epochs))
            if options.tensorboard:
                callbacks.append(TensorBoard(run.folder / "tensorboard", training.optimizer))
        try:
            if number is None:
                saver.save()
            training.fit([saver, *callbacks])
            if saver.step != history.steps:  # it was interrupted
                saver.save()
        except (NotFinite, checkpoint.CheckpointError) as error:
            safe = f"{run.folder / 'last'} holds step {saver.step}"
            raise StateError(f"{error}; {safe}; minigrad train --resume {run.argument} goes on there") from error
        # The signal by which any rank was asked to end; 0 if none was.
        if stopped := max(message[0] for message in world.all_gather_bytes(bytes([interruption.requested]))):
            print(f"interrupted at step {history.steps}; go on with: minigrad train --resume {run.argument}")
            # Systems that end a process by SIGTERM take what it says then for how its work went.
            return 0 if stopped == signal.SIGTERM else 128 + signal.SIGINT
    result = {name: history[-1][name] for name in ("epoch", "step", "test_loss", "test_accuracy")}
    result["weights"] = checkpoint.weights_hash(training.model)
    if world.rank == 0:
        save_learning_curve(history, run.folder / "learning-curve.png")
        run.write(RESULT, result)
        if options.report:
            print(write_report(run, training.settings))
    print(f"weights hash {result['weights']}\ntest accuracy {100 * result['test_accuracy']:.2f} %")
    return 0


def _plan(options, ranks):
    """{folder, settings, number of the checkpoint from which it goes on, what to say first}, by rank 0 for all."""
    if options.tensorboard:
        TensorBoard(options.out)  # refused where its package is absent
    settings, said = Settings.of(options, ranks)
    run, number = Run(options.resume or options.out, "-".join(reversed(settings.names))), None
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
    if ranks > 1:  # once, before all of them read it
        settings.datasets()
    said = f"{said}\n" if said else ""
    return {"folder": str(run.folder), "settings": asdict(settings), "number": number, "said": said}


def _training(settings, world, run, number):
    """The Training of this rank, from the checkpoint of this number if there is one."""
    device = settings.device
    if device == "cuda" and world.transport.local_size > 1:  # of several ranks on one host, each takes a GPU of its own
        device = f"cuda:{world.transport.local_rank % max(cuda.device_count(), 1)}"
        cuda.set_device(device)
    training = Training(replace(settings, device=device), *settings.datasets(), world)
    if number is not None:
        training.load(run.folder / "last", number)
    return training


def _together(world, work):
    """What work() gives on this rank. Errors: Refused if it is refused on any; rank 0 then has said why."""
    result, refusal = None, ""
    try:
        result = work()
    except CommunicationError:
        raise
    except MinigradError as error:
        refusal = f"{f'rank {world.rank}: ' * bool(world.rank)}{error}"
    found = [message.decode() for message in world.all_gather_bytes(refusal.encode()) if message]
    if found and world.rank == 0:
        print(f"minigrad train: error: {found[0]}", file=sys.stderr)
    if found:
        raise Refused
    return result
