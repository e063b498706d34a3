"""The tape: what it keeps, in which order it works, what it refuses."""

import copy
import gc
import threading
import tracemalloc
import weakref

import numpy as np
import pytest

import minigrad
from minigrad import Tensor, grad, no_grad, ops, primitive
from minigrad.core.errors import MinigradError
from minigrad.core.modes import enable_grad, is_grad_enabled
from minigrad.core.tape import write
from minigrad.device import memory_statistics


def leaf(*shape, dtype=np.float64):
    return Tensor(np.random.default_rng(0).standard_normal(shape).astype(dtype), requires_grad=True)


# ---- keep-alive ------------------------------------------------------------------------------------------------------


def test_only_what_a_needed_rule_names_stays_alive():
    x, w = Tensor(np.ones(3)), leaf(3)
    y = x * w  # only w needs a gradient, and its rule names x alone
    assert set(y.node.kept) == {"input"}
    assert set((x + w).node.kept) == set()
    assert set(ops.exp(w).node.kept) == {"out"}
    assert set(ops.reshape(w, (1, 3)).node.kept) == {"input_shape"}


def test_fast_gradients_keep_nothing_that_no_needed_rule_keeps():
    x, bias = Tensor(np.ones((4, 3))), leaf(3)
    out = ops.batch_norm(x, None, None, bias=bias, training=True)
    assert set(out.node.kept) == set()
    out.sum().backward()
    np.testing.assert_array_equal(bias.grad.array, np.full(3, 4.0))


def test_backward_lets_go_of_inner_values():
    x = leaf(1000)
    inner = ops.exp(x)
    loss = (inner * inner).sum()
    alive = weakref.ref(inner.array)
    del inner
    gc.disable()
    try:
        loss.backward()
        assert alive() is None  # freed by reference counts, not by the cycle collector
    finally:
        gc.enable()


def test_no_reference_cycles():
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        for _ in range(20):
            x = Tensor(np.ones(250_000), requires_grad=True)
            (ops.exp(x) * ops.exp(x)).sum().backward()
            del x
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        gc.enable()
    assert peak < 20 * 250_000 * 8  # a tenth of what 20 rounds hold together


def test_a_hundred_thousand_ops_deep():
    x = leaf(1)
    y = x
    for _ in range(100_000):
        y = y * 1.00001
    y.sum().backward()
    np.testing.assert_allclose(x.grad.array, 1.00001**100_000, rtol=1e-9)


# ---- order and hooks -------------------------------------------------------------------------------------------------


def test_ready_hooks_fire_while_backward_goes_on():
    events = []

    @primitive
    def step(x, w, name):
        return x * w

    def record(name, what):
        events.append((what, name))

    def dx(g, w, name):
        record(name, "rule")
        return g * w

    step.grads(x=dx, w=lambda g, x: g * x)
    parameters = {name: leaf(3) for name in "abc"}
    for name, w in parameters.items():
        w.register_post_accumulate_grad_hook(lambda tensor, name=name: record(name, "ready"))
    h = leaf(3)
    for name, w in parameters.items():
        h = step(h, w, name)
    h.sum().backward()
    assert events.index(("ready", "c")) < events.index(("rule", "a"))  # the last layer's gradient leaves first
    assert [event for event in events if event[0] == "ready"] == [
        ("ready", "c"),
        ("ready", "b"),
        ("ready", "a"),
    ]


def test_ready_hook_waits_for_every_use_and_sees_the_final_gradient():
    w, seen = leaf(3), []
    w.register_post_accumulate_grad_hook(lambda tensor: seen.append(tensor.grad.array.copy()))
    (w * 2 + ops.exp(w) * w).sum().backward()
    assert len(seen) == 1
    np.testing.assert_allclose(seen[0], 2 + np.exp(w.array) * (1 + w.array))


def test_ready_hook_fires_where_one_use_gives_no_gradient():
    @primitive
    def silent(x):
        return x * 1.0

    for rule in (lambda g: None, lambda g: g * 0.0):
        silent.grads(x=rule)
        w, seen = leaf(3), []
        w.register_post_accumulate_grad_hook(seen.append)
        (silent(w).sum() + w.sum()).backward()
        assert len(seen) == 1
        np.testing.assert_array_equal(w.grad.array, np.ones(3))


