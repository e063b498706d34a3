"""The arguments of the command. Options left out are None: what they become depends on the others."""

import argparse
import difflib

from .. import models
from .launching import add_launch
from .settings import DEFAULT_MODEL, add_settings, count, text

__all__ = ["parser"]


class Parser(argparse.ArgumentParser):
    """Refuses in one line, and takes no option by the beginning of its name."""

    def __init__(self, **options):
        super().__init__(**options, allow_abbrev=False)

    def error(self, message):
        self.exit(2, f"{self.prog}: error: {message}\n")

    def parse_known_args(self, args=None, namespace=None):
        """Here and not in parse_args, so that the command whose option it is not refuses it."""
        options, rest = super().parse_known_args(args, namespace)
        if rest:
            near = difflib.get_close_matches(rest[0], self._option_string_actions, n=1, cutoff=0.7)
            hint = f"did you mean {near[0]}?" if near else f"{self.prog} --help lists what there is"
            self.error(f"unrecognized arguments: {' '.join(rest)}; {hint}")
        return options, rest


def parser():
    """The parser of all commands."""
    top = Parser(prog="minigrad", description="Train small convolutional networks.")
    commands = top.add_subparsers(dest="command", parser_class=Parser, metavar="COMMAND")
    _add_train(commands.add_parser("train", help="train a network on a data set"))
    evaluate = commands.add_parser("evaluate", help="measure a trained network on the test images again")
    _add_run(evaluate, "run_evaluate")
    add_settings(evaluate, "data_dir", "default that of the run")
    report = commands.add_parser("report", help="write the report of a run again")
    _add_folder(report, "report", "run_report")
    add_settings(report, "data_dir", "default that of the run")
    predict = commands.add_parser("predict", help="say what a picture shows")
    _add_run(predict, "run_predict")
    predict.add_argument("image", metavar="IMAGE.png", help="a picture of one digit or object")
    export = commands.add_parser("export", help="write a trained network as an ONNX file")
    _add_run(export, "run_export", "export")
    export.add_argument("--onnx", type=text, metavar="FILE", required=True, help="the file to write")
    info = commands.add_parser("info", help="versions, devices, threads, memory and the cache of kernels")
    info.set_defaults(action=_lazily("inspection", "run_info"))
    warmup = commands.add_parser("warmup", help="compile the CPU's kernels before they are needed")
    warmup.set_defaults(action=_lazily("warmup", "run_warmup"))
    warmup.add_argument("--models", nargs="+", choices=models.MODELS, help="networks to be trained; default all")
    _add_threads(warmup)
    add_launch(commands.add_parser("launch", help="start a training on many ranks, and again where it fails"))
    _add_kernels(commands.add_parser("kernels", help="compile all CUDA kernels and report on them; needs no GPU"))
    _add_profile(commands.add_parser("profile", help="where time and memory of a training step go"))
    _add_math(commands.add_parser("math", help="formula, gradients, shapes and source of an op"))
    return top


def _add_math(command):
    command.set_defaults(action=_lazily("formulas", "run_math"))
    command.add_argument(
        "names", nargs="*", type=text, metavar="NAME", help="ops, losses, optimisers; default: list all"
    )
    command.add_argument("--page", action="store_true", help="the whole sheet as Markdown: examples/docs/math.md")


def _add_kernels(kernels):
    kernels.set_defaults(action=_lazily("kernels", "run_kernels"))
    kernels.add_argument("names", nargs="*", metavar="NAME", help="beginnings of names of kernels; default all")
    kernels.add_argument(
        "--arch", nargs="+", type=text, metavar="SM", help="architectures such as sm_90; default those of each kernel"
    )
    kernels.add_argument("--ladder", action="store_true", help="what each rung of the matrix product costs, counted")
    kernels.add_argument("--check", action="store_true", help="compare with the manifest, where its tools are here")
    kernels.add_argument("--write", action="store_true", help="make the manifest anew")


def _add_train(train):
    train.set_defaults(action=_lazily("training", "run_train"))
    what = train.add_argument_group("what to train")
    _add_data(what)
    add_settings(what, "data_dir model")
    how = "epochs batch_size lr optimizer schedule weight_decay augment accumulate clip precision eager limit seed"
    add_settings(train.add_argument_group("how to train it"), f"{how} new_writers")
    many = train.add_argument_group("on many ranks (see minigrad launch)")
    add_settings(many, "shards zero sync_batch_norm")
    where = train.add_argument_group("where")
    add_settings(where, "device")
    _add_threads(where)
    where.add_argument("--out", type=text, metavar="FOLDER", help="the run folder; default runs/DATE-TIME-DATA-MODEL")
    where.add_argument("--no-report", dest="report", action="store_false", help="write no report.html")
    where.add_argument(
        "--tensorboard", action="store_true", help="write event files for TensorBoard into the run folder"
    )
    where.add_argument(
        "--save-every", type=count, metavar="N", help="a checkpoint after every N updates too; default after epochs"
    )
    where.add_argument(
        "--continue",
        dest="continue_",
        action="store_true",
        default=None,
        help="go on with the run in --out if there is one, for jobs that are started again",
    )
    where.add_argument(
        "--resume", type=text, metavar="RUN", help="go on with the run in this folder, with its own options"
    )


def _add_data(what):
    what.add_argument(
        "--data",
        choices=("auto", *DEFAULT_MODEL),
        help="auto (default): MNIST if it is on disk, else digits; mnist and cifar10 download",
    )


def _add_profile(command):
    command.set_defaults(action=_lazily("profiling", "run_profile"))
    command.add_argument("model", nargs="?", choices=models.MODELS, help="default that of the data set")
    _add_data(command)
    add_settings(command, "data_dir batch_size device")
    command.add_argument("--steps", type=count, metavar="N", help="to record, after a few that are not; default 5")
    _add_threads(command)
    command.add_argument(
        "--out", type=text, metavar="FOLDER", help="for trace and pictures; default runs/DATE-TIME-profile-MODEL"
    )


def _add_threads(command):
    command.add_argument("--threads", type=count, metavar="N", help="for kernels; the result does not depend on it")


def _add_run(command, action, module="inspection"):
    _add_folder(command, module, action)
    command.add_argument("--checkpoint", choices=("last", "best"), default="last", help="default last")
    add_settings(command, "precision", "default that of the run")


def _add_folder(command, module, action):
    command.set_defaults(action=_lazily(module, action))
    command.add_argument("run", type=text, metavar="RUN", help="the folder of a run")
    _add_threads(command)
    add_settings(command, "device", "default that of the run")


def _lazily(module, function):
    """A command whose module is imported when it runs, so that --help is quick."""

    def action(options):
        from importlib import import_module

        return getattr(import_module(f".{module}", __package__), function)(options)

    return action
