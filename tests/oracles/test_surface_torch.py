"""The face of every op, method, layer and optimiser beside PyTorch's: names, order and defaults of the arguments.

What a user may type there may be typed here. LEFT_OUT says what is not taken over, and DIFFERENT where a signature
differs on purpose; both are on the page of differences.
"""

import inspect

import pytest

from minigrad import Tensor, ops

torch = pytest.importorskip("torch")

LEFT_OUT = {  # arguments of PyTorch that have no meaning for values on NumPy and CuPy arrays, or are deprecated there
    *("out", "size_average", "reduce", "names", "memory_format", "_stacklevel", "sparse_grad", "out_dtype"),
    *("generator", "foreach", "capturable", "differentiable", "fused"),
    # Arguments that would change results and are not built.
    *("alpha", "antialias", "divisor_override", "max_norm", "norm_type", "recompute_scale_factor"),
    *("scale_grad_by_freq", "return_indices", "sparse", "weight"),
}
RUNNING = {"instance_norm": {"running_mean", "running_var", "use_input_stats", "momentum"}}  # is never by those
DIFFERENT = {("softmax", "dim"), ("log_softmax", "dim")}  # arguments with another default
OWN = {"conv2d_input_grad", "conv2d_weight_grad", "getitem"}  # ops that PyTorch has under no such name


def plain(parameters):
    """{name: default} of the arguments that are taken over; the first Tensor is `input` whatever it is called."""
    found = []
    for position, (name, default) in enumerate(parameters):
        first = name == "self" or (position == 0 and name in ("x", "tensor"))
        found.append(("input" if first else name, default))
    return {name: default for name, default in found if name not in LEFT_OUT}


def of_python(function):
    return plain((p.name, p.default) for p in inspect.signature(function).parameters.values())


def of_schema(schema):
    return plain(
        (a.name, a.default_value if a.has_default_value() else inspect.Parameter.empty) for a in schema.arguments
    )


def theirs(name):
    """The signatures that PyTorch knows for an op, one for each overload."""
    functional = torch.nn.functional
    for function in (
        getattr(functional, f"{name}_with_indices", None),
        getattr(functional, name, None),
        getattr(torch, name, None),
    ):
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):
            continue
        if not any(p.kind is p.VAR_POSITIONAL for p in signature.parameters.values()):
            return [of_python(function)]
    packet = getattr(torch.ops.aten, name, None)
    known = [of_schema(getattr(packet, overload)._schema) for overload in packet.overloads()] if packet else []
    overrides = torch.overrides.get_testing_overrides()
    homes = [overrides.get(getattr(home, name, None)) for home in (torch, torch.Tensor, functional)]
    return known + [of_python(found) for found in homes if found is not None]


def within(names, others):
    """Whether names stand among others in the same order."""
    rest = iter(others)
    return all(name in rest for name in names)


def default_of(value):
    """Defaults as they compare: 1 and 1.0 alike, in PyTorch's schemas also "none" for None and [] for ()."""
    return float(value) if isinstance(value, int | float) else value


@pytest.mark.parametrize("name", sorted(set(ops.__all__) - OWN))
def test_arguments_of_ops(name):
    """In PyTorch's order, with its names and its defaults; ours may be several of its overloads in one."""
    ours, known = of_python(getattr(ops, name)), theirs(name)
    known = [{key: value for key, value in one.items() if key not in RUNNING.get(name, ())} for one in known]
    assert any(within(overload, ours) for overload in known), (list(ours), [list(one) for one in known])
    for argument, default in ours.items():
        defaults = [default_of(one[argument]) for one in known if argument in one]
        assert defaults, f"{name}: PyTorch has no {argument}, but {[list(one) for one in known]}"
        alike = default_of(default) in [*defaults, None] or len(known) > 1 or (name, argument) in DIFFERENT
        assert alike, f"{name}: {argument}={default}, {defaults}"


@pytest.mark.parametrize("name", sorted(set(ops.__all__) - OWN))
def test_methods_where_pytorch_has_them(name):
    assert hasattr(Tensor, name) == hasattr(torch.Tensor, name)
