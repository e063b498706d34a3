"""Mixed precision: autocast, and a scale that keeps gradients of 16 bits away from 0.

autocast            in which type each op computes (ops/autocast.py has the table)
GradScaler          dynamic loss scaling, which float16 wants and bfloat16 does not

A gradient below 6e-8 is 0 in float16. The loss is therefore multiplied by a scale s before backward, so that all
gradients are s times as large, and they are divided by s, in float32, before the update. If s is so large that one of
them overflows, the update is left out and s is lowered; after many updates without that it is raised:

    s = backoff s           after an update that was left out
    s = growth s            after `interval` updates that were not, one after the other

Source  Micikevicius and others 2018, "Mixed precision training", section 3.2; torch.amp.GradScaler
"""

import math
from typing import NamedTuple

import numpy as np

from minigrad_kernels import optimizer as kernels
from minigrad_kernels.errors import KindError, ShapeError, StateError

from . import device, ops
from .core.check import flag_of, float_of, integer_of
from .core.modes import no_grad
from .core.tape import write
from .core.tensor import Tensor
from .ops.autocast import autocast, autocast_dtype
from .optim import Optimizer
from .optim.clip import batches_of, clip_scale

__all__ = ["GradScaler", "autocast", "autocast_dtype"]

LARGEST = float(np.finfo(np.float32).max)
STATE = ("scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker")


class _Checked(NamedTuple):
    """What is known of an optimiser since the last update."""

    optimizer: Optimizer
    parameters: list
    scale: object  # to multiply gradients by, an array; None if they have been
    found: object  # 1 if a gradient was not finite, else 0, an array of shape (1,)
    stepped: bool


