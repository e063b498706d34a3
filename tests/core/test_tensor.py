"""A Tensor by itself: what it says and shows, what Python and NumPy make of it, its copies."""

import copy
import html
import operator

import numpy as np
import pytest

from minigrad import Tensor
from minigrad.core.tape import write


def leaf(values, dtype="float64"):
    return Tensor(np.array(values, dtype), requires_grad=True)


def shown(tensor):
    """The lines that a notebook shows of the elements."""
    return html.unescape(tensor._repr_html_().partition("<pre>")[2].removesuffix("</pre></div>")).split("\n")


def test_an_index_is_one_integer():
    assert operator.index(Tensor(np.array(3, "uint8"))) == 3 and [5, 6][Tensor(np.array([1]))] == 6
    for values, dtype in ((1.0, "float32"), (True, "bool"), ([1, 2], "int64")):
        with pytest.raises(TypeError, match="^index: self has shape"):
            operator.index(Tensor(np.array(values, dtype)))


def test_one_element_alone_has_a_truth_value():
    assert Tensor(np.array([[2.0]])) and not Tensor(np.array(0))
    for size in (0, 2):
        with pytest.raises(ValueError, match=rf"^bool: self has shape \({size},\)"):
            bool(Tensor(np.ones(size)))


def test_a_copy_of_a_leaf_starts_anew():
    x = leaf([1.0, 2.0])
    write(x)
    x.register_post_accumulate_grad_hook(print)
    twin = copy.deepcopy(x)
    assert twin.version == [0] and twin.node.ready_hooks == () and twin.node.hooks == ()
    assert x.version == [1] and twin.array is not x.array


def test_a_notebook_shows_what_a_tensor_is():
    assert "requires_grad=True" in leaf([1.0])._repr_html_()
    plain = Tensor(np.arange(200.0))._repr_html_()
    assert "requires" not in plain and "..." not in plain and "199" in plain
    assert "..." in Tensor(np.arange(201.0))._repr_html_()
    assert "<pre>[[1., 2.],\n [3., 4.]]</pre>" in Tensor(np.array([[1.0, 2.0], [3.0, 4.0]]))._repr_html_()


def test_long_tensors_are_shown_in_part():
    for count, part in ((200, False), (201, True)):
        assert ("..." in repr(Tensor(np.arange(float(count))))) == part
    made = (leaf(np.zeros((2, 40))) * 2)._repr_html_()
    assert ", made by mul" in made and made.count("\n") == repr(Tensor(np.zeros((2, 40)))).count("\n")


def test_a_copy_has_a_gradient_of_its_own():
    x = leaf([1.0, 2.0])
    (x * x).sum().backward()
    twin = copy.deepcopy(x)
    write(twin.grad)[...] = 0
    np.testing.assert_array_equal(x.grad.array, [2, 4])
    x.grad = x  # as that of half of its square is
    twin = copy.deepcopy(x)
    assert twin.grad is twin and twin is not x


def test_a_notebook_shows_the_first_lines():
    for count, last in ((24, " [23.]]"), (25, "...")):
        lines = shown(Tensor(np.arange(float(count)).reshape(count, 1)))
        assert len(lines) == min(count, 25) and lines[0] == "[[ 0.],"
        assert lines[23].startswith(" [23.]") and lines[-1] == last


def test_a_notebook_fetches_no_large_array_from_a_device():
    assert shown(Tensor(np.arange(1001.0)))[0].startswith("[   0.,    1.,")
    assert shown(Tensor(np.arange(1000.0)).to("interpreter"))[0].startswith("[  0.,   1.,")
    (line,) = shown(Tensor(np.arange(1001.0)).to("interpreter"))
    assert line == "1,001 elements; .numpy() brings them here"


def test_numpy_gets_the_type_that_it_asks_for():
    x = Tensor(np.array([1.5, 2.5]))
    assert x.__array__("float32").dtype == "float32" and x.__array__().dtype == "float64"
    assert np.asarray(x, "int64").tolist() == [1, 2]
