"""A training that is killed and goes on: one run of it, for kills.py.

    python tests/reliability/kill_program.py FOLDER RECIPE [--die CALL:SAVE:NUMBER:WHEN]

Goes on from the newest checkpoint in FOLDER/last that is whole, or begins; saves every second update and after each
epoch. Each line on stdout says what happens, with the seconds since the training began. --die kills the process at one
system call of saving: the call of that NUMBER named CALL (write, fsync, replace, unlink) in the save of that number,
WHEN it is before, amid (a write: half of the bytes) or after it.
"""

import argparse
import builtins
import os
import signal
import sys
import time
import warnings
from pathlib import Path

if not __package__:
    sys.path[:1] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[2] / "kernels")]

import minigrad  # noqa: E402
from minigrad import checkpoint, data, nn, optim  # noqa: E402
from minigrad.amp import GradScaler  # noqa: E402
from minigrad.optim import lr_scheduler  # noqa: E402
from minigrad.train import Callback, History, fit  # noqa: E402

EPOCHS, IMAGES, BATCH, EVERY = 4, 96, 16, 2
UPDATES = EPOCHS * IMAGES // BATCH
WORDS = (
    "--data digits --model mlp --epochs 4 --batch-size 16 --limit 96 --augment --precision float16 --clip 1 --seed 5"
)
COMMAND = [*WORDS.split(), "--no-report", "--continue", "--save-every", "2"]


def dense(*between):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 24), nn.ReLU(), *between, nn.Linear(24, 10))


def convolved(*between):
    layers = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)
    return nn.Sequential(*layers, *between, nn.Flatten(), nn.Linear(36, 10))


def recipe(name):
    """(model, optimiser, schedule, transform, further arguments of fit)."""
    schedule, transform, more, model = None, None, {}, dense()
    if name == "SGD":
        optimizer = optim.SGD(model.parameters(), 0.1, momentum=0.9, nesterov=True)
        schedule = lr_scheduler.OneCycleLR(optimizer, 0.1, UPDATES)
    elif name == "Adam":
        optimizer = optim.Adam(model.parameters(), 1e-2, amsgrad=True)
        schedule = lr_scheduler.CosineAnnealingLR(optimizer, UPDATES)
    elif name == "dropout":
        model = dense(nn.Dropout(0.3))
        optimizer = optim.RMSprop(model.parameters(), 1e-3, centered=True)
    elif name == "batch norm":
        model = convolved()
        optimizer = optim.SGD(model.parameters(), 0.5, momentum=0.9)
        schedule = lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0)
    elif name == "augmentation":
        model, transform = convolved(), data.Compose([data.PadCrop(1), data.Flip()])
        optimizer = optim.AdamW(model.parameters(), 1e-2)
    elif name == "accumulation":
        model, more = dense(nn.Dropout(0.2)), {"accumulate": 4, "clip": 1.0}
        optimizer = optim.Adagrad(model.parameters(), 1e-2)
    elif name == "float16":
        model, more = (
            convolved(nn.Dropout(0.1)),
            {"precision": "float16", "scaler": GradScaler(2.0**20, growth_interval=3)},
        )
        optimizer = optim.Adam(model.parameters(), 1e-2)
        schedule = lr_scheduler.StepLR(optimizer, 5)
    else:
        model, more, transform = convolved(), {"precision": "bfloat16"}, data.PadCrop(1)
        optimizer = optim.SGD(model.parameters(), 0.05, momentum=0.9)
    return model, optimizer, schedule, transform, more


RECIPES = "SGD", "Adam", "dropout", "batch norm", "augmentation", "accumulation", "float16", "bfloat16", "command"


# ---- what is told, and where it ends --------------------------------------------------------------------------------


