"""What families name as candidates to be timed: they have equal bits, and the one that was chosen runs."""

import numpy as np
import pytest

from minigrad_kernels import interpreter
from minigrad_kernels.conv2d import cuda
from minigrad_kernels.layout import CHANNELS_LAST, FILTER
from minigrad_kernels.matmul import cuda as matmul

from .kernel_runs import laid_out

pytestmark = pytest.mark.deep

SETTINGS = (1, 1), (1, 1), (1, 1), 1


def arrays(direction, kind):
    """(source, filters, result) in the interpreter, the candidates' names."""
    random, x, w = np.random.default_rng(1), (2, 16, 6, 5), (24, 16, 3, 3)
    source, result = (x, (2, 24, 6, 5)) if direction == "forward" else ((2, 24, 6, 5), x)
    orders = (source, CHANNELS_LAST), (w, FILTER), (result, CHANNELS_LAST)
    made = [interpreter.array(laid_out(random.standard_normal(shape).astype(kind), order)) for shape, order in orders]
    return made, list(cuda.equals(direction, x, w, (6, 5), SETTINGS, kind, True))


@pytest.mark.parametrize("direction", ["forward", "input_grad"])
def test_candidates_of_convolutions_have_equal_bits(direction):
    (source, filters, result), names = arrays(direction, "float32")
    assert len(names) >= 2
    found = []
    for name in names:
        result.fill(np.nan)
        for kernel, *given in cuda.starts(direction, source, filters, None, False, SETTINGS, result, None, name):
            kernel(*given)
        found.append(np.array(result))
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


def test_a_convolution_runs_what_was_chosen(monkeypatch):
    (source, filters, result), names = arrays("forward", "float32")
    asked = []

    def choice(op, call, candidates, start, like):
        asked.append((op, call))
        start(names[1])  # as when it is timed
        return names[0]

    monkeypatch.setattr(cuda, "chosen", choice)
    with interpreter.recording() as launches:
        cuda.forward(source, filters, None, False, *SETTINGS, result, None)
    kernels = cuda.equals(*asked[0][1])
    assert [name for name, _ in launches] == [kernels[names[1]].name, kernels[names[0]].name]


def test_what_is_cut_or_has_one_rung_of_tiles_has_no_candidates_to_choose_from():
    for x, w in (((1, 256, 4, 4), (8, 256, 3, 3)), ((2, 1, 8, 8), (8, 1, 3, 3))):  # split, register
        assert len(cuda.equals("forward", x, w, x[2:], SETTINGS, "float32", True)) < 2


def weight_arrays(kind, x=(2, 24, 6, 5), w=(40, 24, 3, 3)):
    """(g, x, dw, workspace) in the interpreter, the candidates' names; the sums are those of one slice."""
    random, g = np.random.default_rng(3), (x[0], w[0], *x[2:])
    orders = (g, CHANNELS_LAST), (x, CHANNELS_LAST), (w, FILTER)
    made = [interpreter.array(laid_out(random.standard_normal(shape).astype(kind), order)) for shape, order in orders]
    space = interpreter.empty(cuda.workspace("weight_grad", x, w, *SETTINGS, np.dtype(kind).itemsize), np.uint8)
    return (*made, space), list(cuda.equals("weight_grad", x, w, x[2:], SETTINGS, kind, True))


@pytest.mark.parametrize("x", [(2, 24, 6, 5), (9, 24, 8, 8)], ids=["one slice", "slices"])
def test_candidates_of_weight_gradients_have_equal_bits(x):
    (g, x, dw, space), names = weight_arrays("float32", x)
    assert names == list(cuda.WEIGHT_TILES)
    found = []
    for name in names:
        dw.fill(np.nan)
        cuda.weight_grad(g, x, *SETTINGS, dw, space, name)
        found.append(np.array(dw))
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


def test_a_weight_gradient_runs_what_was_chosen(monkeypatch):
    (g, x, dw, space), names = weight_arrays("float32")
    asked = []

    def choice(op, call, candidates, start, like):
        asked.append(candidates())
        start(names[1])  # as when it is timed
        return names[0]

    monkeypatch.setattr(cuda, "chosen", choice)
    with interpreter.recording() as launches:
        cuda.weight_grad(g, x, *SETTINGS, dw, space)
    assert [name for name, _ in launches] == [asked[0][names[1]].name, asked[0][names[0]].name]


@pytest.mark.parametrize(
    "x, w", [((2, 3, 8, 8), (8, 3, 3, 3)), ((2, 20, 8, 8), (24, 20, 1, 1))], ids=["register", "1x1"]
)
def test_weight_gradients_that_sum_in_an_order_of_their_own_have_no_candidates(x, w):
    """A product of matrices is asked for by itself."""
    settings = (1, 1), tuple(taps // 2 for taps in w[2:]), (1, 1), 1
    assert not cuda.equals("weight_grad", x, w, x[2:], settings, "float32", True)


ONE_PIXEL = (1, 1), (0, 0), (1, 1), 1


@pytest.mark.parametrize("direction", ["forward", "input_grad", "weight_grad"])
def test_filters_of_one_pixel_take_the_candidates_of_products(direction, monkeypatch):
    random, shapes = np.random.default_rng(1), ((2, 20, 4, 5), (24, 20, 1, 1), (2, 24, 4, 5))
    x, w, out = (
        interpreter.array(laid_out(random.standard_normal(shape).astype(np.float32), order))
        for shape, order in zip(shapes, (CHANNELS_LAST, FILTER, CHANNELS_LAST), strict=True)
    )
    calls = {
        "forward": lambda: cuda.forward(x, w, None, False, *ONE_PIXEL, out, None),
        "input_grad": lambda: cuda.input_grad(out, w, *ONE_PIXEL, x, None),
        "weight_grad": lambda: cuda.weight_grad(out, x, *ONE_PIXEL, w, None),
    }
    asked = []

    def choice(op, call, candidates, start, like):
        asked.append((op, candidates()))
        return "register_64x64"

    monkeypatch.setattr(matmul, "chosen", choice)
    with interpreter.recording() as launches:
        calls[direction]()
    ((op, found),) = asked
    assert op == "matmul" and len(found) >= 2
    assert [name for name, _ in launches] == ["matmul_register_64x64"]


def operands(kind, m=20, k=40, n=24):
    random = np.random.default_rng(2)
    a, b = (interpreter.array(random.standard_normal(shape).astype(kind)) for shape in ((m, k), (k, n)))
    return a, b, interpreter.empty((m, n), np.dtype(kind))


def test_candidates_of_products_have_equal_bits():
    a, b, out = operands("float32")
    names = list(matmul.equals(a, b))
    assert "buffered" in names and len(names) >= 2
    found = []
    for name in names:
        out.fill(np.nan)
        matmul.forward(a, b, None, False, out, None, name)
        found.append(np.array(out))
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


def test_a_product_runs_what_was_chosen(monkeypatch):
    a, b, out = operands("float32")
    names, asked = list(matmul.equals(a, b)), []

    def choice(op, call, candidates, start, like):
        asked.append(candidates())
        start(names[1])  # as when it is timed
        return names[0]

    monkeypatch.setattr(matmul, "chosen", choice)
    with interpreter.recording() as launches:
        matmul.forward(a, b, None, False, out, None)
    assert [name for name, _ in launches] == [asked[0][names[1]].name, asked[0][names[0]].name]


def test_products_that_are_cut_have_no_candidates():
    assert not matmul.equals(*operands("float32", 4, 2048, 4)[:2])
