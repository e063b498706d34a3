"""GradScaler: growth, back-off, updates that are left out, calls out of turn, its state."""

import numpy as np
import pytest

from minigrad import Tensor, optim
from minigrad.amp import GradScaler
from minigrad.core.errors import KindError, ShapeError, StateError
from minigrad.optim.lr_scheduler import StepLR

WRONG = {"inf": np.inf, "-inf": -np.inf, "nan": np.nan}


def parameter(*values):
    return Tensor(np.array(values or [1, 2, 3], np.float32), requires_grad=True)


def stepped(scaler, optimizer, w, factor=1.0):
    """One update whose gradient is `factor` everywhere."""
    optimizer.zero_grad()
    scaler.scale((w * Tensor(np.full(w.shape, factor, np.float32))).sum()).backward()
    scaler.step(optimizer)
    scaler.update()


def test_the_scale_grows_after_the_interval_and_falls_with_every_update_left_out():
    w = parameter()
    scaler, optimizer, scales = GradScaler(8.0, 4.0, 0.5, 3), optim.SGD([w], lr=0.0), []
    for factor in (1, 1, 1, 1, np.inf, 1, 1, np.nan, np.nan, 1, 1, 1, 1):
        stepped(scaler, optimizer, w, factor)
        scales.append(scaler.get_scale())
        assert scaler.skipped() == (not np.isfinite(factor))
    assert scales == [8, 8, 32, 32, 16, 16, 16, 8, 4, 4, 4, 16, 16]


def test_the_scale_grows_no_further_than_float32_goes():
    w = parameter()
    scaler, optimizer = GradScaler(2.0**127, growth_interval=1), optim.SGD([w], lr=0.0)
    stepped(scaler, optimizer, w, 2.0**-127)
    assert scaler.get_scale() == 2.0**127 and not scaler.skipped()


@pytest.mark.parametrize("kind", ["SGD", "Adam", "RMSprop", "Adagrad"])
@pytest.mark.parametrize("wrong", WRONG)
def test_an_update_that_is_left_out_changes_nothing(kind, wrong):
    w, v = parameter(), parameter(4, 5)
    optimizer = getattr(optim, kind)([w, v], lr=0.1)
    schedule, scaler = StepLR(optimizer, 1), GradScaler(4.0)
    stepped(scaler, optimizer, w)
    before = np.array(w.detach()), np.array(v.detach()), repr(optimizer.state_dict())
    optimizer.zero_grad()
    scaler.scale((w * Tensor(np.array([1, WRONG[wrong], 1], np.float32))).sum() + v.sum()).backward()
    assert scaler.step(optimizer) is None
    scaler.update()
    assert scaler.skipped() and schedule.last_epoch == 0
    assert np.array_equal(w.detach(), before[0]) and np.array_equal(v.detach(), before[1])
    assert repr(optimizer.state_dict()) == before[2]