class Told:
    """Says what happens, and kills the process where it was told to."""

    def __init__(self, die=None):
        self.began, self.saves, self.inside, self.calls = None, 0, False, {}
        self.call, *numbers, self.when = die.split(":") if die else (None, 0, 0, None)
        self.save, self.number = map(int, numbers)

    def say(self, what):
        now = time.perf_counter()
        self.began = now if self.began is None else self.began
        os.write(1, f"{now - self.began:.6f} {what}\n".encode())

    def saving(self, real):
        def save(*arguments, **options):
            self.saves, self.inside, self.calls = self.saves + 1, True, {}
            self.say("save")
            real(*arguments, **options)
            self.inside = False
            self.say("saved")

        return save

    def here(self, call, when):
        """Whether to end at this place. Calls are counted before they are made."""
        if when == "before":
            self.calls[call] = self.calls.get(call, 0) + 1
        place = call, self.saves, self.calls[call], when
        if self.inside and place == (self.call, self.save, self.number, self.when):
            os.kill(os.getpid(), signal.SIGKILL)

    def watching(self, name, real):
        def call(*arguments, **options):
            if self.inside:
                self.here(name, "before")
            made = real(*arguments, **options)
            if self.inside:
                self.here(name, "after")
            return made

        return call

    def opened(self, real):
        def call(file, mode="r", *rest, **options):
            made = real(file, mode, *rest, **options)
            return Written(made, self) if mode == "wb" and self.inside else made

        return call

    def watch(self):
        """Stand between saving and the operating system."""
        checkpoint.save = self.saving(checkpoint.save)
        for name in ("fsync", "replace", "unlink"):
            setattr(os, name, self.watching(name, getattr(os, name)))
        builtins.open = self.opened(builtins.open)


class Written:
    """A file whose writes are watched."""

    def __init__(self, file, told):
        self.file, self.told = file, told

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.file.close()

    def __getattr__(self, name):
        return getattr(self.file, name)

    def write(self, content):
        self.told.here("write", "before")
        self.file.write(content[: len(content) // 2])
        self.file.flush()
        self.told.here("write", "amid")
        self.file.write(content[len(content) // 2 :])
        self.file.flush()
        self.told.here("write", "after")


class Keeper(Callback):
    """Saves, and says each step."""

    def __init__(self, folder, parts, told):
        self.folder, self.parts, self.told = folder, parts, told

    def save(self, history):
        checkpoint.save(self.folder, **self.parts, history=history, keep=2)

    def on_step(self, history):
        self.told.say(f"step {history.steps}")
        if history.steps % EVERY == 0:
            self.save(history)

    def on_epoch(self, history):
        self.save(history)


def train(folder, name, told):
    """Go on, or begin."""
    minigrad.manual_seed(3)
    model, optimizer, schedule, transform, more = recipe(name)
    images, test = (part.subset(slice(IMAGES)) for part in data.digits())
    loader = data.Loader(images, BATCH, shuffle=True, seed=1, transform=transform)
    parts = {"model": model, "optimizer": optimizer, "schedule": schedule, "loader": loader}
    parts |= {"scaler": more["scaler"]} if "scaler" in more else {}
    history = History()
    if checkpoint.exists(folder):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            checkpoint.load(folder, **parts, history=history, generator=minigrad.default_generator)
        for warning in caught:
            told.say(f"{warning.category.__name__} {warning.message}")
    told.say(f"from {history.steps}")
    keeper = Keeper(folder, parts, told)
    fit(
        model,
        loader,
        optimizer,
        EPOCHS,
        test=data.Loader(test, 64),
        schedule=schedule,
        history=history,
        **more,
        callbacks=[keeper],
    )


def command(folder, told):
    """The same by `minigrad train`."""
    from minigrad.cli import main

    find = checkpoint.find

    def found(place):
        number, damage = find(place)
        told.say(f"CheckpointWarning {damage}" if damage else "from the newest")
        return number, damage

    checkpoint.find = found
    return main(["train", *COMMAND, "--out", str(folder)])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("recipe", choices=RECIPES)
    parser.add_argument("--die", metavar="CALL:SAVE:NUMBER:WHEN")
    options = parser.parse_args()
    told = Told(options.die)
    told.watch()
    if options.recipe == "command":
        status = command(options.folder, told)
    else:
        status = train(options.folder / "last", options.recipe, told)
    told.say("done")
    return status


if __name__ == "__main__":
    sys.exit(main())
