"""The pages of the API: what is public, by module, for Sphinx to fill in from the docstrings."""

import ast
import inspect
from pathlib import Path

import minigrad
from minigrad import autograd, checkpoint, cuda, data, draw, models, nn, optim, parallel, profile, report, sheet, train
from minigrad.optim import lr_scheduler
from minigrad.utils import data as samples

MODULES = {  # title: (module, what it is for)
    "nn": (nn, "Layers, containers, losses as modules."),
    "optim": (optim, "Optimisers, and gradients held within bounds."),
    "optim.lr_scheduler": (lr_scheduler, "Learning rates that change."),
    "data": (data, "Data sets, loaders, transforms."),
    "utils.data": (samples, "Data sets of samples and their loader, as in PyTorch."),
    "autograd": (autograd, "Gradients of one's own."),
    "train": (train, "The training loop, its history and callbacks."),
    "models": (models, "Networks by name."),
    "parallel": (parallel, "Training on many: communicators, data parallel, pipelines."),
    "checkpoint": (checkpoint, "Saving and going on."),
    "draw": (draw, "Pictures."),
    "profile": (profile, "Where time and memory go."),
    "report": (report, "One page about a training."),
    "cuda": (cuda, "GPUs, streams and memory."),
}
WITH_MEMBERS = {"Module", "Optimizer", "LRScheduler", "Communicator", "DataParallel", "Pipeline", "History", "Dataset"}


def pages():
    """{document: text} in MyST Markdown."""
    found = {"api/tensor": _tensor(), "api/ops": _ops()}
    for title, (module, purpose) in MODULES.items():
        names = [name for name in module.__all__ if callable(getattr(module, name, None))]
        body = "".join(_directive(f"{module.__name__}.{name}", getattr(module, name)) for name in names)
        found[f"api/{title}"] = f"# minigrad.{title}\n\n{purpose}\n\n{body}"
    listed = "\n".join(document.removeprefix("api/") for document in found)
    intro = "Written from the docstrings; names, arguments and semantics follow PyTorch."
    found["api/index"] = f"# API\n\n{intro}\n\n```{{toctree}}\n:maxdepth: 1\n\n{listed}\n```\n"
    return found


def _directive(path, value, *options):
    kind = "autoclass" if inspect.isclass(value) else "autofunction"
    name = path.rpartition(".")[2]
    options = [*options, ":members:"] if name in WITH_MEMBERS and inspect.isclass(value) else options
    return f"```{{eval-rst}}\n.. {kind}:: {path}\n" + "".join(f"   {option}\n" for option in options) + "```\n\n"


def _tensor():
    """Tensor with what its own file defines, and the other names of the package."""
    (body,) = (
        node.body
        for node in ast.parse(Path(inspect.getsourcefile(minigrad.Tensor) or "").read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef) and node.name == "Tensor"
    )
    own = [node.name for node in body if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")]
    own = [name for name in own if inspect.getdoc(getattr(minigrad.Tensor, name))]
    text = "# Tensor and engine\n\nOps are methods of Tensor too: `x.relu()`, `x @ y`. [The ops](ops.md).\n\n"
    text += _directive("minigrad.Tensor", minigrad.Tensor, f":members: {', '.join(own)}")
    others = [name for name in minigrad.__all__ if name not in sheet.entries() and name != "Tensor"]
    values = {name: getattr(minigrad, name) for name in others}
    return text + "".join(
        _directive(f"minigrad.{name}", value)
        for name, value in values.items()
        if callable(value) and not inspect.ismodule(value) and getattr(value, "__module__", "").startswith("minigrad")
    )


def _ops():
    """Every op, by family."""
    text = "# minigrad.ops\n\nAlso as `minigrad.nn.functional`. [The formulas alone](../examples/docs/math.md).\n\n"
    for title, members in sheet.families().items():
        if not members[0].module.__name__.startswith("minigrad.ops"):
            continue
        text += f"## {title}\n\n"
        shared = {}
        for entry in members:
            shared |= entry.shared
        text += "".join(f"- **{head}**: {' '.join(body.split())}\n" for head, body in shared.items()) + "\n"
        text += "".join(_directive(f"minigrad.ops.{entry.name}", entry.value) for entry in members)
    return text
