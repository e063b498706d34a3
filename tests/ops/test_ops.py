"""Every op on every row of its table: one test a row makes all checks, and the function that fails names what is wrong.

The devices beside the CPU are the interpreter, which runs the compiled CUDA kernels, and the second GPU of the stand-in
for CuPy while the first is the current one; with MINIGRAD_TEST_DEVICE=cuda it is a GPU.
"""

import contextlib
import inspect
from functools import partial

import ml_dtypes
import numpy as np
import pytest

import minigrad
from minigrad import Tensor, device, gradcheck, gradgradcheck, ops
from minigrad.core.errors import KindError, MinigradError
from minigrad.core.modes import no_grad
from minigrad.core.tape import grad
from tests.device.stand_in_gpus import gpus
from tests.kernels.kernel_runs import DEVICE
from tests.ops.cases import Draw, Sample, all_ops

OPS = all_ops()
ROWS = [pytest.param(op, sample, id=f"{op.name}{sample}") for op in OPS for sample in op.samples]
FIRST = [  # the first row of each op, and with --deep the others
    pytest.param(*row.values, id=row.id, marks=[pytest.mark.deep] * (row.values[1] is not row.values[0].samples[0]))
    for row in ROWS
]
# What must be given besides: a limit, a size, a source; dropout draws.
WANTS_MORE = {"clamp", "interpolate", "scatter", "dropout", "dropout1d", "dropout2d"}


def wrap(array, wants_gradient):
    return Tensor(array, requires_grad=wants_gradient)


def leaves(kind, *values):
    """All Tensors, or all arrays, in nested arguments."""
    found = []
    for value in values:
        if isinstance(value, kind):
            found.append(value)
        elif isinstance(value, list | tuple | dict):
            found += leaves(kind, *(value.values() if isinstance(value, dict) else value))
    return found


def tensors(*values):
    return leaves(Tensor, *values)


def listed(result):
    return list(result) if isinstance(result, tuple | list) else [result]


def results(op, args, kwargs):
    """The Tensors that an op returns; random ops start from one seed."""
    minigrad.manual_seed(0)
    return listed(getattr(ops, op.name)(*args, **kwargs))


def floating(tensors):
    return [x for x in tensors if device.is_floating(x.dtype)]


def weights(outputs):
    """The incoming gradients of outputs."""
    rng = np.random.default_rng(1)
    return [Tensor(rng.standard_normal(x.shape).astype(x.dtype)).to(x.device) for x in outputs]


def gradients(outputs, sources, create_graph=False):
    live = [x for x in outputs if x.requires_grad]
    return grad(live, sources, weights(live), create_graph=create_graph, allow_unused=True) if live else []


def close(found, wanted, eps, roundings):
    """So many roundings of the largest element; NaN and infinities stand where they should."""
    found, wanted = np.asarray(found, np.float64), np.asarray(wanted, np.float64)
    assert found.shape == wanted.shape
    scale = max(1.0, np.abs(wanted[np.isfinite(wanted)]).max(initial=0))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=roundings * eps * scale)


# ---- the checks of a row ---------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.* they broadcast to:UserWarning")  # losses, as in PyTorch
@pytest.mark.parametrize("op, sample", ROWS)
def test_row(op, sample):
    for dtype in (np.float64, np.float32):
        values_are_those_of_the_definition(op, sample, dtype)
    memory_is_shared_only_by_views(op, sample)
    if not sample.random and op.name != "view":  # which wants memory that lies densely
        layout_of_inputs_does_not_matter(op, sample)
        if sample.smooth and op.differentiable and sample is op.samples[0]:
            halves_are_rounded_once(op, sample)
    if any(x.requires_grad for x in tensors(*sample.draw(wrap))):
        gradients_are_right(op, sample)


@pytest.mark.parametrize("op", [op for op in OPS if op.reference and op.name not in WANTS_MORE], ids=str)
def test_defaults(op):
    """Calls of nothing but what must be given: the definition has the same defaults."""
    parameters, calls = inspect.signature(getattr(ops, op.name)).parameters, 0
    names = [name for name, parameter in parameters.items() if parameter.default is parameter.empty]
    for given in [dict(zip(parameters, sample.args, strict=False)) | sample.kwargs for sample in op.samples]:
        with contextlib.suppress(MinigradError, KeyError):  # a sample whose shapes want more, or without a name
            bare = Sample(tuple([given[name] for name in names]))
            values_are_those_of_the_definition(op, bare, np.float64)
            calls += 1
    assert calls


