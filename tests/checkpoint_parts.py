"""What the tests of checkpoints save: a small network with what trains it."""

import numpy as np

import minigrad
from minigrad import nn, ops, optim


def trained(seed=0, steps=3, kind=optim.Adam):
    """A small network with an optimiser and a schedule that have a state."""
    minigrad.manual_seed(seed)
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(3 * 2 * 2, 4))
    optimizer = kind(model.parameters(), lr=1e-2)
    schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    for _ in range(steps):
        step(model, optimizer, schedule)
    return model, optimizer, schedule


def step(model, optimizer, schedule):
    optimizer.zero_grad()
    ops.cross_entropy(model(minigrad.randn(5, 2, 4, 4)), minigrad.tensor([0, 1, 2, 3, 0])).backward()
    optimizer.step()
    schedule.step()


def bits(model, optimizer, schedule):
    """Everything that a checkpoint keeps, as comparable values."""
    saved = optimizer.state_dict()
    arrays = {name: np.asarray(value).tobytes() for name, value in model.state_dict().items()}
    state = {
        (index, name): np.asarray(value).tobytes()
        for index, entries in saved["state"].items()
        for name, value in entries.items()
    }
    return arrays, state, saved["param_groups"], schedule.state_dict()