def test_tensor_hooks_replace_gradients_on_leaves_and_inner_results():
    x = leaf(3)
    handle = x.register_hook(lambda g: g * 2)
    y = x * 3
    y.register_hook(lambda g: g + 1)
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.array, np.full(3, 12.0))
    handle.remove()
    x.grad = None
    (x * 3).sum().backward()
    np.testing.assert_array_equal(x.grad.array, np.full(3, 3.0))


def test_hooks_come_and_go_while_others_run():
    for make in (lambda x: x, lambda x: x * 1.0):
        x, ran = leaf(3), []
        tensor = make(x)

        def once(g):
            ran.append("once")  # noqa: B023
            handle.remove()  # noqa: B023

        handle = tensor.register_hook(once)
        tensor.register_hook(lambda g: ran.append("second"))  # noqa: B023
        twice = lambda g: ran.append("twice")  # noqa: B023, E731
        drop = tensor.register_hook(twice)
        tensor.register_hook(twice)
        drop.remove()
        drop.remove()
        loss = tensor.sum()
        loss.backward(retain_graph=True)
        assert ran == ["once", "second", "twice"]


def test_a_hook_that_returns_zeros_is_not_mistaken_for_none():
    x = leaf(1)
    x.register_hook(lambda g: g * 0)
    x.sum().backward()
    assert x.grad.item() == 0


def test_a_hook_may_keep_the_gradient():
    """What a hook holds does not change when more gradients are added."""
    x, held = leaf(3), []
    y = x * 1.0
    y.register_hook(lambda g: held.append(g))
    z = y * 2.0
    (z.sum() + (y * 3.0).sum()).backward()
    x.grad = None
    np.testing.assert_array_equal(held[0].array, np.full(3, 5.0))


def test_retain_grad():
    x = leaf(3)
    y = x * 2
    y.retain_grad()
    y.retain_grad()
    y.register_hook(lambda g: g * 3)  # seen, though it came later
    loss = (y * y).sum()
    loss.backward(retain_graph=True)
    np.testing.assert_allclose(y.grad.array, 6 * y.array)
    loss.backward()
    np.testing.assert_allclose(y.grad.array, 12 * y.array)
    with pytest.raises(RuntimeError, match="retain_grad"):
        Tensor(np.ones(1)).retain_grad()


@pytest.mark.parametrize("wrong", [np.ones(2), np.ones(3, np.float32)])
def test_hook_of_wrong_shape_or_type_is_refused(wrong):
    x = leaf(3)
    x.register_hook(lambda g: Tensor(wrong))
    with pytest.raises(ValueError, match="hook: returned"):
        x.sum().backward()


# ---- accumulation ----------------------------------------------------------------------------------------------------


def test_gradients_accumulate_at_one_address():
    x = leaf(3)
    (x * 2).sum().backward()
    address, first = x.grad.array.ctypes.data, x.grad
    (x * 2).sum().backward()
    assert x.grad is first and x.grad.array.ctypes.data == address
    np.testing.assert_array_equal(x.grad.array, np.full(3, 4.0))


@pytest.mark.parametrize("place", ["cpu", "interpreter"])
def test_the_first_gradient_of_a_loss_is_1_however_its_gradients_are_changed(place):
    """It is one array for all losses; whatever a backward pass gives out or adds up is another."""
    x = Tensor(np.float32(3)).to(place).detach()
    x.requires_grad = True
    for _ in range(2):
        x.grad = None
        loss = x + 0.0
        loss.retain_grad()
        (loss + x + x).backward()
        assert x.grad.item() == 3 and loss.grad.item() == 1
        x.backward()  # the loss itself is a leaf
        assert x.grad.item() == 4
        for gradient in (x.grad, loss.grad):
            write(gradient)[...] = 9
        x.grad = None
        x.backward()
        write(x.grad)[...] = 9


def test_a_gradient_never_aliases_another():
    """add hands one gradient to both sides; adding to one must not change the other."""
    x, y = leaf(3), leaf(3)
    g = Tensor(np.ones(3))
    (x + y).backward(g)
    assert not np.shares_memory(x.grad.array, y.grad.array) and not np.shares_memory(x.grad.array, g.array)
    (x + x).sum().backward()
    np.testing.assert_array_equal(y.grad.array, np.ones(3))
    np.testing.assert_array_equal(g.array, np.ones(3))


def test_gradients_of_a_recorded_backward_do_not_alias_either():
    x, y = leaf(3), leaf(3)
    g = Tensor(np.ones(3))
    (x + y).backward(g, create_graph=True)
    (x * 2).sum().backward()
    np.testing.assert_array_equal(x.grad.array, np.full(3, 3.0))
    np.testing.assert_array_equal(y.grad.array, np.ones(3))
    np.testing.assert_array_equal(g.array, np.ones(3))
    (x * x).sum().backward(create_graph=True)
    (x * x).sum().backward()
    np.testing.assert_allclose(x.grad.array, 3 + 4 * x.array)