def values_are_those_of_the_definition(op, sample, dtype):
    args, kwargs = sample.draw(wrap, dtype)
    sources = tensors(args, kwargs)
    before = [x.array.copy() for x in sources]
    for x in sources:
        x.array.flags.writeable = False
    out = results(op, args, kwargs)
    for x in out:
        assert type(x.array) is np.ndarray
        if x.requires_grad:
            x.backward(Tensor(np.ones(x.shape, x.dtype)), retain_graph=True)
        if op.differentiable and floating(sources) and op.name != "to" and sample.kwargs.get("dtype") is None:
            assert x.dtype in (dtype, np.int64, np.bool_), f"elements {x.dtype} of {np.dtype(dtype)}"
    for x, old in zip(sources, before, strict=True):
        np.testing.assert_array_equal(x.array, old)
        assert x.grad is None or (x.grad.dtype == x.dtype and x.grad.shape == x.shape)
    if op.reference and not sample.random:
        exact = lambda array, _: array.astype(np.float64) if array.dtype.kind == "f" else array
        exact_args, exact_kwargs = sample.draw(exact, dtype)
        with np.errstate(all="ignore"):
            wanted = listed(op.reference(*exact_args, **exact_kwargs))
        eps = max([np.finfo(x.dtype).eps for x in floating(out)], default=0)
        for x, right in zip(out, wanted, strict=True):
            close(x.detach().array, right, eps, 64)


def memory_is_shared_only_by_views(op, sample):
    args, kwargs = sample.draw(wrap)
    sources = tensors(args, kwargs)
    with no_grad():
        for x in results(op, args, kwargs):
            assert x.node is None or any(x is source for source in sources)
    for x in results(op, args, kwargs):
        shared = [source for source in sources if np.shares_memory(x.array, source.array)]
        assert not shared or op.views or any(x is source for source in shared)
        assert all(x.version is source.version for source in shared)
        assert shared or not op.views or sample is not op.samples[0] or op.name == "einsum", "a copy"


def strided(array):
    """The same elements with gaps, backwards along the last axis, and with the axes the other way round in memory."""
    if not array.ndim:
        return array
    wide = np.zeros([2 * n for n in reversed(array.shape)], array.dtype).T
    view = wide[(*(slice(None, None, 2) for _ in array.shape[1:]), slice(None, None, -2))]
    view[...] = array
    return view


def with_gradients(op, sample, change):
    """Results and gradients of arrays that are changed before."""
    args, kwargs = sample.draw(lambda array, wants: Tensor(change(array), requires_grad=wants))
    out = results(op, args, kwargs)
    return out, gradients(out, [x for x in tensors(args, kwargs) if x.requires_grad])


def layout_of_inputs_does_not_matter(op, sample):
    for plain, other in zip(*(with_gradients(op, sample, way) for way in (lambda array: array, strided)), strict=True):
        for x, y in zip(plain, other, strict=True):
            assert (x is None) == (y is None)
            if x is not None:
                np.testing.assert_allclose(x.array, y.array, rtol=1e-12, atol=1e-12)


def halves_are_rounded_once(op, sample):
    """Of the same rounded inputs, results are within two roundings of those in float64, gradients within four."""
    for half in (np.float16, ml_dtypes.bfloat16):
        rounded = lambda array, dtype: array.astype(half).astype(dtype) if array.dtype.kind == "f" else array  # noqa: B023
        short, exact = (with_gradients(op, sample, partial(rounded, dtype=dtype)) for dtype in (half, np.float64))
        for roundings, mine, right in zip((2, 4), short, exact, strict=True):
            for x, wanted in zip(mine, right, strict=True):
                if x is not None and device.is_floating(x.dtype):
                    close(x.detach().array, wanted.detach().array, float(ml_dtypes.finfo(half).eps), roundings)


