"""The arguments of the command. Options left out are None: what they become depends on the others."""

import argparse
import difflib
import math

from ..parallel.sums import WIRES
from ..train.precision import PRECISIONS
from .defaults import BY_DATA, BY_MODEL, DEFAULT_MODEL, DEFAULTS, MOMENTUM, OPTIMIZERS, RATES, SCHEDULES
from .launching import add_launch
from .scaling import add_scale

__all__ = ["parser"]

DATA = ("auto", *DEFAULT_MODEL)
CHECKPOINTS = ("last", "best")
NETWORKS = "digits-cnn, keras-cnn, lenet, mnist-net, mlp or resnet; default " + ", ".join(
    f"{model} ({data})" for data, model in DEFAULT_MODEL.items()
)
NOT_PROFILED = """
    epochs lr optimizer schedule weight_decay augment accumulate clip limit seed new_writers shards zero
    sync_batch_norm wire precision eager
""".split()  # options of train that profile does without


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
    evaluate.add_argument("--data-dir", type=_text, metavar="FOLDER", help="where the files of the data set are")
    report = commands.add_parser("report", help="write the report of a run again")
    _add_folder(report, "report", "run_report")
    report.add_argument("--data-dir", type=_text, metavar="FOLDER", help="where the files of the data set are")
    predict = commands.add_parser("predict", help="say what a picture shows")
    _add_run(predict, "run_predict")
    predict.add_argument("image", metavar="IMAGE.png", help="a PNG picture of one digit or object")
    export = commands.add_parser("export", help="write a trained network as an ONNX file")
    _add_run(export, "run_export", "export")
    export.add_argument("--onnx", type=_text, metavar="FILE", required=True, help="the file to write")
    info = commands.add_parser("info", help="versions, devices, threads, memory and the cache of kernels")
    info.set_defaults(action=_lazily("inspection", "run_info"))
    info.add_argument("--measure", action="store_true", help="measure how fast bytes travel to, from and within a GPU")
    warmup = commands.add_parser("warmup", help="compile the CPU's kernels before they are needed")
    warmup.set_defaults(action=_lazily("warmup", "run_warmup"))
    warmup.add_argument("--models", nargs="+", type=_text, metavar="NAME", help="networks to be trained; default all")
    warmup.add_argument("--threads", type=_count, metavar="N", help="for kernels: the code is the same for any number")
    add_launch(commands.add_parser("launch", help="start a training on many ranks, and again where it fails"))
    add_scale(commands.add_parser("scale", help="predict how training scales to many GPUs: a model, no measurement"))
    _add_kernels(commands.add_parser("kernels", help="compile all CUDA kernels and report on them; needs no GPU"))
    _add_profile(commands.add_parser("profile", help="where time and memory of a training step go"))
    _add_math(commands.add_parser("math", help="formula, gradients, shapes and source of an op"))
    return top


def _add_math(command):
    command.set_defaults(action=_lazily("formulas", "run_math"))
    command.add_argument(
        "names", nargs="*", type=_text, metavar="NAME", help="ops, losses, optimisers; default: list all"
    )
    command.add_argument("--page", action="store_true", help="the whole sheet as Markdown: examples/docs/math.md")


def _add_kernels(kernels):
    kernels.set_defaults(action=_lazily("kernels", "run_kernels"))
    kernels.add_argument("names", nargs="*", metavar="NAME", help="beginnings of names of kernels; default all")
    kernels.add_argument(
        "--arch", nargs="+", type=_text, metavar="SM", help="architectures such as sm_90; default those of each kernel"
    )
    kernels.add_argument("--ladder", action="store_true", help="what each rung of the matrix product costs, counted")
    kernels.add_argument("--write-ptx", action="store_true", help="renew the PTX that ships with the package")


def _add_train(train):
    train.set_defaults(action=_lazily("training", "run_train"))
    what = train.add_argument_group("what to train")
    _add_data(what)
    what.add_argument("--model", type=_text, metavar="NAME", help=NETWORKS)
    _add_how(train.add_argument_group("how to train it"))
    _add_many(train.add_argument_group("on many ranks (see minigrad launch)"))
    where = train.add_argument_group("where")
    _add_device(where, "default cpu; a run that is resumed may change it")
    where.add_argument("--threads", type=_count, metavar="N", help="for kernels; the result does not depend on it")
    where.add_argument("--out", type=_text, metavar="FOLDER", help="the run folder; default runs/DATE-TIME-DATA-MODEL")
    where.add_argument("--no-report", dest="report", action="store_false", help="write no report.html")
    where.add_argument(
        "--tensorboard", action="store_true", help="write event files for TensorBoard into the run folder"
    )
    where.add_argument(
        "--save-every", type=_count, metavar="N", help="a checkpoint after every N updates too; default after epochs"
    )
    where.add_argument(
        "--continue",
        dest="continue_",
        action="store_true",
        default=None,
        help="go on with the run in --out if there is one, for jobs that are started again",
    )
    where.add_argument(
        "--resume", type=_text, metavar="RUN", help="go on with the run in this folder, with its own options"
    )


