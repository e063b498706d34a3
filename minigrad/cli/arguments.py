"""The arguments of the command. Options left out are None: what they become depends on the others."""

import argparse
import math

__all__ = ["DATA", "OPTIMIZERS", "SCHEDULES", "parser"]

DATA = ("auto", "digits", "mnist", "cifar10")
OPTIMIZERS = ("adam", "adamw", "sgd", "rmsprop")
SCHEDULES = ("none", "cosine", "onecycle", "step")
CHECKPOINTS = ("last", "best")


class Parser(argparse.ArgumentParser):
    """Refuses in one line."""

    def error(self, message):
        self.exit(2, f"{self.prog}: error: {message}\n")


def parser():
    """The parser of all commands."""
    top = Parser(prog="minigrad", description="Train small convolutional networks.", allow_abbrev=False)
    commands = top.add_subparsers(dest="command", required=True, parser_class=Parser, metavar="COMMAND")
    _add_train(commands.add_parser("train", help="train a network on a data set", allow_abbrev=False))
    evaluate = commands.add_parser("evaluate", help="measure a trained network on the test images again")
    _add_run(evaluate, "run_evaluate")
    evaluate.add_argument("--data-dir", metavar="FOLDER", help="where the files of the data set are")
    predict = commands.add_parser("predict", help="say what a picture shows")
    _add_run(predict, "run_predict")
    predict.add_argument("image", metavar="IMAGE.png", help="a PNG picture of one digit or object")
    info = commands.add_parser("info", help="versions, devices, threads, memory and the cache of kernels")
    info.set_defaults(action=_lazily("inspection", "run_info"))
    return top


def _add_train(train):
    train.set_defaults(action=_lazily("training", "run_train"))
    what = train.add_argument_group("what to train")
    what.add_argument(
        "--data",
        choices=DATA,
        help="auto (default): MNIST if it is on disk, else digits; mnist and cifar10 download",
    )
    what.add_argument("--data-dir", metavar="FOLDER", help="where the files of the data set are, or are put")
    what.add_argument(
        "--model",
        metavar="NAME",
        help="digits-cnn, keras-cnn, lenet, mnist-net, mlp or resnet; default by the data",
    )
    how = train.add_argument_group("how to train it (defaults depend on the model)")
    how.add_argument("--epochs", type=_count, metavar="N", help="passes over the training images")
    how.add_argument("--batch-size", type=_count, metavar="N", help="images to a batch")
    how.add_argument("--lr", type=_positive, metavar="X", help="learning rate, the highest of the schedule")
    how.add_argument("--optimizer", choices=OPTIMIZERS)
    how.add_argument("--schedule", choices=SCHEDULES, help="how the learning rate changes, step by step")
    how.add_argument("--weight-decay", type=_not_negative, metavar="X")
    how.add_argument(
        "--augment",
        action=argparse.BooleanOptionalAction,
        help="shift images at random (CIFAR-10: flip too); default on but for MNIST",
    )
    how.add_argument("--accumulate", type=_count, metavar="K", help="update once for every K batches, as for one large")
    how.add_argument("--clip", type=_positive, metavar="X", help="largest 2-norm of the gradient")
    how.add_argument("--seed", type=_seed, metavar="N", help="of weights, order, dropout and augmentation (default 0)")
    how.add_argument(
        "--new-writers",
        action=argparse.BooleanOptionalAction,
        help="digits: train a second time on half the writers and test on the others (default: yes)",
    )
    where = train.add_argument_group("where")
    where.add_argument("--device", metavar="NAME", help="default cpu")
    where.add_argument("--threads", type=_count, metavar="N", help="for kernels; the result does not depend on it")
    where.add_argument("--out", metavar="FOLDER", help="the run folder; default runs/DATE-TIME-DATA-MODEL")
    where.add_argument("--resume", metavar="RUN", help="go on with the run in this folder, with its own options")


def _add_run(command, action):
    command.set_defaults(action=_lazily("inspection", action))
    command.add_argument("run", metavar="RUN", help="the folder of a run")
    command.add_argument("--checkpoint", choices=CHECKPOINTS, default="last", help="default last")
    command.add_argument("--threads", type=_count, metavar="N", help="for kernels on the CPU")


def _lazily(module, function):
    """A command whose module is imported when it runs, so that --help is quick."""

    def action(options):
        from importlib import import_module

        return getattr(import_module(f".{module}", __package__), function)(options)

    return action


# ---- values --------------------------------------------------------------------------------------------


def _number(kind, holds, wanted):
    def convert(text):
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        if not holds(value):
            raise argparse.ArgumentTypeError(f"got {text}, want {wanted}")
        return value

    return convert


_count = _number(int, lambda value: value >= 1, "an integer of at least 1")
_seed = _number(int, lambda value: 0 <= value < 1 << 63, "an integer from 0 to 2^63 - 1")
_positive = _number(float, lambda value: 0 < value < math.inf, "a number above 0")
_not_negative = _number(float, lambda value: 0 <= value < math.inf, "a number of at least 0")
