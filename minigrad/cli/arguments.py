"""The arguments of the command, as one table of commands and one of options."""

import argparse
from pathlib import Path

from .. import __version__
from .settings import count, model_named, natural, not_negative, options, positive

SETTINGS = options()
COMMON = "--data --data-dir --size --model --epochs --batch-size --lr --device --out --resume"
ADVANCED = " ".join(name for name in SETTINGS if name not in COMMON.split())
TRAIN = f"{COMMON} | {ADVANCED} --threads --no-report --save-every --continue"
TRAINED = "run --checkpoint --precision --threads --device"
LAUNCH = "-n words --hosts --max-restarts --timeout --grace --logs"
PROFILE = "model --data --data-dir --batch-size --device --steps --threads --out"
MORE = ["--data pictures --model network.py:make", "--model resnet --device cuda", "--resume RUN"]
COMMANDS = {  # name: (its module, examples, what it does, its options; those after | are advanced)
    "train": ("training", ["--data mnist --epochs 3", *MORE], "train a network on a data set", TRAIN),
    "evaluate": ("trained", ["RUN --checkpoint best"], "measure it on the test images", f"{TRAINED} --data-dir"),
    "report": ("trained", ["RUN"], "write the page of a run again", "run --data-dir --threads --device"),
    "predict": ("trained", ["RUN digit.png"], "say what a picture shows", f"{TRAINED} image"),
    "export": ("trained", ["RUN --onnx net.onnx"], "write it as an ONNX file", f"{TRAINED} --onnx"),
    "launch": ("tools", ["-n 4 minigrad train"], "train on ranks, again where one fails", LAUNCH),
    "profile": ("profiling", ["lenet --steps 9"], "where time and memory of a step go", PROFILE),
    "kernels": ("kernels", ["matmul --arch sm_90"], "compile CUDA kernels", "names --arch --check --write"),
    "interpret": ("kernels", ["K.ptx --block 64"], "run one file of PTX", "ptx --grid --block --args --shared"),
    "math": ("tools", ["conv2d"], "formula and gradients of an op", "names --page"),
    "info": ("tools", ["--check"], "versions, devices; does a GPU work?", "--check --device"),
}


OPTIONS = SETTINGS | {  # a name without dashes is an argument by its place
    "run": dict(metavar="RUN", help="the folder of a run"),
    "image": dict(metavar="IMAGE.png", help="a picture of one digit or object"),
    "names": dict(nargs="*", metavar="NAME", help="names, for kernels their beginnings; default all"),
    "model": dict(nargs="?", type=model_named, metavar="NAME", help="as of train; default that of the data set"),
    "words": dict(nargs=argparse.REMAINDER, metavar="COMMAND", help="a Python script, or minigrad, and its arguments"),
    "ptx": dict(metavar="FILE.ptx", help="a file of PTX with one kernel"),
    "-n": dict(type=count, dest="ranks", metavar="N", required=True, help="ranks"),
    "--arch": dict(nargs="+", default=(), metavar="SM", help="such as sm_90; default those of each kernel"),
    "--args": dict(nargs="+", default=(), metavar="ARG", help="such as 64 0.5 x.npy; float32[8,3] is empty memory"),
    "--block": dict(nargs="+", type=count, default=[32], metavar="N", help="threads of a block; default 32"),
    "--check": dict(action="store_true", help="kernels: with the manifest; info: a device (cuda) with the CPU"),
    "--checkpoint": dict(choices=("last", "best"), default="last", help="default last"),
    "--continue": dict(action="store_true", dest="continue_", help="go on with the run in --out if there is one"),
    "--grace": dict(type=not_negative, default=30.0, help="seconds that ranks have to leave after SIGTERM; default 30"),
    "--grid": dict(nargs="+", type=count, default=[1], metavar="N", help="blocks, on up to three axes; default 1"),
    "--hosts": dict(metavar="A:4,B:4", help="hosts and how many ranks fit on each; default this host"),
    "--logs": dict(metavar="FOLDER", help="what ranks other than 0 print; default launch-logs"),
    "--max-restarts": dict(type=natural, default=3, metavar="N", help="after failures; default 3"),
    "--no-report": dict(action="store_false", dest="report", help="write no report.html"),
    "--onnx": dict(type=Path, required=True, metavar="FILE", help="the file to write"),
    "--out": dict(metavar="FOLDER", help="the folder to write; default runs/DATE-TIME-DATA-MODEL"),
    "--page": dict(action="store_true", help="the whole sheet as Markdown: examples/docs/math.md"),
    "--resume": dict(metavar="RUN", help="go on with the run in this folder, with its own options"),
    "--save-every": dict(type=count, metavar="N", help="a checkpoint after so many updates too; default after epochs"),
    "--shared": dict(type=natural, default=0, metavar="N", help="bytes of dynamic shared memory; default 0"),
    "--steps": dict(type=count, default=5, metavar="N", help="to record, after a few that are not; default 5"),
    "--threads": dict(type=count, metavar="N", help="for kernels; the result does not depend on it"),
    "--timeout": dict(type=positive, default=300.0, help="seconds that a rank waits for another; default 300"),
    "--write": dict(action="store_true", help="make the manifest anew"),
}


def parser():
    """The parser of all commands; a command's module is imported when it runs, so that --help is quick."""
    raw = {"formatter_class": argparse.RawDescriptionHelpFormatter, "allow_abbrev": False}
    lines = [f"  {f'minigrad {name} {examples[0]}':<41}{what}" for name, (_, examples, what, _) in COMMANDS.items()]
    about = "Train small convolutional networks. `minigrad COMMAND --help` lists options.\n\n" + "\n".join(lines)
    top = argparse.ArgumentParser(prog="minigrad", usage="minigrad COMMAND ...", description=about, **raw)
    top.add_argument("--version", action="version", version=f"minigrad {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", help=argparse.SUPPRESS)
    for name, (module, examples, what, words) in COMMANDS.items():
        common, _, advanced = (part.split() for part in words.partition("|"))
        places = [OPTIONS[word].get("metavar", word) for word in common if not word.startswith("-")]
        about = "\n".join([f"{what[0].upper()}{what[1:]}:", *(f"  minigrad {name} {example}" for example in examples)])
        usage = " ".join(["minigrad", name, "[OPTIONS]", *places])
        command = commands.add_parser(name, prog=f"minigrad {name}", usage=usage, description=about, **raw)
        command.set_defaults(module=module)
        for word in common:
            command.add_argument(word, **OPTIONS[word])
        group = command.add_argument_group("advanced options") if advanced else command
        for word in advanced:
            group.add_argument(word, **OPTIONS[word])
    return top