def _add_data(what):
    what.add_argument(
        "--data",
        choices=DATA,
        help="auto (default): MNIST if it is on disk, else digits; mnist and cifar10 download",
    )
    what.add_argument(
        "--data-dir", type=_text, metavar="FOLDER", help="where the files of the data set are, or are put"
    )


def _add_profile(command):
    command.set_defaults(action=_lazily("profiling", "run_profile"), **dict.fromkeys(NOT_PROFILED))
    command.add_argument("model", nargs="?", type=_text, metavar="MODEL", help=NETWORKS)
    _add_data(command)
    _add_batch_size(command)
    command.add_argument("--steps", type=_count, metavar="N", help="to record, after a few that are not; default 5")
    _add_device(command, "default cpu")
    command.add_argument("--threads", type=_count, metavar="N", help="for kernels on the CPU")
    command.add_argument(
        "--out", type=_text, metavar="FOLDER", help="for trace and pictures; default runs/DATE-TIME-profile-MODEL"
    )


def _add_batch_size(how):
    how.add_argument("--batch-size", type=_count, metavar="N", help=f"images to a batch; {_default('batch_size')}")


def _add_how(how):
    how.add_argument(
        "--epochs", type=_count, metavar="N", help=f"passes over the training images; {_default('epochs')}"
    )
    _add_batch_size(how)
    how.add_argument(
        "--lr",
        type=_positive,
        metavar="X",
        help=f"highest learning rate of the schedule; default {_listed(RATES | {'resnet': BY_MODEL['resnet']['lr']})}",
    )
    how.add_argument(
        "--optimizer", choices=OPTIMIZERS, help=f"{_default('optimizer')}; sgd with Nesterov momentum {MOMENTUM}"
    )
    how.add_argument(
        "--schedule",
        choices=SCHEDULES,
        help=f"how the learning rate changes: step by step, with restore where the loss rose; {_default('schedule')}",
    )
    how.add_argument("--weight-decay", type=_not_negative, metavar="X", help=_default("weight_decay"))
    how.add_argument(
        "--augment",
        action=argparse.BooleanOptionalAction,
        help="shift images at random (CIFAR-10: flip too); default on but for MNIST",
    )
    how.add_argument("--accumulate", type=_count, metavar="K", help="update once for every K batches, as for one large")
    how.add_argument("--clip", type=_positive, metavar="X", help="largest 2-norm of the gradient")
    _add_precision(how, f"{_default('precision')}; parameters are float32 in all of them")
    how.add_argument("--eager", action="store_true", default=None, help="on a GPU, start each kernel from Python")
    how.add_argument("--limit", type=_count, metavar="N", help="use the first N training and the first N test images")
    how.add_argument("--seed", type=_seed, metavar="N", help="of weights, order, dropout and augmentation (default 0)")
    how.add_argument(
        "--new-writers",
        action=argparse.BooleanOptionalAction,
        help="digits: train a second time on half the writers and test on the others (default: yes)",
    )


def _add_many(many):
    many.add_argument(
        "--shards",
        type=_count,
        metavar="S",
        help="parts into which each batch is cut; the result depends on it and not on the ranks; default one a rank",
    )
    on = {"action": "store_true", "default": None}
    many.add_argument("--zero", **on, help="divide the state of the optimiser among the ranks")
    many.add_argument("--sync-batch-norm", **on, help="statistics of batch norm over all ranks")
    many.add_argument("--wire", choices=WIRES, help="gradients travel in 16 bits; default as they are")


def _add_precision(command, default):
    text = "in which convolutions and matrix products compute; float16 scales the loss"
    command.add_argument("--precision", choices=PRECISIONS, help=f"{text}; {default}")


def _default(name):
    """What an option becomes that is left out, in words."""
    by_data = {data: values[name] for data, values in BY_DATA.items() if name in values}
    text = f"default {_listed(by_data) or DEFAULTS[name]}"
    by_model = {model: values[name] for model, values in BY_MODEL.items() if name in values}
    return f"{text}; {_listed(by_model)}" if by_model else text


def _listed(values):
    return ", ".join(f"{value} ({name})" for name, value in values.items())


def _add_run(command, action, module="inspection"):
    _add_folder(command, module, action)
    command.add_argument("--checkpoint", choices=CHECKPOINTS, default="last", help="default last")
    _add_precision(command, "default that of the run")


def _add_folder(command, module, action):
    command.set_defaults(action=_lazily(module, action))
    command.add_argument("run", type=_text, metavar="RUN", help="the folder of a run")
    command.add_argument("--threads", type=_count, metavar="N", help="for kernels on the CPU")
    _add_device(command, "default that of the run")


def _add_device(command, default):
    help = f"cpu, cuda, cuda:1, ..., or interpreter, which runs the kernels of GPUs slowly on any machine; {default}"
    command.add_argument("--device", type=_text, metavar="NAME", help=help)


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


def _text(text):
    if not text:
        raise argparse.ArgumentTypeError("got an empty text, want a name")
    return text


_count = _number(int, lambda value: value >= 1, "an integer of at least 1")
_seed = _number(int, lambda value: 0 <= value < 1 << 63, "an integer from 0 to 2^63 - 1")
_positive = _number(float, lambda value: 0 < value < math.inf, "a number above 0")
_not_negative = _number(float, lambda value: 0 <= value < math.inf, "a number of at least 0")
