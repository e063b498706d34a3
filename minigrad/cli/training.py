"""minigrad train"""

import contextlib
import math
import os
import shutil
import signal
import sys
from dataclasses import asdict, replace

import numpy as np

from .. import checkpoint, cuda, device, nn, parallel
from ..amp import GradScaler
from ..core.errors import MinigradError, StateError
from ..device import manual_seed
from ..train import Callback, Histograms, History, Interruption, Progress, fit
from ..train.finite import NotFinite
from ..train.team import module_of
from .run import RESULT, Run
from .settings import SCHEDULES, Settings, UsageError, given_in
from .trained import write_report


def run_train(options):
    """Train, keep everything in a run folder, and print the accuracy on the test images; on several ranks together."""
    with parallel.init() as world, contextlib.redirect_stdout(open(os.devnull, "w") if world.rank else sys.stdout):
        plan = {}
        if world.rank == 0:  # which decides for all, and fetches data that are not on disk yet
            try:
                plan = _plan(options, world.size)
            except MinigradError as error:  # all ranks end in good order
                print(f"minigrad train: error: {error}", file=sys.stderr)
        plan = world.broadcast_object(plan)
        return _train(options, world, **plan) if plan else 2


def _plan(options, ranks):
    """{folder, settings, number of the checkpoint from which it goes on, what to say first}."""
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
        settings, (number, _, said) = kept.here(options), checkpoint.find(run.folder / "last")
    elif not continues:
        run.check_new()
    device.place(settings.device)  # refused where there is none
    parallel.ShardSampler(settings.shards, 0, ranks)
    if ranks > 1:
        settings.datasets()
    said = f"{said}\n" if said else ""
    return {"folder": str(run.folder), "settings": asdict(settings), "number": number, "said": said}


def _train(options, world, folder, settings, number, said):
    run, settings, new = Run(folder), Settings(**settings), not (os.path.exists(folder) and os.listdir(folder))
    settings.set_threads(options.threads)
    training = Training(run, settings, world, options.save_every)
    train, test, history = training.loader.dataset, training.test.dataset, training.history
    if number is not None:
        training.load(number)
    print(f"{said}data: {settings.data}, {len(train)} training and {len(test)} test images ({train.source})")
    count = sum(parameter.numel() for parameter in training.model.parameters())
    print(f"model: {settings.model}, {count:,} parameters, {settings.precision}")
    if settings.shards > 1:
        print(f"parallel: {settings.shards} shards on {world.size} ranks ({world.transport.name})")
    print(f"run: {run.folder}" + ("" if number is None else f", from step {history.steps} on"))
    with Interruption() as interruption:
        if number is None and world.rank == 0:
            run.begin(settings.seeing(train), options.argv, train.source, world.size)
        callbacks = [interruption, Progress(len(train), settings.epochs)][: 1 if world.rank else 2]
        try:
            if number is None:
                training.save()
            training.fit(callbacks)
        except (NotFinite, checkpoint.CheckpointError) as error:
            safe = f"{run.folder / 'last'} holds step {training.saved}"
            raise StateError(f"{error}; {safe}; minigrad train --resume {run.argument} goes on there") from error
        except Exception:
            if new and not (world.rank or history.steps):  # with no step there is nothing to go on with
                shutil.rmtree(folder, ignore_errors=True)
            raise
        # The signal by which any rank was asked to end; 0 if none was.
        if stopped := max(world.all_gather_object(interruption.requested)):
            print(f"interrupted at step {history.steps}; go on with: minigrad train --resume {run.argument}")
            # Systems that end a process by SIGTERM take what it says then for how its work went.
            return 0 if stopped == signal.SIGTERM else 128 + signal.SIGINT
    result = {name: history[-1][name] for name in ("epoch", "step", "test_loss", "test_accuracy")}
    result["weights"] = checkpoint.weights_hash(training.model)
    if world.rank == 0:
        run.write(RESULT, result)
        if options.report:
            print(write_report(run, training.settings))
    print(f"weights hash {result['weights']}\ntest accuracy {100 * result['test_accuracy']:.2f} %")
    return 0


