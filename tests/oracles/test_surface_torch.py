"""The face of every op, method, layer, initialiser, optimiser and schedule beside PyTorch's: its arguments.

What a user may type there may be typed here. LEFT_OUT says what is not taken over, and DIFFERENT where a signature
differs on purpose; both are on the page of differences.
"""

import inspect

import pytest

from minigrad import Tensor, nn, ops, optim
from minigrad.optim import lr_scheduler
from tests.oracles.beside_torch import torch

LEFT_OUT = {  # arguments of PyTorch that have no meaning for values on NumPy and CuPy arrays, or are deprecated there
    *("out", "size_average", "reduce", "names", "memory_format", "_stacklevel", "sparse_grad", "out_dtype"),
    *("generator", "foreach", "capturable", "differentiable", "fused", "min_value", "max_value", "last_epoch"),
    # Arguments that would change results and are not built.
    *(
        "alpha",
        "antialias",
        "decoupled_weight_decay",
        "divisor_override",
        "max_norm",
        "norm_type",
        "padding_mode",
        "recompute_scale_factor",
    ),
    *("scale_grad_by_freq", "return_indices", "sparse", "add_bias_kv", "add_zero_attn", "kdim", "vdim"),
}
RUNNING = {"instance_norm": {"running_mean", "running_var", "use_input_stats", "momentum"}}  # is never by those
DIFFERENT = {("softmax", "dim"), ("log_softmax", "dim")}  # arguments with another default
OWN = {"conv2d_input_grad", "conv2d_weight_grad", "getitem"}  # ops that PyTorch has under no such name

# ---- ops -------------------------------------------------------------------------------------------------------------


def plain(parameters):
    """{name: default} of the arguments that are taken over; the first Tensor is `input` whatever it is called."""
    found = []
    for position, (name, default) in enumerate(parameters):
        first = name == "self" or (position == 0 and name in ("x", "tensor"))
        found.append(("input" if first else name, default))
    return {name: default for name, default in found if name not in LEFT_OUT | {"weight"}}


def of_python(function):
    return plain((p.name, p.default) for p in inspect.signature(function).parameters.values())


def of_schema(schema):
    return plain(
        (a.name, a.default_value if a.has_default_value() else inspect.Parameter.empty) for a in schema.arguments
    )


def theirs(name):
    """The signatures that PyTorch knows for an op, one for each overload."""
    functional = torch.nn.functional
    for home, called in ((functional, f"{name}_with_indices"), (functional, name), (torch, name)):
        try:
            signature = inspect.signature(getattr(home, called, None))
        except (TypeError, ValueError):
            continue
        if not any(p.kind is p.VAR_POSITIONAL for p in signature.parameters.values()):
            return [of_python(getattr(home, called))]
    packet = getattr(torch.ops.aten, name, None)
    known = [of_schema(getattr(packet, overload)._schema) for overload in packet.overloads()] if packet else []
    overrides = torch.overrides.get_testing_overrides()
    homes = [overrides.get(getattr(home, name, None)) for home in (torch, torch.Tensor, functional)]
    return known + [of_python(found) for found in homes if found is not None]


def within(names, others):
    """Whether names stand among others in the same order."""
    rest = iter(others)
    return all(name in rest for name in names)


@pytest.mark.parametrize("name", sorted(set(ops.__all__) - OWN))
def test_ops(name):
    """In PyTorch's order, with its names and its defaults; ours may be several of its overloads in one."""
    ours, known = of_python(getattr(ops, name)), theirs(name)
    known = [{key: value for key, value in one.items() if key not in RUNNING.get(name, ())} for one in known]
    assert any(within(overload, ours) for overload in known), (list(ours), [list(one) for one in known])
    for argument, default in ours.items():
        defaults = [one[argument] for one in known if argument in one]
        assert defaults, f"{name}: PyTorch has no {argument}, but {[list(one) for one in known]}"
        alike = default in [*defaults, None] or len(known) > 1 or (name, argument) in DIFFERENT
        assert alike, f"{name}: {argument}={default}, {defaults}"
    assert hasattr(Tensor, name) == hasattr(torch.Tensor, name)


# ---- classes, and functions of Python --------------------------------------------------------------------------------

CONTAINERS = {"Module", "Parameter", "Sequential", "ModuleList", "ModuleDict", "ParameterList"}
LAYERS = {name for name in nn.__all__ if inspect.isclass(getattr(nn, name))} - CONTAINERS
HOMES = (
    (nn, torch.nn, LAYERS),
    (nn.init, torch.nn.init, {name for name in vars(nn.init) if name.endswith("_") and name[0] != "_"}),
    (
        optim,
        torch.optim,
        {name for name in optim.__all__ if hasattr(torch.optim, name)} - {"Optimizer", "lr_scheduler"},
    ),
    (lr_scheduler, torch.optim.lr_scheduler, {*lr_scheduler.__all__} - {"LRScheduler", "OneCycleLR"}),
)
FACES = [(name, getattr(ours, name), getattr(its, name)) for ours, its, names in HOMES for name in sorted(names)]
BY_NAME = {"maximize", "common", "_weight", "_freeze"}  # of optimisers; of Embedding
OTHER = {  # PyTorch would guess a dimension, with a warning; takes any argument, without a use
    **dict.fromkeys(("Softmax", "LogSoftmax"), [("dim", "_empty")]),
    **dict.fromkeys(("Tanh", "Sigmoid", "LogSigmoid"), []),
}


def arguments(function):
    """(name, default) of the arguments that are taken over, in order."""
    parameters = inspect.signature(function).parameters.values()
    found = [(p.name, getattr(p.default, "__name__", p.default)) for p in parameters]
    return [one for one in found if one[0] not in LEFT_OUT | BY_NAME]


@pytest.mark.parametrize("name, ours, its", FACES, ids=[name for name, *_ in FACES])
def test_classes(name, ours, its):
    if "kwargs" in {*inspect.signature(its).parameters, *inspect.signature(ours).parameters}:  # recurrent, lazy layers
        return
    assert arguments(ours) == OTHER.get(name, arguments(its))
