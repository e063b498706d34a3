"""A Tensor by itself: what it is made of, what it says and shows, what Python and NumPy make of it, its copies."""

import copy
import operator

import numpy as np
import pytest

import minigrad
from minigrad import Tensor
from minigrad.core.tape import write


def leaf(values, dtype="float64"):
    return Tensor(np.array(values, dtype), requires_grad=True)


def test_an_array_is_taken_as_it_is_and_shared_with_numpy():
    array = np.arange(6.0).reshape(2, 3)
    x = Tensor(array)
    assert x.array is array and x.numpy() is array and np.shares_memory(np.asarray(x), array)
    assert np.shares_memory(np.from_dlpack(x), array) and np.shares_memory(minigrad.from_dlpack(array).array, array)
    for other in (np.array(2.0), np.lib.stride_tricks.as_strided(array, (3,), (0,)), np.zeros((0, 2))):
        assert np.from_dlpack(Tensor(other)).tolist() == other.tolist()
    assert x.__array__("float32").dtype == "float32" and np.asarray(x, "int64").tolist() == [[0, 1, 2], [3, 4, 5]]
    assert Tensor(np.arange(3, dtype=">f4")).dtype == np.dtype("=f4")
    assert Tensor([1.0, 2.0]).dtype == np.float32 and Tensor([1, 2]).dtype == np.int64
    assert Tensor(np.float64(2)).dtype == np.float64


OPERATORS = "add sub mul truediv floordiv mod pow lt le gt ge eq ne", "and_ or_ xor", "matmul"


@pytest.mark.parametrize("names", OPERATORS)
def test_operators_are_numpys(names):
    """Between two Tensors, and with a number or an array on either side."""
    kind = "int64" if names.startswith("and") else "float64"
    x, y = np.array([[5, 7], [2, 9]], kind), np.array([[2, -3], [4, 2]], kind)
    for name in names.split():
        apply = getattr(operator, name)
        numbers = [] if name == "matmul" else [(x.item(0), Tensor(y)), (Tensor(x), y.item(1)), (x[0, 0], Tensor(y))]
        for first, second in ((Tensor(x), Tensor(y)), (x, Tensor(y)), (Tensor(x), y), *numbers):
            wanted = apply(*(value.array if isinstance(value, Tensor) else value for value in (first, second)))
            np.testing.assert_allclose(apply(first, second).numpy(), wanted, rtol=1e-12, err_msg=name)


def test_types_promote_as_in_pytorch():
    x, i = Tensor(np.ones(3, np.float32)), Tensor([1, 2, 3])
    for first, second, expected in (
        *(("float32", "float64", "float64"), ("int64", "float32", "float32"), ("bool", "int32", "int32")),
        *(("int32", "int64", "int64"), ("float16", "float32", "float32")),
    ):
        assert (Tensor(np.ones(2, first)) + Tensor(np.ones(2, second))).dtype == expected
    no_dimensions = Tensor(np.array(1.0, np.float64))  # of which only the category counts, as of a number
    for y in (x * 2.5, 2 / x, x**2, x + no_dimensions, i * 2.5, i / 2):
        assert y.dtype == np.float32


def test_one_element_is_a_number():
    assert operator.index(Tensor(np.array(3, "uint8"))) == 3 and [5, 6][Tensor(np.array([1]))] == 6
    assert Tensor(np.array([[2.0]])) and not Tensor(np.array(0)) and f"{Tensor(2.0):.2f}" == "2.00"
    for values, dtype in ((1.0, "float32"), (True, "bool"), ([1, 2], "int64")):
        with pytest.raises(TypeError, match="^index: self has shape"):
            operator.index(Tensor(np.array(values, dtype)))
    for size in (0, 2):
        with pytest.raises(ValueError, match=rf"^bool: self has shape \({size},\)"):
            bool(Tensor(np.ones(size)))


def test_a_copy_of_a_leaf_starts_anew():
    x = leaf([1.0, 2.0])
    write(x)
    x.register_post_accumulate_grad_hook(print)
    x.register_hook(lambda g: g * 2)
    (x * x).sum().backward()
    twin = copy.deepcopy(x)
    assert twin.version == [0] and twin.node.ready_hooks == () and twin.node.hooks == () and twin.requires_grad
    write(twin)[...] = write(twin.grad)[...] = 0
    assert x.version == [1] and x.tolist() == [1, 2] and x.grad.tolist() == [4, 8]
    with pytest.raises(RuntimeError, match="deepcopy: self was made by mul"):
        copy.deepcopy(x * 2)


def test_it_says_what_it_is():
    x = Tensor([[1.0, 2.0]], requires_grad=True)
    assert repr(x) == "Tensor([[1., 2.]], requires_grad=True)"
    assert repr(x * 2).endswith("made by mul)") and "float64" in repr(Tensor(np.ones(1)))
    for count, part in ((200, False), (201, True)):
        assert ("..." in repr(Tensor(np.arange(float(count))))) == part
