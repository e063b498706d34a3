"""What the tests of checkpoints save: a small network with all that trains it; and the files that come of it."""

import json

import numpy as np
from safetensors.numpy import load, save

import minigrad
from minigrad import checkpoint, data, nn, ops, optim
from minigrad.amp import GradScaler
from minigrad.train import History


def everything(seed=0, steps=3):
    """{name: part} of what save takes, after some steps."""
    minigrad.manual_seed(seed)
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(3 * 2 * 2, 4))
    optimizer = optim.Adam(model.parameters(), lr=1e-2)
    parts = {"model": model, "optimizer": optimizer}
    parts["schedule"] = optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    images = data.Dataset(np.zeros((7, 1, 4, 4), np.uint8), np.arange(7) % 2, ("a", "b"))
    history = History([{"epoch": 1, "step": 2, "loss": 0.5 + seed}])
    for _ in range(steps):
        step(parts)
        history.steps += 1
    others = {"scaler": GradScaler(2.0 ** (10 + seed)), "loader": data.Loader(images, 4, seed=seed), "history": history}
    return parts | others


def step(parts):
    parts["optimizer"].zero_grad()
    ops.cross_entropy(parts["model"](minigrad.randn(5, 2, 4, 4)), minigrad.tensor([0, 1, 2, 3, 0])).backward()
    parts["optimizer"].step()
    parts["schedule"].step()


def told(value):
    """The states of parts, of a generator or of a module, as comparable values."""
    if isinstance(value, dict):
        return {name: told(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [told(entry) for entry in value]
    if hasattr(value, "get_state") or hasattr(value, "state_dict"):
        return told(value.get_state() if hasattr(value, "get_state") else value.state_dict())
    return np.asarray(value).tobytes() if hasattr(value, "dtype") else value


# ---- files -----------------------------------------------------------------------------------------------------------


def file_of(folder):
    """The newest checkpoint in a folder."""
    return checkpoint.path_of(folder, checkpoint.numbers(folder)[-1])


def metadata_of(content):
    return json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]


def state_of(folder):
    """What the newest checkpoint holds besides tensors."""
    return json.loads(metadata_of(file_of(folder).read_bytes())["state"])


def tensors_of(folder):
    """{name: array} of the newest checkpoint."""
    return load(file_of(folder).read_bytes())


def sealed(tensors, metadata):
    """The bytes of a checkpoint with the SHA-256 that belongs to them: damage that no hash can see."""
    sha256 = checkpoint._hash(dict(sorted(tensors.items())), metadata["state"])
    return save(tensors, metadata | {"sha256": sha256})


def edit(folder, change):
    """Change the newest checkpoint by change(state, tensors, metadata), and seal it anew."""
    state, tensors, metadata = state_of(folder), tensors_of(folder), metadata_of(file_of(folder).read_bytes())
    change(state, tensors, metadata)
    file_of(folder).write_bytes(sealed(tensors, metadata | {"state": json.dumps(state)}))
