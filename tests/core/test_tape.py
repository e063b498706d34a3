"""The tape: what it keeps, in which order it works, whose memory a gradient is, what it refuses."""

import gc
import weakref

import numpy as np
import pytest

from minigrad import Tensor, grad, ops, primitive
from minigrad.core.tape import after_backward, write


def leaf(*shape, dtype=np.float64):
    return Tensor(np.random.default_rng(0).standard_normal(shape).astype(dtype), requires_grad=True)


# ---- keep-alive ------------------------------------------------------------------------------------------------------


def test_only_what_a_needed_rule_names_stays_alive():
    x, w = Tensor(np.ones((4, 3))), leaf(3)
    norm = ops.batch_norm(x, None, None, bias=w, training=True)  # whose gradients at once could use more
    kept = [(x * w, {"input"}), (x + w, set()), (w.exp(), {"out"}), (w.reshape(1, 3), {"input_shape"}), (norm, set())]
    for out, names in kept:  # x needs no gradient
        assert set(out.node.kept) == names
    norm.sum().backward()
    assert w.grad.tolist() == [4, 4, 4]


def test_backward_lets_go_of_values_and_nothing_is_a_cycle():
    """All is freed by reference counts, not by the cycle collector."""
    gc.disable()
    try:
        inner = ops.exp(leaf(1000))
        loss = (inner * inner).sum()
        value, node = weakref.ref(inner.array), weakref.ref(inner.node)
        del inner
        loss.backward()
        assert value() is None and node() is not None
        del loss
        assert node() is None
    finally:
        gc.enable()


def test_a_graph_may_be_as_deep_as_memory_allows():
    x = y = leaf(1)
    for _ in range(5_000):
        y = y * 1.0001
    y.sum().backward()
    del y
    np.testing.assert_allclose(x.grad.array, 1.0001**5_000, rtol=1e-9)


# ---- hooks -----------------------------------------------------------------------------------------------------------


def test_ready_hooks_fire_once_each_while_backward_goes_on():
    """The gradient of the last layer leaves first, one of several uses when the last came, though it has nothing to
    say; what a hook begins is ended when all gradients are there."""
    events = []

    @primitive
    def step(x, w, name):
        return x * w

    @primitive
    def silent(x):
        return x * 1.0

    step.grads(x=lambda g, w, name: events.append(f"rule of {name}") or g * w, w=lambda g, x: g * x)
    silent.grads(x=lambda g: None)
    h, parameters = leaf(3), {name: leaf(3) for name in "ab"}
    for name, w in parameters.items():

        def ready(tensor, name=name, w=w):
            assert tensor is w
            events.append(f"{name} is {tensor.grad.array[0]:.3f}")
            after_backward(lambda: events.append(f"end of {name}"))

        w.register_post_accumulate_grad_hook(ready)
        h = step(h, w, name)
    first = parameters["a"]
    (silent(first).sum() + h.sum() + (first * 2).sum()).backward()
    a = first.array[0]
    assert events == ["rule of b", f"b is {a * a:.3f}", "rule of a", f"a is {a * a + 2:.3f}", "end of b", "end of a"]
    with pytest.raises(RuntimeError, match="^after_backward: no backward pass is under way"):
        after_backward(print)


@pytest.mark.parametrize("inner", [False, True])
def test_hooks_replace_keep_and_change_gradients(inner):
    """On a leaf and on an inner result. They may come and go while others run, and have arrays of their own."""
    x, y, ran, held = leaf(3), leaf(3), [], []
    tensor = x * 1.0 if inner else x

    def once(g):
        ran.append("once")
        handle.remove()

    def in_place(g):
        held.append(g)
        g *= 10

    if inner:
        tensor.retain_grad(), tensor.retain_grad()  # sees what hooks do that come later
    handle = tensor.register_hook(once)
    tensor.register_hook(lambda g: g * 2)
    tensor.register_hook(in_place)
    drop = tensor.register_hook(lambda g: ran.append("never"))
    drop.remove(), drop.remove()
    loss = (tensor + y).sum()
    for total in (20, 40):
        loss.backward(retain_graph=True)
        assert x.grad.tolist() == tensor.grad.tolist() == [total] * 3
    assert ran == ["once"] and [g.tolist() for g in held] == [[20] * 3] * 2 and y.grad.tolist() == [2, 2, 2]
    tensor.register_hook(lambda g: g * 0)  # zeros are not None
    dx, dy = grad(loss, [tensor, y], retain_graph=True)
    dy += 1  # which dx does not see, though the sum passes one gradient on to both
    assert dx.tolist() == [0, 0, 0] and dy.tolist() == [2, 2, 2]
    tensor.register_hook(lambda g: Tensor(np.ones(2)))
    with pytest.raises(ValueError, match="hook: returned"):
        loss.backward()


# ---- accumulation ----------------------------------------------------------------------------------------------------


def test_gradients_accumulate_at_one_address_and_never_alias_another():
    """add hands one gradient to both sides; adding to one must not change the other."""
    for create_graph in (False, True):
        x, y, g = leaf(3), leaf(3), Tensor(np.ones(3))
        (x + y).backward(g, create_graph=create_graph)
        first, address = x.grad, x.grad.array.ctypes.data
        (x + x).sum().backward()
        assert (x.grad.tolist(), y.grad.tolist(), g.tolist()) == ([3] * 3, [1] * 3, [1] * 3)
        assert create_graph or x.grad is first and first.array.ctypes.data == address