def test_sums_of_broadcast_views_do_not_write_into_them():
    x = leaf(4, 3)
    y = x * 1.0
    (y.sum() + y.sum(0).sum() + y.mean() + (y * y).sum()).backward()
    np.testing.assert_allclose(x.grad.array, 2 + 1 / 12 + 2 * x.array)


def test_a_rule_may_return_a_view_on_what_it_made():
    @primitive
    def total(x):
        return np.asarray(x.sum())

    total.grads(x=lambda g, x_shape: ops.expand(g * 2, x_shape))
    for shape in ((1,), (3,), (1, 1)):
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


# ---- several outputs -------------------------------------------------------------------------------------------------


@primitive(outputs=("low", "high", "count"), fixed=("count",))
def halves(x):
    n = len(x) // 2
    return x[:n].copy(), x[n:].copy(), np.asarray(len(x))


halves.grads(x=lambda g_low, g_high: ops.cat([g_low, g_high]))


def test_several_outputs_and_symbolic_zeros():
    x = leaf(4)
    low, high, count = halves(x)
    assert low.requires_grad and high.requires_grad and not count.requires_grad
    (gradient,) = grad((high * high).sum(), x)
    np.testing.assert_allclose(gradient.array, [0, 0, *(2 * x.array[2:])])
    low, high, _ = halves(x)
    (gradient,) = grad((low * 3).sum() + (high * 5).sum(), x)
    np.testing.assert_array_equal(gradient.array, [3, 3, 5, 5])


def test_second_order_through_several_outputs():
    x = leaf(4)
    low, high, _ = halves(x)
    (first,) = grad((low * low * high).sum(), x, create_graph=True)
    (second,) = grad(first.sum(), x)
    a, b = x.array[:2], x.array[2:]
    np.testing.assert_allclose(second.array, [*(2 * b + 2 * a), *(2 * a)])


# ---- grad ------------------------------------------------------------------------------------------------------------


def test_grad_asks_only_rules_on_the_path():
    asked = []

    @primitive
    def watched(x, w):
        return x * w

    watched.grads(x=lambda g, w: asked.append("x") or g * w, w=lambda g, x: asked.append("w") or g * x)
    x, w, v = leaf(3), leaf(3), leaf(3)
    y = watched(watched(x, v), w)
    grad(y.sum(), w)
    assert asked == ["w"]
    assert x.grad is None and w.grad is None


def test_grad_of_inner_tensors_and_of_the_output_itself():
    x = leaf(3)
    y = x * 2
    z = (y * y).sum()
    dz, dy, dx = grad(z, [z, y, x])
    assert dz.item() == 1
    np.testing.assert_allclose(dy.array, 2 * y.array)
    np.testing.assert_allclose(dx.array, 8 * x.array)


def test_grad_of_several_outputs_and_unused_inputs():
    x, unused = leaf(3), leaf(3)
    total, nothing = grad([x.sum(), (x * 2).sum()], [x, unused], allow_unused=True)
    np.testing.assert_array_equal(total.array, np.full(3, 3.0))
    assert nothing is None
    with pytest.raises(RuntimeError, match=r"do not depend on inputs\[0\]"):
        grad(x.sum(), unused)


def test_third_order():
    x = leaf(5)
    y = ops.exp(x * 2)
    for factor in (2, 4, 8):
        (y,) = grad(y.sum(), x, create_graph=True)
        np.testing.assert_allclose(y.array, factor * np.exp(2 * x.array))


def test_create_graph_in_backward_makes_differentiable_gradients():
    x = leaf(3)
    (x * x * x).sum().backward(create_graph=True)
    (second,) = grad(x.grad.sum(), x)
    np.testing.assert_allclose(second.array, 6 * x.array)


# ---- refusals --------------------------------------------------------------------------------------------------------


def test_second_backward_is_refused_before_anything_changes():
    x, w = leaf(3), leaf(3)
    shared = ops.exp(x)
    first, second = shared.sum(), (shared * w).sum()
    first.backward()
    with pytest.raises(RuntimeError, match="exp: backward through a graph that was freed.*retain_graph=True"):
        second.backward()
    assert w.grad is None