def gradients_are_right(op, sample):
    """By finite differences to second order; and fast gradients, where an op has them, are those of the rules."""

    def function(*values):
        queue = iter(values)
        return floating(results(op, *sample.draw(lambda array, wants: next(queue))))

    sources = tensors(*sample.draw(wrap))
    live = any(x.requires_grad for x in function(*sources))
    assert live == op.differentiable or not sample.smooth
    wanted = [x for x in sources if x.requires_grad]
    both = (gradients(function(*sources), wanted, create_graph) for create_graph in (False, True))
    for fast, defined in zip(*both, strict=True):
        assert (fast is None) == (defined is None)
        if fast is not None:
            np.testing.assert_allclose(fast.array, defined.array, rtol=1e-12, atol=1e-12)
    if sample.smooth and live:
        gradcheck(function, sources, directions=1)
        gradgradcheck(function, sources, directions=1)


# ---- other devices ---------------------------------------------------------------------------------------------------

DEVICES = ["cuda"] if DEVICE == "cuda" else ["interpreter", "cuda:1"]
LOOSE = 2e-5  # float32 beside float32; sums are taken in another order


@pytest.fixture(params=DEVICES, scope="module")
def place(request):
    with gpus() if request.param == "cuda:1" else contextlib.nullcontext():
        yield request.param


def drawn(sample, device):
    """(args, kwargs) with Tensors of float32 on a device."""
    return sample.draw(lambda array, wants: Tensor(array).to(device).requires_grad_(wants), np.float32)


def outcome(op, sample, device):
    """Results and gradients on the host, after a look that they lay on the device."""
    args, kwargs = drawn(sample, device)
    sources = tensors(args, kwargs)
    out = results(op, args, kwargs)
    found = [*out, *(x for x in gradients(out, [x for x in sources if x.requires_grad]) if x is not None)]
    homes = {x.device for x in sources}
    assert {x.device for x in found} <= homes or op.name == "to"  # whose rows may name a device
    return [x.detach().numpy() for x in found]


@pytest.mark.parametrize("op, sample", FIRST)
def test_as_on_the_cpu(op, sample, place):
    for one, other in zip(outcome(op, sample, "cpu"), outcome(op, sample, place), strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        largest = np.abs(one[np.isfinite(one)]).max(initial=1)
        np.testing.assert_allclose(other, one, rtol=LOOSE, atol=LOOSE * largest)


# ---- refusals, and the table itself ----------------------------------------------------------------------------------

WRONG = (  # an argument of many ops, a value that none of them takes, the error
    ("dim", 9, IndexError),
    ("dim", (0, 0), (ValueError, TypeError)),  # twice, or one too many
    ("keepdim", "no", TypeError),
    ("reduction", "avg", ValueError),
    ("stride", 0, ValueError),
    ("kernel_size", 1.0, TypeError),
    ("weight", Tensor(np.ones(7)), ValueError),
    ("bias", Tensor(np.ones(7)), ValueError),
)


@pytest.mark.parametrize("op", OPS, ids=str)
def test_refusals(op):
    for row in op.refusals:
        args, kwargs = row.call.draw(wrap)
        with pytest.raises(row.error) as caught:
            results(op, args, kwargs)
        assert isinstance(caught.value, minigrad.MinigradError) and row.message in str(caught.value), row
    for position, value in enumerate(op.samples[0].args):
        if isinstance(value, Draw):
            args, kwargs = op.samples[0].draw(wrap)
            args[position] = "text"
            with pytest.raises(KindError, match=f"^{op.name}: "):
                results(op, args, kwargs)
    signature = inspect.signature(getattr(ops, op.name))
    for name, value, error in WRONG:
        args, kwargs = op.samples[0].draw(wrap)
        call = signature.bind(*args, **kwargs)
        if name in signature.parameters:
            call.arguments[name] = value
            with pytest.raises(error, match=rf": .*{name}\b|shapes .* do not|axes don't"):
                results(op, call.args, call.kwargs)


def test_every_argument_of_every_op_stands_in_a_row():
    rows = {op.name: op for op in OPS}
    assert rows.keys() == {*ops.__all__} and len(OPS) == len(rows)
    for name, op in rows.items():
        signature = inspect.signature(getattr(ops, name))
        used = set().union(*(signature.bind(*sample.args, **sample.kwargs).arguments for sample in op.samples))
        assert used == set(signature.parameters), f"{name}: no sample gives {set(signature.parameters) - used}"
