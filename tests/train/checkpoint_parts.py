"""What the tests of checkpoints save: a small network with what trains it."""

import hashlib
import json
import re

import numpy as np

import minigrad
from minigrad import checkpoint, data, nn, ops, optim
from minigrad.amp import GradScaler
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
    parts |= {
        "scaler": GradScaler(init_scale=2.0 ** (10 + seed)),
        "loader": data.Loader(images, 4, seed=seed),
        "history": history,
    }
    return parts | {"generator": minigrad.default_generator}


def save_everything(folder, parts, **options):
    checkpoint.save(folder, **{name: part for name, part in parts.items() if name != "generator"}, **options)


def all_bits(parts):
    """Everything that a checkpoint keeps of these parts, as comparable values."""
    rest = [parts[name].state_dict() for name in ("scaler", "loader", "history")]
    return bits(parts["model"], parts["optimizer"], parts["schedule"]), rest, parts["generator"].get_state()


# ---- files -------------------------------------------------------------------------------------------------------


def file_of(folder):
    """The newest checkpoint in a folder."""
    return checkpoint.path_of(folder, checkpoint.numbers(folder)[-1])


def header_of(content):
    """(the header of a safetensors file, where its tensors begin)."""
    end = 8 + int.from_bytes(content[:8], "little")
    return json.loads(content[8:end]), end


def state_of(folder):
    """What the newest checkpoint holds besides tensors."""
    return json.loads(header_of(file_of(folder).read_bytes())[0]["__metadata__"]["state"])


def tensors_of(folder):
    """{name: array} of the newest checkpoint."""
    from safetensors.numpy import load_file

    return load_file(file_of(folder))


def sealed(content):
    """The bytes of a checkpoint with the SHA-256 that belongs to them: damage that no hash can see."""
    _, end = header_of(content)
    parts = re.split(rb'("sha256":")[0-9a-f]{64}', content[:end])
    blank, rest = b"".join(parts), content[end:]
    return blank.replace(b'"sha256":"', b'"sha256":"' + hashlib.sha256(blank + rest).hexdigest().encode()) + rest


def edit(folder, change, tensors=None):
    """Change the state of the newest checkpoint by change(state), and its tensors, and seal it anew."""
    from safetensors.numpy import save

    about = header_of(file_of(folder).read_bytes())[0]["__metadata__"]
    change(state := state_of(folder))
    content = save(tensors_of(folder) if tensors is None else tensors, about | {"state": json.dumps(state)})
    file_of(folder).write_bytes(sealed(content))