def test_retain_graph():
    x = leaf(3)
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    np.testing.assert_allclose(x.grad.array, 4 * x.array)
    with pytest.raises(RuntimeError, match="freed"):
        y.backward()


def test_a_value_changed_since_is_refused():
    x, w = leaf(3), leaf(3)
    for view in (lambda t: t, lambda t: t.reshape(3, 1), lambda t: t[::-1], lambda t: t.detach() * x):
        y = (x * view(w)).sum()
        write(w)[...] = 0
        with pytest.raises(RuntimeError, match="was changed after it was used"):
            y.backward()
    assert x.grad is None


def test_a_result_changed_since_is_refused():
    x = leaf(3)
    for op in (ops.exp, lambda x: ops.softmax(x, 0)):
        y = op(x)
        write(y.detach())[...] = 0
        with pytest.raises(RuntimeError, match="out was changed after it was used"):
            y.sum().backward()


def test_a_choice_changed_since_is_refused():
    x, k = leaf(3, 3), Tensor([0, 1, 2])
    for y in (ops.gather(x, 1, k.reshape(3, 1)).sum(), ops.cross_entropy(x, k), ops.nll_loss(x, k)):
        write(k)[...] = 0
        with pytest.raises(RuntimeError, match="was changed after it was used"):
            y.backward()


def test_a_copy_of_a_changed_value_is_still_good():
    w, x = leaf(3), leaf(2)
    y = (w[np.array([0, 1])] * x).sum()
    write(w)[...] = 0
    y.backward()


def test_a_freed_branch_off_the_path_is_no_hindrance():
    x, w = leaf(3), leaf(3)
    shared = ops.exp(x)
    shared.sum().backward()
    z = (shared * w).sum()
    np.testing.assert_allclose(grad(z, w)[0].array, shared.array)
    with pytest.raises(RuntimeError, match="freed"):
        grad((shared * w).sum(), x)


def test_writing_what_no_rule_kept_is_allowed():
    x, w = leaf(3), leaf(3)
    y = (x + w).sum()
    write(w)[...] = 0
    y.backward()


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda x: write(x * 2), RuntimeError, "only leaves can be written"),
        (lambda x: (x * 2).backward(), RuntimeError, "is no scalar"),
        (lambda x: Tensor(np.ones(1)).backward(), RuntimeError, "no history"),
        (lambda x: (x * 2).backward(Tensor(np.ones(2))), ValueError, "gradient has shape"),
        (lambda x: (x * 2).backward(np.ones(3)), TypeError, "wanted a Tensor"),
        (lambda x: (x * 2).backward(Tensor(np.ones(3, np.float32))), TypeError, "gradient has elements float32"),
        (lambda x: list(Tensor(1.0)), TypeError, "no dimensions"),
        (lambda x: grad(x.sum(), Tensor(np.ones(3))), RuntimeError, "does not require a gradient"),
        (lambda x: grad(x.sum().item(), x), TypeError, "^grad: an output is a float, wanted a Tensor"),
        (lambda x: grad([x.sum()], [x], [None, None]), ValueError, "2 grad_outputs for 1 outputs"),
        (lambda x: (x * 2).numpy(), RuntimeError, "detach"),
        (lambda x: x.item(), ValueError, "single element"),
        (lambda x: (x * 2).requires_grad_(), RuntimeError, "detach"),
        (lambda x: Tensor([1, 2]).requires_grad_(), TypeError, "floating"),
        (lambda x: Tensor([1, 2], requires_grad=True), TypeError, "floating"),
        (lambda x: Tensor(2.0, 3), TypeError, "Tensor: requires_grad is 3, wanted True or False; to make one of a sh"),
        (lambda x: Tensor(x), TypeError, "a Tensor already"),
        (lambda x: Tensor(["a"]), TypeError, "element type"),
        (lambda x: Tensor([[1.0], [1.0, 2.0]]), TypeError, "ragged"),
        (lambda x: Tensor(np.ones(3, complex)), TypeError, "element type"),
        (lambda x: Tensor([1.0]).register_hook(print), RuntimeError, "never be called"),
        (lambda x: (x * 2).register_post_accumulate_grad_hook(print), RuntimeError, "wants a leaf"),
        (lambda x: len(x.sum()), TypeError, "no dimensions"),
        (lambda x: x + "a", TypeError, "unsupported operand"),
    ],
)
def test_refusals(call, error, message):
    with pytest.raises(error, match=message) as caught:
        call(leaf(3))
    assert isinstance(caught.value, MinigradError) or "unsupported" in message


