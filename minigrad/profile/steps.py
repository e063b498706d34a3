"""The profile of one training step, which leaves no trace in what it trains."""

import numpy as np

from minigrad_kernels.errors import KindError

from .. import device
from ..core.modes import enable_grad
from ..core.tape import write
from ..nn import Module
from .profiler import Profile, record_function

__all__ = ["measure_step"]


def measure_step(model, loss, batch, optimizer):
    """The Profile of one training step, after one that is not recorded: compiling and first allocations are in that.

    model       a Module; it acts as in training
    loss        called as loss(model(images), labels) for a scalar Tensor
    batch       (images, labels), on the device of the model
    optimizer   of its parameters
    Returns a Profile with memory. Weights, buffers, the optimiser's state, training flags and the generator of random
    numbers are as before afterwards; gradients are forgotten.
    Errors  TypeError for what is no Module, or no pair
    """
    if not isinstance(model, Module):
        raise KindError(f"measure_step: model is {model!r}, want an instance of Module")
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        raise KindError(f"measure_step: batch is a {type(batch).__name__}, want a pair (images, labels)")
    images, labels = batch
    state, random = optimizer.state_dict(), device.generator().get_state()
    # In memory that is not the pool's, which is being looked at.
    weights = [(one, np.array(device.host(one.array))) for one in (*model.parameters(), *model.buffers())]
    flags = [(module, module.training) for module in model.modules()]

    def step():
        optimizer.zero_grad()
        with record_function("forward"):
            value = loss(model(images), labels)
        with record_function("backward"):
            value.backward()
        with record_function("update"):
            optimizer.step()

    try:
        with enable_grad():
            model.train()
            step()
            with Profile(model, optimizer=optimizer) as profile:
                step()
    finally:
        optimizer.zero_grad()
        for tensor, array in weights:
            device.assign(write(tensor), array)
        optimizer.load_state_dict(state)
        device.generator().set_state(random)
        for module, training in flags:
            module.training = training
    return profile