@pytest.mark.parametrize("unscaled", [False, True])
def test_powers_of_two_leave_no_trace(unscaled):
    """They only change exponents, so that an update is the same to the last bit."""
    found = []
    for scaler in (GradScaler(2.0**12), GradScaler(enabled=False)):
        w = parameter(0.3, -0.7, 1.1)
        optimizer = optim.Adam([w], lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            scaler.scale((w**2).sum()).backward()
            if unscaled:
                scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
        found.append(w.detach().numpy())
    assert np.array_equal(*found)


def test_a_scale_that_is_set_by_hand_does_not_hide_what_was_left_out():
    w = parameter()
    scaler, optimizer = GradScaler(4.0), optim.SGD([w], lr=0.1)
    for factor, left_out in ((np.inf, True), (1.0, False)):
        optimizer.zero_grad()
        scaler.scale((w * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update(8.0)
        assert scaler.skipped() == left_out and scaler.get_scale() == 8.0


def test_unscaled_gradients_are_those_of_the_loss():
    w = parameter()
    scaler, optimizer = GradScaler(2.0**10), optim.SGD([w], lr=0.1)
    scaler.scale((w * w).sum()).backward()
    assert np.array_equal(w.grad.numpy(), 2.0**11 * w.detach().numpy())
    scaler.unscale_(optimizer)
    assert np.array_equal(w.grad.numpy(), 2 * w.detach().numpy())


def test_several_losses_and_optimisers():
    w, v = parameter(), parameter(4)
    first, second = optim.SGD([w], lr=1.0), optim.SGD([v], lr=1.0)
    scaler = GradScaler(4.0)
    one, two = scaler.scale([w.sum(), (v * np.inf).sum()])
    assert isinstance(scaler.scale((w.sum(),)), tuple) and len([*scaler.scale(iter([w.sum()]))]) == 1
    one.backward()
    two.backward()
    scaler.step(first)
    scaler.step(second)
    scaler.update()
    assert np.array_equal(w.detach(), [0, 1, 2]) and v.item() == 4 and scaler.get_scale() == 2.0


def test_gradients_outside_of_the_norm_must_be_finite_too():
    w, v = parameter(), parameter(4)
    scaler, optimizer = GradScaler(4.0), optim.SGD([w, v], lr=1.0)
    scaler.scale(w.sum() + (v * np.inf).sum()).backward()
    scaler.clipped_step(optimizer, [w], 1.0)
    scaler.update()
    assert scaler.skipped() and np.array_equal(w.detach(), [1, 2, 3]) and v.item() == 4


def test_parameters_of_several_types_are_unscaled_each_in_its_own():
    w, v = parameter(), Tensor(np.array([1.5]), requires_grad=True)
    scaler, optimizer = GradScaler(4.0), optim.SGD([w, v], lr=1.0)
    scaler.scale(w.sum().double() + (v * v).sum()).backward()
    scaler.step(optimizer)
    assert np.array_equal(w.detach(), [0, 1, 2]) and v.item() == -1.5


# ---- out of turn -----------------------------------------------------------------------------------------------------


def test_calls_out_of_turn_are_refused():
    w = parameter()
    scaler, optimizer = GradScaler(4.0), optim.SGD([w], lr=0.1)
    with pytest.raises(StateError, match="no parameter of SGD has a gradient"):
        scaler.step(optimizer)
    with pytest.raises(StateError, match="no gradients were checked"):
        scaler.update()
    scaler.unscale_(optimizer)
    with pytest.raises(StateError, match="no parameter of SGD has a gradient"):
        scaler.step(optimizer)
    scaler.scale(w.sum()).backward()
    scaler.unscale_(optimizer)
    with pytest.raises(StateError, match="unscale_.. has been called already"):
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    with pytest.raises(StateError, match="called already since"):
        scaler.step(optimizer)
    with pytest.raises(StateError, match="step.. has been called"):
        scaler.unscale_(optimizer)
    scaler.update()
    with pytest.raises(KindError, match="optimizer is a list"):
        scaler.step([w])
    with pytest.raises(KindError, match="optimizer is a list"):
        scaler.unscale_([w])
    with pytest.raises(KindError, match="outputs is a int"):
        scaler.scale(3)


def test_backward_after_update_is_refused():
    """The loss was scaled by what is no longer the scale."""
    w = parameter()
    scaler, optimizer = GradScaler(4.0), optim.SGD([w], lr=0.1)
    late = scaler.scale(w.sum())
    stepped(scaler, optimizer, w)
    with pytest.raises(StateError, match="changed after it was used"):
        late.backward()


def test_gradients_in_float16_are_refused():
    w = Tensor(np.ones(3, np.float16), requires_grad=True)
    w.grad = Tensor(np.ones(3, np.float16))
    with pytest.raises(KindError, match="float16"):
        GradScaler().unscale_(optim.SGD([w], lr=0.1))


@pytest.mark.parametrize(
    "options",
    [
        {"init_scale": 0.0},
        {"init_scale": np.inf},
        {"init_scale": 1e39},
        {"growth_factor": 1.0},
        {"backoff_factor": 1.0},
        {"backoff_factor": 0.0},
        {"growth_interval": 0},
    ],
    ids=str,
)
def test_options_out_of_range_are_refused(options):
    with pytest.raises(ShapeError, match=next(iter(options))):
        GradScaler(**options)


@pytest.mark.parametrize("options", [{"init_scale": "8"}, {"growth_interval": 2.5}, {"enabled": "no"}], ids=str)
def test_options_of_another_kind_are_refused(options):
    with pytest.raises(KindError, match=next(iter(options))):
        GradScaler(**options)


# ---- state -----------------------------------------------------------------------------------------------------------


def test_the_state_goes_on_in_the_middle_of_growing():
    def run(scaler, w, factors):
        optimizer = optim.SGD([w], lr=0.1)
        for factor in factors:
            stepped(scaler, optimizer, w, factor)
        return scaler.state_dict()

    factors, w = [1, 1, np.inf, 1, 1, 1, 1, 1], parameter()
    whole = run(GradScaler(8.0, 3.0, 0.25, 4), w, factors)
    first, second = GradScaler(8.0, 3.0, 0.25, 4), GradScaler()
    part = parameter()
    state = run(first, part, factors[:5])
    assert state["_growth_tracker"] == 2
    second.load_state_dict(state)
    assert run(second, part, factors[5:]) == whole and np.array_equal(part.detach(), w.detach())


GOOD = GradScaler().state_dict()


@pytest.mark.parametrize(
    "state, error",
    [
        ({}, StateError),
        (None, StateError),
        ({**GOOD, "more": 1}, ShapeError),
        ({**GOOD, "scale": -1.0}, ShapeError),
        ({**GOOD, "growth_interval": "3"}, KindError),
        ({**GOOD, "_growth_tracker": -1}, ShapeError),
    ],
    ids=["empty", "none", "more", "negative", "text", "count"],
)
def test_a_malformed_state_is_refused_and_nothing_is_changed(state, error):
    scaler = GradScaler(8.0)
    before = scaler.state_dict()
    with pytest.raises(error):
        scaler.load_state_dict(state)
    assert scaler.state_dict() == before


def test_one_that_is_not_enabled_does_nothing():
    w = parameter()
    scaler, optimizer = GradScaler(enabled=False), optim.SGD([w], lr=1.0)
    loss = w.sum()
    assert scaler.scale(loss) is loss and scaler.get_scale() == 1.0 and scaler.state_dict() == {}
    scaler.load_state_dict({})
    loss.backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    assert np.array_equal(w.detach(), [0, 1, 2]) and not scaler.skipped() and not scaler.is_enabled()


def test_options_can_be_changed():
    scaler = GradScaler(8.0)
    scaler.set_growth_factor(3)
    scaler.set_backoff_factor(0.25)
    scaler.set_growth_interval(7)
    assert (scaler.get_growth_factor(), scaler.get_backoff_factor(), scaler.get_growth_interval()) == (3, 0.25, 7)
    with pytest.raises(ShapeError, match="new_factor"):
        scaler.set_growth_factor(0.5)
    scaler.update(32)
    assert scaler.get_scale() == 32 and scaler.state_dict()["growth_factor"] == 3
    scaler.update(Tensor(np.array(16, np.float32)))
    assert scaler.get_scale() == 16