def test_primitives_refuse_rules_that_name_what_is_not_there():
    @primitive
    def op(x):
        return x

    with pytest.raises(TypeError, match="asks for \\['y'\\]"):
        op.grads(x=lambda g, y: g)
    with pytest.raises(RuntimeError, match="x requires a gradient but has no rule"):
        op(leaf(1))
    for wrong in (lambda g: g, lambda index: index, lambda out: out, lambda g_scale: g_scale):
        with pytest.raises(TypeError, match="name of an output"):
            primitive(wrong)
    for wrong in (lambda: 1, lambda x, *rest: x, lambda x, **rest: x):
        with pytest.raises(TypeError, match="only the first may be starred"):
            primitive(wrong)
    with pytest.raises(TypeError, match="^op: missing a required argument: 'x'"):
        op()


def test_a_rule_of_wrong_shape_or_kind_is_refused():
    @primitive
    def op(x):
        return x * 1.0

    op.grads(x=lambda g: g.reshape(3, 1))
    with pytest.raises(ValueError, match="op: the rule of x returned shape"):
        op(leaf(3)).sum().backward()
    op.grads(x=lambda g: g.array)
    with pytest.raises(TypeError, match="op: the rule of x returned ndarray"):
        op(leaf(3)).sum().backward()


# ---- modes and threads -----------------------------------------------------------------------------------------------


def test_modes_nest_and_decorate():
    x = leaf(3)
    with no_grad():
        assert not is_grad_enabled() and not (x * 2).requires_grad
        with enable_grad():
            assert (x * 2).requires_grad

    @no_grad()
    def function():
        return x * 2

    assert not function().requires_grad and is_grad_enabled()


def test_threads_do_not_disturb_each_other():
    results, errors = {}, []

    def work(seed):
        try:
            w = Tensor(np.random.default_rng(seed).standard_normal((8, 1, 3, 3)), requires_grad=True)
            x = Tensor(np.random.default_rng(seed + 100).standard_normal((4, 1, 12, 12)))
            for _ in range(5):
                w.grad = None
                if seed % 2:
                    with no_grad():
                        ops.conv2d(x, w)
                ops.max_pool2d(ops.relu(ops.conv2d(x, w)), 2).sum().backward()
            results[seed] = w.grad.array.copy()
        except BaseException as error:
            errors.append(error)

    for attempt in range(2):
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors
        if not attempt:
            first = dict(results)
    for seed in range(8):
        np.testing.assert_array_equal(first[seed], results[seed])


# ---- tensors ---------------------------------------------------------------------------------------------------------


def test_an_array_is_taken_as_it_is_and_shared_with_numpy():
    array = np.arange(6.0).reshape(2, 3)
    x = Tensor(array)
    assert x.array is array and x.numpy() is array and np.shares_memory(np.asarray(x), array)
    assert Tensor(np.arange(3, dtype=">f4")).dtype == np.dtype("=f4")
    assert Tensor([1.0, 2.0]).dtype == np.float32 and Tensor([1, 2]).dtype == np.int64
    assert Tensor(np.float64(2)).dtype == np.float64


def test_dlpack_shares_memory_both_ways():
    x = Tensor(np.arange(6, dtype=np.float32).reshape(2, 3))
    array = np.from_dlpack(x)
    assert np.shares_memory(array, x.array)
    assert np.shares_memory(minigrad.from_dlpack(x.array).array, x.array)


def test_numpy_arrays_on_the_left():
    x = leaf(3)
    y = np.ones(3) * x
    assert isinstance(y, Tensor)
    y = np.float64(2) - x
    assert isinstance(y, Tensor) and y.dtype == np.float64
    assert (np.ones((2, 3)) @ x).shape == (2,) and f"{x.sum():.2f}" == f"{x.array.sum():.2f}"


@pytest.mark.parametrize(
    "first, second, expected",
    [
        (np.float32, np.float64, np.float64),
        (np.int64, np.float32, np.float32),
        (np.bool_, np.int32, np.int32),
        (np.int32, np.int64, np.int64),
        (np.float16, np.float32, np.float32),
    ],
)
def test_types_promote_as_in_pytorch(first, second, expected):
    assert (Tensor(np.ones(2, first)) + Tensor(np.ones(2, second))).dtype == expected


