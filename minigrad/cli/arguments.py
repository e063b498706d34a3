"""The arguments of the command, as one table of commands and one of options."""

import argparse
from pathlib import Path

from .. import __version__
from .settings import count, natural, not_negative, options, positive

SETTINGS = options()
COMMON = "--data --data-dir --size --model --epochs --batch-size --lr --device --out --resume"
ADVANCED = " ".join(name for name in SETTINGS if name not in COMMON.split())
TRAIN = f"{COMMON} | {ADVANCED} --threads --no-report --save-every --continue"
KEPT = "run --checkpoint --threads --device:run"
LAUNCH = "-n words --hosts --max-restarts --timeout --grace --logs"
PROFILE = "model --data --data-dir --batch-size --device --steps --threads --out:profile"
MORE = ["--data pictures --model network.py:make", "--model resnet --device cuda", "--resume RUN"]
EXITS = "exit codes:\n  0    all ranks ended well, also after SIGTERM\n  1    a rank failed, no restarts were left\n"
EXITS += "  2    refused before any work\n  130  after Ctrl-C\n  143  after SIGTERM, where ranks did not leave in time"
COMMANDS = {  # name: (its module, examples, what it does, its options; those after | are advanced)
    "train": ("training", ["--data mnist --epochs 3", *MORE], "train a network on a data set", TRAIN),
    "evaluate": ("trained", ["RUN --checkpoint best"], "measure it on test data", f"{KEPT} --precision:run --data-dir"),
    "report": ("trained", ["RUN"], "write the page of a run again", "run --data-dir --threads --device:run"),
    "predict": ("trained", ["RUN digit.png"], "say what a picture shows", f"{KEPT} --precision:run image"),
    "export": ("trained", ["RUN --onnx net.onnx"], "write it as an ONNX file", f"{KEPT} --onnx"),
    "launch": ("tools", ["-n 4 minigrad train"], "train on ranks, again where one fails", LAUNCH),
    "profile": ("profiling", ["lenet --steps 9"], "where time and memory of a step go", PROFILE),
    "kernels": ("kernels", ["matmul --arch sm_90"], "compile CUDA kernels", "names --arch --check --write"),
    "interpret": ("kernels", ["K.ptx --block 64"], "run one file of PTX", "ptx --grid --block --args --shared"),
    "math": ("tools", ["conv2d"], "formula and gradients of an op", "names:math --page"),
    "info": ("tools", ["--check"], "list versions, devices; check a GPU", "--check:info --device:info"),
}


# A name without dashes is an argument by its place; what follows a colon tells options of one name apart.
OPTIONS = SETTINGS | {
    "run": dict(metavar="RUN", help="the folder of a run"),
    "image": dict(metavar="IMAGE.png", help="a picture of one digit or object"),
    "names": dict(nargs="*", metavar="NAME", help="how the names of kernels begin; default all kernels"),
    "names:math": dict(nargs="*", metavar="NAME", help="the name of an op; default a list of all ops"),
    "model": SETTINGS["--model"] | {"nargs": "?"},
    "words": dict(nargs=argparse.REMAINDER, metavar="COMMAND", help="a Python script, or minigrad, and its arguments"),
    "ptx": dict(metavar="FILE.ptx", help="a file of PTX with one kernel"),
    "-n": dict(type=count, dest="ranks", metavar="N", required=True, help="how many ranks to start"),
    "--arch": dict(nargs="+", default=(), metavar="SM", help="such as sm_90; default those of each kernel"),
    "--args": dict(nargs="+", default=(), metavar="ARG", help="such as 64 0.5 x.npy; float32[8,3] is empty memory"),
    "--block": dict(nargs="+", type=count, default=[32], metavar="N", help="threads of a block; default 32"),
    "--check": dict(action="store_true", help="compare the figures with those of manifest.csv"),
    "--check:info": dict(action="store_true", help="compare what a device computes with what the CPU does"),
    "--checkpoint": dict(choices=("last", "best"), default="last", help="default last"),
    "--continue": dict(action="store_true", dest="continue_", help="go on with the run in --out if there is one"),
    "--device:info": SETTINGS["--device"] | {"help": "the device that --check looks at; default cuda"},
    "--grace": dict(type=not_negative, default=30.0, help="seconds that ranks have to leave after SIGTERM; default 30"),
    "--grid": dict(nargs="+", type=count, default=[1], metavar="N", help="blocks, on up to three axes; default 1"),
    "--hosts": dict(metavar="A:4,B:4", help="hosts and how many ranks fit on each; default this host"),
    "--logs": dict(metavar="FOLDER", help="the folder for what ranks other than 0 print; default launch-logs"),
    "--max-restarts": dict(type=natural, metavar="N", default=3, help="how often to start again; default 3"),
    "--no-report": dict(action="store_false", dest="report", help="write no report.html"),
    "--onnx": dict(type=Path, required=True, metavar="FILE", help="the file to write"),
    "--out": dict(metavar="FOLDER", help="the folder to write; default runs/DATE-TIME-DATA-MODEL"),
    "--out:profile": dict(metavar="FOLDER", help="the folder to write; default runs/DATE-TIME-profile-MODEL"),
    "--page": dict(action="store_true", help="the whole sheet as Markdown: examples/docs/math.md"),
    "--resume": dict(metavar="RUN", help="go on with the run in this folder, with its own options"),
    "--save-every": dict(type=count, metavar="N", help="a checkpoint after so many updates too; default after epochs"),
    "--shared": dict(type=natural, default=0, metavar="N", help="bytes of dynamic shared memory; default 0"),
    "--steps": dict(type=count, default=5, metavar="N", help="steps to record, after one that is not; default 5"),
    "--threads": dict(type=count, metavar="N", help="for kernels; default all cores, but 1 for images below 28x28"),
    "--timeout": dict(type=positive, default=300.0, help="seconds that a rank waits for another; default 300"),
    "--write": dict(action="store_true", help="make the manifest anew"),
}
OPTIONS |= {f"{name}:run": SETTINGS[name] | {"help": "default that of the run"} for name in ("--device", "--precision")}


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
        about = "\n".join([f"{what[0].upper()}{what[1:]}:", *(f"  minigrad {name} {example}" for example in examples)])
        usage = " ".join([f"minigrad {name} [OPTIONS]", *(OPTIONS[one]["metavar"] for one in common if one[0] != "-")])
        command = commands.add_parser(name, prog=f"minigrad {name}", usage=usage, description=about, **raw)
        command.set_defaults(module=module)
        command.epilog = EXITS if name == "launch" else None
        group = command.add_argument_group("advanced options") if advanced else command
        for place, part in ((command, common), (group, advanced)):
            for word in part:
                place.add_argument(word.partition(":")[0], **OPTIONS[word])
    return top
