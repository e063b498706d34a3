"""GradScaler: growth, back-off, updates that are left out, calls out of turn, its state."""

import numpy as np
import pytest

from minigrad import Tensor, optim
from minigrad.amp import GradScaler
from minigrad.core.errors import KindError, ShapeError, StateError


def parameter(*values):
    return Tensor(np.array(values or [1, 2, 3], np.float32), requires_grad=True)


def stepped(scaler, optimizer, w, factor=1.0):
    """One update whose gradient is `factor` everywhere."""
    optimizer.zero_grad()
    scaler.scale((w * Tensor(np.full(w.shape, factor, np.float32))).sum()).backward()
    assert scaler.step(optimizer) is None
    scaler.update()


FACTORS = [1, 1, 1, 1, np.inf, 1, 1, np.nan, np.nan, 1, 1, 1, 1]


def test_the_scale_grows_after_the_interval_and_falls_with_every_update_left_out():
    """Also where a state goes on in the middle; no further than float32 goes."""
    w, scaler, scales = parameter(), GradScaler("cpu", 8.0, 4.0, 0.5, 3), []
    optimizer = optim.SGD([w], lr=0.125)
    for count, factor in enumerate(FACTORS):
        if count == 5:
            state, scaler = scaler.state_dict(), GradScaler()
            scaler.load_state_dict(state)
        stepped(scaler, optimizer, w, factor)
        scales.append(scaler.get_scale())
        assert scaler.skipped() == (not np.isfinite(factor))
    assert scales == [8, 8, 32, 32, 16, 16, 16, 8, 4, 4, 4, 16, 16] and w.tolist() == [-0.25, 0.75, 1.75]
    largest = GradScaler(init_scale=2.0**127, growth_interval=1)
    stepped(largest, optimizer, w, 2.0**-127)
    assert largest.get_scale() == 2.0**127 and not largest.skipped()


@pytest.mark.parametrize("kind", ["SGD", "Adam"])
def test_an_update_that_is_left_out_changes_nothing(kind):
    """Nor does a scale that is a power of two: updates have the bits of those without a scaler."""
    w, v, alone = parameter(), parameter(4, 5), parameter()
    optimizer = getattr(optim, kind)([w, v], lr=0.1)
    scaler, off = GradScaler(init_scale=4.0), GradScaler(enabled=False)
    stepped(scaler, optimizer, w), stepped(off, getattr(optim, kind)([alone], lr=0.1), alone)
    assert w.tolist() == alone.tolist() and not off.skipped() and off.get_scale() == 1 and off.state_dict() == {}
    before = w.tolist(), v.tolist(), repr(optimizer.state_dict())
    v.grad = Tensor(np.ones(2, np.float32))
    stepped(scaler, optimizer, w, np.nan)
    assert scaler.skipped() and (w.tolist(), v.tolist(), repr(optimizer.state_dict())) == before


def test_several_losses_optimisers_and_types():
    """A gradient outside of a norm that clips must be finite too."""
    w, v = parameter(), Tensor(np.array([4.0]), requires_grad=True)
    first, second, both = (optim.SGD(of, lr=1.0) for of in ([w], [v], [w, v]))
    scaler = GradScaler(init_scale=4.0)
    for loss in scaler.scale([w.sum(), (v * np.inf).sum()]):
        loss.backward()
    scaler.step(first), scaler.step(second)
    scaler.update()
    assert w.tolist() == [0, 1, 2] and v.item() == 4 and scaler.get_scale() == 2.0
    scaler.clipped_step(both, [w], 1.0)
    scaler.update()
    assert scaler.skipped() and w.tolist() == [0, 1, 2] and v.item() == 4


def test_calls_out_of_turn_are_refused():
    w = parameter()
    scaler, optimizer = GradScaler(init_scale=4.0), optim.SGD([w], lr=0.1)
    with pytest.raises(StateError, match="no parameter of SGD has a gradient"):
        scaler.step(optimizer)
    scaler.scale(w.sum()).backward()
    scaler.unscale_(optimizer)
    assert w.grad.tolist() == [1, 1, 1]
    with pytest.raises(StateError, match="unscale_.. has been called already"):
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    with pytest.raises(StateError, match="called already since"):
        scaler.step(optimizer)
    late = scaler.scale(w.sum())
    scaler.update()
    with pytest.raises(StateError, match="changed after it was used"):  # was scaled by what is no longer the scale
        late.backward()
    w.data = Tensor(np.ones(3, np.float16))
    w.grad = Tensor(np.ones(3, np.float16))
    with pytest.raises(KindError, match="float16"):
        scaler.unscale_(optimizer)


def test_a_refused_state_changes_none():
    scaler = GradScaler("cpu", 8.0, 3, 0.25, 7)
    good = scaler.state_dict()
    assert good == dict(scale=8, growth_factor=3, backoff_factor=0.25, growth_interval=7, _growth_tracker=0)
    for name, value in (("scale", -1.0), ("growth_interval", "3"), ("_growth_tracker", -1), ("more", 1)):
        with pytest.raises((ShapeError, KindError)):
            scaler.load_state_dict({**good, name: value})
    assert scaler.state_dict() == good
