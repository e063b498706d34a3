"""Schedules that watch a metric, once an epoch: ReduceLROnPlateau and RestoreBest.

Errors  TypeError for a metric that is no number; ValueError and TypeError for options out of range
"""

import copy
import math

from minigrad_kernels.errors import KindError, ShapeError

from ... import device
from ...core.tape import write
from ..values import array_of, plain, saved
from .base import LRScheduler, check_count, check_numbers, check_optimizer, per_group

__all__ = ["MetricLR", "ReduceLROnPlateau", "RestoreBest"]


class MetricLR(LRScheduler):
    """Base of the schedules whose step takes the metric of one more epoch: a subclass defines step(metrics).

    factor      what a cut multiplies the rates by, at least 0 and below 1
    patience    how many epochs are let pass before
    threshold   how much better than the best counts
    min_lr      the least rate, or a list with one for each group
    best        the best metric so far
    """

    def __init__(self, optimizer, factor, patience, threshold, min_lr):
        name = type(self).__name__
        self.optimizer = check_optimizer(name, optimizer)
        check_numbers(name, factor=factor, threshold=threshold)
        if not 0 <= factor < 1:
            raise ShapeError(f"{name}: factor is {factor}, wanted at least 0 and below 1")
        self.patience = check_count(name, "patience", patience, 0)
        for least in per_group(name, "min_lr", min_lr, optimizer):
            check_numbers(name, min_lr=least)
        self.factor, self.threshold, self.min_lr = factor, threshold, min_lr
        self.last_epoch = self.num_bad_epochs = 0

    def read(self, metrics):
        """The metric as a Python float. Errors: TypeError for what is no number, ValueError for one out of range."""
        number = plain(metrics)
        check_numbers(type(self).__name__, finite=False, metrics=number)
        try:
            return float(number)
        except OverflowError as error:
            raise ShapeError(f"{type(self).__name__}: metrics is an integer that no float can hold") from error

    def cut(self, eps=0):
        """Multiply the rates by factor, but not below min_lr; a change of at most eps is not made.

        Errors  ValueError if min_lr is a list and groups were added since
        """
        least = per_group(type(self).__name__, "min_lr", self.min_lr, self.optimizer)
        for group, bound in zip(self.optimizer.param_groups, least, strict=True):
            rate = max(group["lr"] * self.factor, bound)
            if group["lr"] - rate > eps:
                group["lr"] = rate


class ReduceLROnPlateau(MetricLR):
    """The rate times factor when a metric has not improved for more than patience epochs.

    mode            'min' or 'max': what an improvement is
    threshold       how much better counts: by this share ('rel') or by this much ('abs'), see threshold_mode
    cooldown        epochs after a reduction that do not count as bad
    min_lr          the least rate, or a list with one for each group
    eps             a smaller change of the rate is not made
    Errors  TypeError for a metric that is no number; ValueError and TypeError for options out of range
    """

    def __init__(
        self,
        optimizer,
        mode="min",
        factor=0.1,
        patience=10,
        threshold=1e-4,
        threshold_mode="rel",
        cooldown=0,
        min_lr=0,
        eps=1e-8,
    ):
        name = "ReduceLROnPlateau"
        super().__init__(optimizer, factor, patience, threshold, min_lr)
        for argument, value, choices in (
            ("mode", mode, ("min", "max")),
            ("threshold_mode", threshold_mode, ("rel", "abs")),
        ):
            if value not in choices:
                raise ShapeError(f"{name}: {argument} is {value!r}, wanted {' or '.join(map(repr, choices))}")
        check_numbers(name, eps=eps)
        self.mode, self.threshold_mode, self.eps = mode, threshold_mode, eps
        self.cooldown = check_count(name, "cooldown", cooldown, 0)
        self.best = math.inf if mode == "min" else -math.inf
        self.cooldown_counter = 0

    def step(self, metrics):
        """Take note of the metric of one more epoch, a number or a Tensor with one element."""
        value = self.read(metrics)
        self.last_epoch += 1
        if self._is_better(value):
            self.best, self.num_bad_epochs = value, 0
        else:
            self.num_bad_epochs += 1
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self.cut(self.eps)
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0

    def _is_better(self, value):
        sign = -1 if self.mode == "min" else 1
        if self.threshold_mode == "abs":
            return sign * value > sign * self.best + self.threshold
        return sign * value > sign * self.best * (1 + sign * self.threshold)