@pytest.mark.parametrize("place", ["cpu", "interpreter"])
def test_the_first_gradient_is_a_1_like_the_output_however_gradients_are_changed(place):
    """It is one array for all losses; whatever a backward pass gives out or adds up is another."""
    for shape, dtype in (((), "float32"), ((1,), "float16")):
        x = Tensor(np.full(shape, 3, dtype)).to(place).requires_grad_()
        for _ in range(2):
            x.grad = None
            loss = x + 0
            loss.retain_grad()
            (loss + x + x).backward()
            assert x.grad.item() == 3 and loss.grad.item() == 1
            x.backward()  # the loss itself is a leaf
            assert x.grad.item() == 4 and (x.grad.dtype, x.grad.device, x.grad.shape) == (dtype, place, shape)
            write(x.grad)[...] = write(loss.grad)[...] = 9
        assert grad(x, x)[0].item() == 1


def test_sums_of_views_and_of_arrays_of_the_engine_are_right_in_any_order():
    """What is expanded is never written; of what a pass owns one array takes the sum, however many arrive."""
    x = leaf(4, 3)
    y = x * 1.0
    terms = [y.sum(), y.sum(0).sum(), y.mean(), (y * y).sum()]
    for order in ((0, 1, 2, 3), (3, 2, 1, 0)):
        (found,) = grad(sum(terms[i] for i in order), x, retain_graph=True)
        np.testing.assert_allclose(found.array, 2 + 1 / 12 + 2 * x.array)

    @primitive
    def total(x):
        return np.asarray(x.sum())

    total.grads(x=lambda g, x_shape: ops.expand(g * 2, x_shape))  # a view on what the rule made
    for shape in ((1,), (3,)):
        x = leaf(*shape)
        y = x * 1.0
        (total(y) + total(y) + y.sum()).backward()
        np.testing.assert_array_equal(x.grad.array, np.full(shape, 5.0))


def test_gradient_has_type_shape_and_layout_of_its_leaf():
    w = Tensor(np.zeros((4, 5, 3, 2)).transpose(0, 3, 1, 2), requires_grad=True)
    (w * 2).sum().backward()
    assert w.grad.array.strides == w.array.strides
    x = leaf(3, 1, dtype=np.float32)
    (x * leaf(2, 3, 4)).sum().backward()
    assert x.grad.shape == (3, 1) and x.grad.dtype == np.float32


# ---- grad, and refusals ----------------------------------------------------------------------------------------------


def test_grad_of_leaves_inner_tensors_and_outputs_asks_only_rules_on_the_path():
    asked = []

    @primitive
    def watched(x, w):
        return x * w

    watched.grads(x=lambda g, w: asked.append("x") or g * w, w=lambda g, x: asked.append("w") or g * x)
    x, w, unused = leaf(3), leaf(3), leaf(3)
    grad(watched(watched(x, unused), w).sum(), w)
    assert asked == ["w"] and x.grad is None and w.grad is None
    y = x * 2
    z = (y * y).sum()
    dz, dy, dx, nothing = grad([z, x.sum()], [z, y, x, unused], allow_unused=True)
    assert dz.item() == 1 and nothing is None
    np.testing.assert_allclose(dy.array, 2 * y.array)
    np.testing.assert_allclose(dx.array, 8 * x.array + 1)
    with pytest.raises(RuntimeError, match=r"do not depend on inputs\[0\]"):
        grad(x.sum(), unused)


def test_a_result_knows_the_operations_that_made_it():
    x = Tensor([1.0], requires_grad=True)
    y = x * 3
    made = (y + x).grad_fn
    assert x.grad_fn is None and made.next_functions[0] == (y.grad_fn, 0) and made.next_functions[1][0] is x.node


def test_a_graph_is_gone_through_once_unless_it_is_retained():
    x, w = leaf(3), leaf(3)
    shared = ops.exp(x)
    for retain_graph in (True, False):
        shared.sum().backward(retain_graph=retain_graph)
    np.testing.assert_allclose(x.grad.array, 2 * shared.array)
    with pytest.raises(RuntimeError, match="exp: backward through a graph that was freed.*retain_graph=True"):
        (shared * w).sum().backward()
    assert w.grad is None  # refused before anything changes
    np.testing.assert_allclose(grad((shared * w).sum(), w)[0].array, shared.array)  # a path beside it is no hindrance


def test_backward_refuses_values_that_were_changed():
    """An argument by any view, a result, a choice; what no rule kept, or kept a copy of, may change."""
    x, w, k = leaf(3, 3), leaf(3), Tensor([0, 1, 2])
    for words, changed, use in (
        ("mul: other", w, lambda: x * w),
        ("mul: other", w, lambda: x * w[::-1]),
        ("exp: out", None, lambda: ops.exp(x)),
        ("pick: .*", k, lambda: ops.gather(x, 1, k.reshape(3, 1))),
        ("cross_entropy: target", k, lambda: ops.cross_entropy(x, k)),
    ):
        y = use()
        write(y.detach() if changed is None else changed)[...] = 0
        with pytest.raises(RuntimeError, match=rf"^{words} was changed after it was used \(version \d, recorded \d"):
            y.sum().backward()
    y, other = (x * w).sum(), (x + w).sum() + (w[np.array([0, 1])] * leaf(2)).sum()
    w.data = w.data * 2  # another array in its place
    with pytest.raises(RuntimeError, match="^mul: other was changed"):
        y.backward()
    other.backward()