class Training(Callback):
    """What trains by some settings, all of it new and all random numbers seeded, and keeps the folder of its run.

    A checkpoint is written after each epoch and after every so many updates, by all ranks together. One whose weights
    are not finite is not written: the older one is worth more.

    world   of the ranks that train together
    saved   the step of the newest checkpoint
    parts   what a checkpoint holds, by name
    """

    def __init__(self, run, settings, world, every=None):
        there = world.transport
        if settings.device == "cuda" and there.local_size > 1:  # of several ranks on one host, each has its GPU
            settings = replace(settings, device=f"cuda:{there.local_rank % max(cuda.device_count(), 1)}")
            cuda.set_device(settings.device)
        train, test = settings.datasets()
        manual_seed(settings.seed)
        self.run, self.settings, self.world, self.every, self.saved = run, settings.seeing(train), world, every, 0
        settings, shards = self.settings, settings.shards
        model, shared = settings.build_model(), shards > 1 or world.size > 1
        # A shard of one image has no statistics for batch norm: a last batch with such shards is left out.
        least = 2 * shards * any(isinstance(module, nn.BatchNorm2d) for module in model.modules())
        if settings.batch_size < least:
            raise UsageError(f"--batch-size {settings.batch_size} leaves less than 2 images to each of {shards} shards")
        drop_last = len(train) % settings.batch_size < least
        model = parallel.DataParallel(model, world, shards=shards) if shared else model
        loader = settings.train_loader(train, drop_last=drop_last, sampler=model.sampler if shared else None)
        optimizer = settings.build_optimizer(model)
        if shared and settings.zero:
            optimizer = parallel.ShardedOptimizer(optimizer, model)
        updates = settings.epochs * math.ceil(len(loader) / settings.accumulate)
        schedule = SCHEDULES[settings.schedule](optimizer, settings.lr, updates)
        scaler = GradScaler(enabled=settings.precision == "float16")
        self.model, self.loader, self.optimizer, self.test = model, loader, optimizer, settings.test_loader(test)
        self.history, self.histograms = History(), Histograms(model)
        self.how = {"schedule": schedule, "scaler": scaler, "history": self.history}
        self.parts = {"model": model, "optimizer": optimizer, "loader": loader, "histograms": self.histograms}
        self.parts |= self.how

    def fit(self, callbacks):
        """Train to the end, or until a callback says stop; what was done is saved then."""
        how = {name: getattr(self.settings, name) for name in ("epochs", "accumulate", "clip", "precision", "eager")}
        how |= self.how | {"test": self.test, "callbacks": [self.histograms, self, *callbacks]}
        fit(self.model, self.loader, self.optimizer, **how)
        if self.saved != self.history.steps:
            self.save()

    def load(self, number):
        """Take up a checkpoint of this number. Errors: CheckpointError as that of checkpoint.load"""
        here = {"generator": device.generator(), "number": number, "world": self.world}
        checkpoint.load(self.run.folder / "last", **self.parts, **here)
        self.saved = self.history.steps

    def save(self, name="last"):
        """Write a checkpoint. Errors: CheckpointError if it cannot be; NotFinite for weights or losses that are not"""
        self.history.running  # noqa: B018  waits for losses that are on their way, and refuses those that are not finite
        for part, tensor in module_of(self.model).state_dict().items():
            if not np.isfinite(device.host(tensor.array)).all():
                raise NotFinite(f"{part} is not finite after step {self.history.steps}, so that is not saved")
        keep = 2 if name == "last" else 1
        checkpoint.save(self.run.folder / name, **self.parts, keep=keep, world=self.world)
        self.saved = self.history.steps if name == "last" else self.saved

    def on_step(self, history):
        if self.every and history.steps % self.every == 0:
            self.save()

    def on_epoch(self, history):
        if self.world.rank == 0:
            self.run.write("history.jsonl", history.to_jsonl())
        # The first of equals stays the best, so that a later epoch must earn its place. It comes before the last: a run
        # that is killed between them does this epoch again.
        if history[-1] is max(history.rows, key=lambda row: (row["test_accuracy"], -row["test_loss"])):
            self.save("best")
        self.save()
