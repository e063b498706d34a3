"""What the tests of checkpoints save: a small network with what trains it."""

import json

import numpy as np

import minigrad
from minigrad import checkpoint, data, nn, ops, optim
from minigrad.amp import GradScaler
from minigrad.checkpoint.files import index_path, sealed, tensors_path
from minigrad.train import History


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


# ---- all that a checkpoint can hold ---------------------------------------------------------------------------------


def everything(seed=0, steps=3):
    """{name: part} of what load takes; save takes all but the generator, which it finds."""
    parts = dict(zip(("model", "optimizer", "schedule"), trained(seed, steps), strict=True))
    images = data.Dataset(np.zeros((7, 1, 4, 4), np.uint8), np.arange(7) % 2, ("a", "b"))
    history = History([{"epoch": 1, "step": 2, "loss": 0.5 + seed}])
    history.steps = steps
    parts |= {"scaler": GradScaler(2.0 ** (10 + seed)), "loader": data.Loader(images, 4, seed=seed), "history": history}
    return parts | {"generator": minigrad.default_generator}


def save_everything(folder, parts, **options):
    checkpoint.save(folder, **{name: part for name, part in parts.items() if name != "generator"}, **options)


def all_bits(parts):
    """Everything that a checkpoint keeps of these parts, as comparable values."""
    rest = [parts[name].state_dict() for name in ("scaler", "loader", "history")]
    return bits(parts["model"], parts["optimizer"], parts["schedule"]), rest, parts["generator"].get_state()


# ---- files -------------------------------------------------------------------------------------------------------


def index_file(folder):
    """The newest index in a folder."""
    return index_path(folder, checkpoint.numbers(folder)[-1])


def index_of(folder):
    return json.loads(index_file(folder).read_text())


def tensors_file(folder, kind="weights"):
    """The newest file of tensors of a kind, weights or training."""
    return tensors_path(folder, checkpoint.numbers(folder)[-1], kind)


def edit(folder, change):
    """Change the newest index by change(index) and seal it anew: damage that no hash can see."""
    index = index_of(folder)
    del index["sha256"]
    change(index)
    index_file(folder).write_bytes(sealed(index))