class GradScaler:
    """Dynamic loss scaling: scale, unscale_, step and update, with the semantics of torch.amp.GradScaler.

        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)          # only where gradients are looked at, to clip them say
        scaler.step(optimizer)              # left out if a gradient is infinite or NaN
        scaler.update()

    device              PyTorch's, without effect
    init_scale          the scale s at first, a number of float32
    growth_factor       above 1, and backoff_factor, above 0 and below 1: see the head of this file
    growth_interval     updates that must go well before s is raised
    enabled             False: scale and step do nothing but what backward and the optimiser do

    The scale, the number of updates that went well and the flag of what was found lie where the first loss did, at
    addresses that never change. An optimiser whose step was left out is as before it, its count of steps too. All
    ranks of a DataParallel model leave out the same updates.
    Errors  ValueError or TypeError for an option out of range, RuntimeError for calls out of turn
    """

    def __init__(
        self,
        device="cuda",
        init_scale=2.0**16,
        growth_factor=2.0,
        backoff_factor=0.5,
        growth_interval=2000,
        enabled=True,
    ):
        if not isinstance(device, str):
            raise KindError(f"GradScaler: device is {device!r}, wanted its name; a scale goes by name: init_scale=...")
        self._enabled = flag_of("GradScaler", "enabled", enabled)
        names = {"init_scale": init_scale, "growth_factor": growth_factor, "backoff_factor": backoff_factor}
        scale, growth, backoff = found = [float_of("GradScaler", name, value) for name, value in names.items()]
        if not (0 < scale < LARGEST and 1 < growth < math.inf and 0 < backoff < 1):
            wanted = "wanted above 0, above 1, and between 0 and 1"
            raise ShapeError(f"GradScaler: {', '.join(names)} are {found}, {wanted}")
        self._options = growth, backoff, integer_of("GradScaler", "growth_interval", growth_interval, 1)
        self._scale, self._tracker = Tensor(np.array(scale, np.float32)), Tensor(np.array(0, np.int32))
        self._placed, self._found = False, None
        self._checked: dict[int, _Checked] = {}  # by the identity of the optimiser

    def is_enabled(self):
        """Whether it scales at all."""
        return self._enabled

    # ---- in a step ---------------------------------------------------------------------------------------------

    def scale(self, outputs):
        """outputs * s, for a Tensor, or a list or tuple of them, which gives its like."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, list | tuple):
            return type(outputs)(map(self.scale, outputs))
        if not isinstance(outputs, Tensor):
            raise KindError(f"scale: outputs is a {type(outputs).__name__}, wanted a Tensor or several")
        name = outputs.device
        if not self._placed:
            self._scale, self._tracker, self._placed = self._scale.to(name), self._tracker.to(name), True
        return outputs * self._scale.to(name)

    @no_grad()
    def unscale_(self, optimizer):
        """Divide the gradients of an optimiser by s, and note whether any is infinite or NaN.

        It is for gradients that are complete, so once in an update, and for those who look at them; step does it as it
        reads them, and leaves them as they are.
        Errors  RuntimeError if it was done already, TypeError for gradients in float16: parameters should be float32
        """
        if not self._enabled:
            return
        checked = self._check(optimizer, None, math.inf)
        for place, batch in batches_of(checked.parameters):
            with place.active():
                arrays = [write(parameter.grad) for parameter in batch]
                kernels.scale(arrays, device.move(self._inverse(), place.name))
        if id(optimizer) in self._checked:
            self._checked[id(optimizer)] = checked._replace(scale=None)

    def _inverse(self):
        """1 / s, rounded to float32, as a float64 array (1,)."""
        return (1 / self._scale.double()).float().double().reshape(1).array

    def _check(self, optimizer, parameters, max_norm):
        """Look at the gradients of an optimiser, and at those of these parameters; note what is known of them."""
        if (checked := self._checked.get(id(optimizer))) is not None:
            done = "step() has been called" if checked.stepped else "unscale_() has been called already"
            raise StateError(f"GradScaler: {done} since the last update()")
        own = [p for group in optimizer.param_groups for p in group["params"]]
        updated = [p for p in own if p.grad is not None]
        if any(parameter.grad.dtype == "float16" for parameter in updated):
            raise KindError("GradScaler: a gradient has elements float16; keep parameters in float32, and use autocast")
        looked = [p for p in dict.fromkeys([*(parameters or ()), *own]) if p.grad is not None]
        places = {p.device for p in looked} or {own[0].device}
        place = device.place(places.pop() if len(places) == 1 else "cpu")
        with place.active():
            found = device.zeros((1,), "float64", like=place)
            scale = clip_scale(looked, max_norm, self._inverse(), found)[1]
        checked = _Checked(optimizer, updated, scale, found, False)
        if updated:
            self._checked[id(optimizer)] = checked
        return checked

    def step(self, optimizer):
        """optimizer.step() with gradients divided by s, unless one of them is infinite or NaN.

        Errors  RuntimeError for a second step before update(), and if there is no gradient
        """
        if self._enabled:
            self.clipped_step(optimizer)
        else:
            optimizer.step()

    @no_grad()
    def clipped_step(self, optimizer, parameters=None, max_norm=None, lost=None):
        """unscale_, clip_grad_norm_(parameters, max_norm) and step in one, which reads gradients twice, writes none.

        parameters  more whose gradients make up the norm, beside those of the optimiser. Without max_norm nothing is
                    clipped
        lost        a flag, a Tensor (1,): where it is not 0, the step is left out as well, which lowers no scale
        """
        checked = self._checked.get(id(optimizer))
        if checked is None or max_norm is not None:
            checked = self._check(optimizer, parameters, math.inf if max_norm is None else max_norm)
        elif checked.stepped:
            raise StateError("step: it has been called already since the last update()")
        if id(optimizer) not in self._checked:
            raise StateError(f"step: no parameter of {optimizer.name} has a gradient; call scale(loss).backward()")
        found = checked.found if lost is None else ops.maximum(Tensor.made(checked.found), lost)
        optimizer.step(scale=checked.scale, found_inf=found)
        self._checked[id(optimizer)] = checked._replace(stepped=True)

    @no_grad()
    def update(self):
        """Lower s if an update was left out, raise it after enough that were not.

        Errors  RuntimeError if no gradients were checked since the last time
        """
        if not self._enabled:
            return
        if not self._checked:
            raise StateError("update: no gradients were checked since the last update(); call step(optimizer) before")
        flags = [Tensor.made(checked.found).to(self._scale.device) for checked in self._checked.values()]
        self._found = ops.cat(flags).amax()
        growth, backoff, interval = self._options
        wrong, exact, count = self._found > 0, self._scale.double(), self._tracker + 1
        raised, lowered = (exact * growth).float(), (exact * backoff).float()
        full = count == interval
        well = ops.where(ops.logical_and(full, ops.isfinite(raised)), raised, self._scale)
        device.assign(write(self._scale), ops.where(wrong, lowered, well).array)
        device.assign(write(self._tracker), ops.where(ops.logical_or(wrong, full), 0, count).array)
        self._checked.clear()

    def found(self):
        """A Tensor without dimensions: 1 if the update before the last call of update() was left out."""
        return self._found

    def skipped(self):
        """Whether the update before the last call of update() was left out. Waits for the device."""
        return self._found is not None and bool(self._found.item())

    # ---- options and state -------------------------------------------------------------------------------------

    def get_scale(self):
        """s, a number; 1.0 where it is not enabled. Waits for the device."""
        return self._scale.item() if self._enabled else 1.0

    def state_dict(self):
        """All that a continued training needs, as JSON values; {} where it is not enabled."""
        if not self._enabled:
            return {}
        return dict(zip(STATE, (self.get_scale(), *self._options, self._tracker.item()), strict=True))

    def load_state_dict(self, state_dict):
        """Take over what state_dict gave; nothing where it is not enabled.

        Errors  ValueError for another state, such as the empty one of a GradScaler that was not enabled; nothing is
                changed then
        """
        if not self._enabled:
            return
        if state_dict.keys() != {*STATE}:
            raise ShapeError(f"GradScaler.load_state_dict: got {sorted(state_dict, key=str)}, wanted {sorted(STATE)}")
        *options, tracker = map(state_dict.get, STATE)
        tracker, checked = integer_of("GradScaler", "_growth_tracker", tracker, 0), GradScaler("cpu", *options)
        self._options = checked._options
        device.fill(write(self._scale), checked.get_scale())
        device.fill(write(self._tracker), tracker)
