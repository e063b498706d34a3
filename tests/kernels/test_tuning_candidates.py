"""What families name as candidates to be timed: they have equal bits, and the one that was chosen runs."""

import numpy as np
import pytest

from minigrad_kernels import interpreter
from minigrad_kernels.conv2d import cuda
from minigrad_kernels.layout import CHANNELS_LAST, FILTER
from minigrad_kernels.matmul import cuda as matmul

from .kernel_runs import laid_out, same_bits

pytestmark = pytest.mark.deep

SETTINGS = (1, 1), (1, 1), (1, 1), 1
ONE_PIXEL = (1, 1), (0, 0), (1, 1), 1


def arrays(*shapes, orders=(CHANNELS_LAST, FILTER, CHANNELS_LAST)):
    random, made = np.random.default_rng(1), []
    for shape, order in zip(shapes, orders, strict=True):
        made.append(interpreter.array(laid_out(random.standard_normal(shape).astype(np.float32), order)))
    return made


def convolution(direction, c=16):
    """(module that chooses, names of the candidates, call(rung), result)"""
    x, w, g = (1, c, 3, 4), (24, c, 3, 3), (1, 24, 3, 4)
    space = interpreter.empty(cuda.workspace(direction, x, w, *SETTINGS, 4), np.uint8)
    source, filters, result = arrays(x if direction == "forward" else g, w, g if direction == "forward" else x)
    bias = (None, False) if direction == "forward" else ()

    def call(rung=None):
        if rung is None:
            return getattr(cuda, direction)(source, filters, *bias, *SETTINGS, result, space)
        for kernel, *given in cuda.starts(direction, source, filters, None, False, SETTINGS, result, space, rung):
            kernel(*given)

    return cuda, cuda.equals(direction, x, w, (3, 4), SETTINGS, "float32", True), call, result


def weights(images):
    x, w, g = (images, 24, 8, 8), (40, 24, 3, 3), (images, 40, 8, 8)
    dy, filters, source = arrays(g, w, x)
    space = interpreter.empty(cuda.workspace("weight_grad", x, w, *SETTINGS, 4), np.uint8)
    found = cuda.equals("weight_grad", x, w, x[2:], SETTINGS, "float32", True)
    call = lambda rung=None: cuda.weight_grad(dy, source, *SETTINGS, filters, space, rung)
    return cuda, found, call, filters


def product():
    a, b, out = arrays((20, 40), (40, 24), (20, 24), orders=(None, None, None))
    return matmul, matmul.equals(a, b), lambda rung=None: matmul.forward(a, b, None, False, out, None, rung), out


CALLS = {
    "forward": lambda: convolution("forward"),
    "forward in slices": lambda: convolution("forward", 160),
    "input_grad": lambda: convolution("input_grad"),
    "weight_grad": lambda: weights(2),
    "weight_grad in slices": lambda: weights(9),
    "product": product,
}


@pytest.mark.parametrize("name", CALLS)
def test_candidates_have_equal_bits_and_the_chosen_one_runs(name, monkeypatch):
    module, kernels, call, result = CALLS[name]()
    names, found = list(kernels), []
    assert len(names) >= 2
    for rung in names:
        result.fill(np.nan)
        call(rung)
        found.append(np.array(result))
        same_bits(found[:1], found[-1:])

    def choice(op, asked, candidates, start, like):
        assert list(candidates()) == names
        start(names[1])  # as when it is timed
        return names[0]

    monkeypatch.setattr(module, "chosen", choice)
    with interpreter.recording() as launches:
        call()
    wanted = [kernels[names[1]].name, kernels[names[0]].name]
    assert [name for name, _ in launches if name in wanted] == wanted


def test_what_sums_in_an_order_of_its_own_has_no_candidates():
    assert len(cuda.equals("forward", (2, 1, 8, 8), (8, 1, 3, 3), (8, 8), SETTINGS, "float32", True)) < 2  # register
    for x, w, settings in (((2, 3, 8, 8), (8, 3, 3, 3), SETTINGS), ((2, 20, 8, 8), (24, 20, 1, 1), ONE_PIXEL)):
        assert not cuda.equals("weight_grad", x, w, x[2:], settings, "float32", True)
    assert not matmul.equals(*arrays((4, 2048), (2048, 4), orders=(None, None)))  # cut


@pytest.mark.parametrize("direction", ["forward", "input_grad", "weight_grad"])
def test_filters_of_one_pixel_take_the_candidates_of_products(direction, monkeypatch):
    x, w, out = arrays((2, 20, 4, 5), (24, 20, 1, 1), (2, 24, 4, 5))
    asked = []
    monkeypatch.setattr(matmul, "chosen", lambda op, *rest: asked.append(op) or "register_64x64")
    with interpreter.recording() as launches:
        if direction == "forward":
            cuda.forward(x, w, None, False, *ONE_PIXEL, out, None)
        elif direction == "input_grad":
            cuda.input_grad(out, w, *ONE_PIXEL, x, None)
        else:
            cuda.weight_grad(out, x, *ONE_PIXEL, w, None)
    assert asked == ["matmul"] and [name for name, _ in launches] == ["matmul_register_64x64"]