class RestoreBest(MetricLR):
    """The best parameters come back, and the rates are cut, when a metric rises.

    A step too long leads out of the valley that gradient descent had found, and what follows starts from a worse
    place. Here it is taken back and tried again with shorter steps: the half of the "bold driver" that brakes. The
    half that accelerates, a rate that grows by a few percent while the metric falls, is left to another schedule.

    Math    m < best - threshold: best = m, and a copy of parameters and state of the optimiser is kept
            m > best, or m infinite or NaN, for more than patience epochs in a row: they are put back as they were
            kept, and lr = max(factor lr, min_lr), from the present rate and not from that of the copy
    threshold   how much better than the best a metric must be to be kept, at least 0
    min_lr      the least rate, or a list with one for each group; at that rate, too, a rise puts the best back
    model       a Module whose buffers, such as running statistics of batch norm, and whose other parameters are kept
                and put back along

    What is kept first are the parameters as they are when the schedule is made. A parameter that was added to the
    optimiser after the copy stays as it is. Gradients stay as well; so do the options of the groups, but the rate.
    The state holds the copy, as NumPy arrays; all else in it are JSON values.
    Errors  TypeError for a metric that is no number; ValueError and TypeError for options out of range
    Source  Vogl and others 1988, "Accelerating the convergence of the back-propagation method"; Battiti 1989,
            "Accelerated backpropagation learning: two optimization methods", which names the bold driver
    """

    volatile = ("optimizer", "model")

    def __init__(self, optimizer, factor=0.5, patience=0, threshold=0.0, min_lr=0, model=None):
        super().__init__(optimizer, factor, patience, threshold, min_lr)
        if not 0 <= threshold < math.inf:
            raise ShapeError(f"RestoreBest: threshold is {threshold}, wanted a finite number, at least 0")
        if model is not None and not (hasattr(model, "state_dict") and hasattr(model, "parameters")):
            raise KindError(f"RestoreBest: model is a {type(model).__name__}, wanted a Module or None")
        self.model, self.best = model, math.inf
        self.kept = self._copy()

    def step(self, metrics):
        """Take note of the metric of one more epoch, a number or a Tensor with one element."""
        value = self.read(metrics)
        self.last_epoch += 1
        if math.isfinite(value) and value <= self.best:
            if value < self.best - self.threshold:
                self.best, self.kept = value, self._copy()
            self.num_bad_epochs = 0
            return
        self.num_bad_epochs += 1
        if self.num_bad_epochs > self.patience:
            self.cut()
            self._restore()
            self.num_bad_epochs = 0

    # ---- what is kept: {"parameters": {index: array}, "state": {index: {name: array or number}}, "model": ...} -----

    def _parameters(self):
        """The Tensors of all groups by their indices, strings as in JSON."""
        parameters = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
        return {str(index): parameter for index, parameter in enumerate(parameters)}

    def _others(self):
        """What the model has beyond the parameters of the optimiser, by name."""
        arrays = {id(parameter.array) for parameter in self._parameters().values()}
        state = {} if self.model is None else self.model.state_dict()
        return {name: tensor for name, tensor in state.items() if id(tensor.array) not in arrays}

    def _copy(self):
        state = self.optimizer.state_dict()["state"]
        return {
            "parameters": {index: saved(parameter.array) for index, parameter in self._parameters().items()},
            "state": {str(index): values for index, values in state.items()},
            "model": {name: saved(tensor.array) for name, tensor in self._others().items()},
        }

    def _restore(self):
        parameters, others = self._parameters(), self._others()
        state = self.optimizer.state_dict()
        added = {i: values for i, values in state["state"].items() if str(i) not in self.kept["parameters"]}
        state["state"] = self.kept["state"] | added
        self.optimizer.load_state_dict(state)
        for kept, tensors in ((self.kept["parameters"], parameters), (self.kept["model"], others)):
            for name, array in kept.items():
                device.assign(write(tensors[name]), array)

    # ---- state -------------------------------------------------------------------------------------------------

    def state_dict(self):
        """The state; "kept" holds NumPy arrays, copies."""
        return copy.deepcopy(super().state_dict())

    def check_state(self, state_dict):
        super().check_state(state_dict)
        kept, own = state_dict["kept"], {"parameters": self._parameters(), "model": self._others()}
        if not isinstance(kept, dict) or not all(isinstance(kept.get(part), dict) for part in ("state", *own)):
            raise ShapeError("RestoreBest.load_state_dict: kept is malformed, wanted what state_dict gives")
        if kept["model"].keys() != own["model"].keys():
            names = f"{list(kept['model'])}, wanted {list(own['model'])}"
            raise ShapeError(f"RestoreBest.load_state_dict: kept holds of the model {names}")
        for part, tensors in own.items():
            for name, value in kept[part].items():
                array, wanted = array_of(value), tensors[name].shape if name in tensors else "no such array"
                if array.shape != wanted or not (array.dtype.kind == "b" or device.is_number(array.dtype)):
                    place = f"kept[{part!r}][{name!r}] has shape {array.shape} and elements {array.dtype}"
                    raise ShapeError(f"RestoreBest.load_state_dict: {place}, wanted {wanted}")
        self.optimizer.loaded(kept["state"], own["parameters"])

    def load_state_dict(self, state_dict):
        super().load_state_dict(copy.deepcopy(state_dict))