def test_scalars_take_the_type_of_the_tensor():
    x = Tensor(np.ones(3, np.float32))
    assert (x * 2.5).dtype == (2 / x).dtype == (x**2).dtype == np.float32
    assert (x + Tensor(np.array(1.0, np.float64))).dtype == np.float32  # no dimensions: only its category counts
    assert (Tensor([1, 2]) * 2.5).dtype == np.float32 and (Tensor([1, 2]) / 2).dtype == np.float32


def test_representations():
    x = Tensor([[1.0, 2.0]], requires_grad=True)
    assert repr(x) == "Tensor([[1., 2.]], requires_grad=True)"
    assert repr(x * 2).endswith("made by mul)")
    assert "float64" in repr(Tensor(np.ones(1)))
    assert "<pre>" in x._repr_html_() and "(1, 2)" in x._repr_html_()


def test_data_may_be_replaced():
    x, old = leaf(3), leaf(3).array.copy()
    (x * x).sum().backward()
    x.data = x.data - 0.25 * x.grad
    assert isinstance(x.array, np.ndarray) and x.requires_grad and x.is_leaf
    np.testing.assert_array_equal(x.array, 0.5 * old)
    with pytest.raises(TypeError, match="data: got a list, wanted a Tensor or an array"):
        x.data = [1.0]
    x.data = np.float64(2)  # what NumPy makes of an array without dimensions
    assert x.item() == 2


def test_an_array_that_is_replaced_is_missed_by_backward():
    x = leaf(3)
    y = (x * x).sum()
    x.data = x.data * 2
    with pytest.raises(RuntimeError, match="was changed after it was used"):
        y.backward()


# ---- memory ----------------------------------------------------------------------------------------------------------


def test_a_steady_step_takes_no_new_memory():
    x, w = Tensor(np.ones((64, 64, 30))), leaf(64, 30)

    def step():
        w.grad = None
        (ops.exp(x * 0.01) * w).sum().backward()

    for _ in range(3):
        step()
    before = memory_statistics()
    for _ in range(10):
        step()
    after = memory_statistics()
    assert after["requests"] > before["requests"] and after["reserved_bytes"] == before["reserved_bytes"]


def test_views_keep_pooled_memory_alive():
    minigrad.empty_cache()
    x = minigrad.full((100, 100), 7.0)
    view = memoryview(x.array[50:])
    capsule = np.from_dlpack(x.array[::2])
    address = x.array.ctypes.data
    del x
    others = [minigrad.full((100, 100), 1.0) for _ in range(4)]
    assert all(other.array.ctypes.data != address for other in others)
    assert view[0, 0] == 7 and capsule[0, 0] == 7
    del view, capsule, others
    assert memory_statistics()["cached_bytes"] > 0
    minigrad.empty_cache()
    assert memory_statistics()["cached_bytes"] == 0


def test_a_copy_of_a_leaf_is_a_leaf_of_its_own():
    x = leaf(3)
    x.register_hook(lambda g: g * 2)
    (x * x).sum().backward()
    twin = copy.deepcopy(x)
    np.testing.assert_array_equal(twin.array, x.array)
    np.testing.assert_array_equal(twin.grad.array, x.grad.array)
    write(twin)[...] = 0
    assert twin.requires_grad and not twin.node.hooks and x.array.any() and x.version == [0]
    with pytest.raises(RuntimeError, match="deepcopy: self was made by mul"):
        copy.deepcopy(x * 2)


def test_a_whole_number_is_an_index():
    assert ["a", "b"][Tensor(np.array([1]))] == "b" and list(range(Tensor(np.array(2)))) == [0, 1]
    for wrong in (Tensor(np.array(1.0)), Tensor(np.array([0, 1])), Tensor(np.array(True))):
        with pytest.raises(TypeError, match="index: self has"):
            ["a", "b"][wrong]


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda x: x.requires_grad_("no"), TypeError, "requires_grad_: requires_grad is 'no'"),
        (lambda x: setattr(x, "requires_grad", np.ones(2)), TypeError, "requires_grad_: requires_grad is array"),
        (lambda x: x.size(5), IndexError, "size: dim is 5"),
        (lambda x: x.type_as(3), TypeError, "type_as: other is a int, wanted a Tensor"),
        (lambda x: x.expand_as((3,)), TypeError, "expand_as: other is a tuple"),
        (lambda x: x.view_as(None), TypeError, "view_as: other is a NoneType"),
        (lambda x: x.size("a"), TypeError, "size: dim is 'a'"),
    ],
)
def test_methods_refuse_in_words(call, error, message):
    with pytest.raises(error, match=message) as caught:
        call(leaf(3))
    assert isinstance(caught.value, MinigradError)
