"""Every schedule beside PyTorch's: alone, several at once, one after the other, cut by a metric."""

import inspect
import math
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from minigrad import optim
from tests.optim.optim_parts import SCHEDULES, parameters

torch = pytest.importorskip("torch")

THEIRS = SimpleNamespace(**vars(torch.optim.lr_scheduler))
THEIRS.OneCycleLR = partial(THEIRS.OneCycleLR, cycle_momentum=False)
AT_ONCE = {
    "three at once": lambda s, o: [s.ConstantLR(o, 0.2, 7), s.ExponentialLR(o, 0.95), s.MultiStepLR(o, [7, 9], 0.5)]
}
TABLE = {name: make for name, make in SCHEDULES.items() if name != "nested"} | AT_ONCE  # which PyTorch has not


def two_optimizers():
    ours, theirs = parameters(), [torch.zeros(2, requires_grad=True) for _ in range(4)]
    return [
        library.SGD([{"params": given[:2], "lr": 0.2}, {"params": given[2:]}], lr=0.05)
        for library, given in ((optim, ours), (torch.optim, theirs))
    ]


def rates(optimizer):
    return [group["lr"] for group in optimizer.param_groups]


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step:UserWarning")  # no updates are needed here
@pytest.mark.parametrize("make", TABLE.values(), ids=TABLE)
def test_schedule(make):
    first, second = two_optimizers()
    ours, theirs = make(optim.lr_scheduler, first), make(THEIRS, second)
    ours, theirs = (made if isinstance(made, list) else [made] for made in (ours, theirs))
    for _ in range(50):
        assert rates(first) == pytest.approx(rates(second), rel=1e-13, abs=1e-18)
        assert ours[-1].get_last_lr() == rates(first)
        for schedule in (*ours, *theirs):
            schedule.step()


NAMES = "StepLR MultiStepLR ExponentialLR ConstantLR LinearLR PolynomialLR CosineAnnealingLR LambdaLR SequentialLR"
NAMES += " CosineAnnealingWarmRestarts ReduceLROnPlateau"


@pytest.mark.parametrize("name", NAMES.split())
def test_arguments(name):
    mine, theirs = (inspect.signature(getattr(s, name)).parameters.values() for s in (optim.lr_scheduler, THEIRS))
    wanted = [(p.name, p.default, p.kind) for p in theirs if p.name != "last_epoch"]
    assert [(p.name, p.default, p.kind) for p in mine] == wanted


@pytest.mark.parametrize("mode, threshold_mode, cooldown", [("min", "rel", 0), ("max", "abs", 3), ("max", "rel", 0)])
def test_reduce_on_plateau(mode, threshold_mode, cooldown):
    first, second = two_optimizers()
    options = {"mode": mode, "threshold_mode": threshold_mode, "cooldown": cooldown}
    options |= {"factor": 0.5, "patience": 2, "threshold": 0.01, "min_lr": [0.01, 1e-4]}
    ours, theirs = (
        library.lr_scheduler.ReduceLROnPlateau(optimizer, **options)
        for library, optimizer in ((optim, first), (torch.optim, second))
    )
    rng = np.random.default_rng(0)
    seen = set()
    for epoch in range(50):
        metric = math.nan if epoch == 20 else float(rng.uniform(0.5, 1.5) / (1 + epoch // 10))
        ours.step(metric), theirs.step(metric)
        assert rates(first) == rates(second)
        seen.add(tuple(rates(first)))
    assert len(seen) > 3
