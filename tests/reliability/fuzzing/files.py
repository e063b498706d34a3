"""Readers of data sets and of weights."""

import contextlib
import gzip
import io
import json
import struct
import tarfile

import numpy as np

from minigrad import checkpoint, nn, optim
from minigrad.checkpoint import WeightsError, load_weights
from minigrad.data.formats import CIFAR10_RECORD, CIFAR10_TEST, CIFAR10_TRAIN, DataError, read_cifar10, read_idx
from tests.train.checkpoint_parts import header_of, sealed, state_of

from . import mutations
from .target import Target

__all__ = ["FILES", "seal", "stated", "trained"]


def _reading(folder, name, reader):
    """Put bytes into a file and read that."""

    def read(data):
        path = folder / name
        path.write_bytes(data)
        return reader(path)

    return read


# ---- data sets -------------------------------------------------------------------------------------------------------


def _idx(folder):
    shapes = (2, 3), (4,), (1, 2, 1), (1,) * 8
    seeds = [struct.pack(f">I{len(s)}I", 0x800 + len(s), *s) + bytes(range(np.prod(s))) for s in shapes]
    return [*seeds, gzip.compress(seeds[0]), gzip.compress(seeds[2])], _reading(folder, "file", read_idx)


def _archive(names, records=1, form=tarfile.USTAR_FORMAT):
    """A tar of such members."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=form) as file:
        for name in names:
            member = tarfile.TarInfo(name)
            content = (b"\x05" + bytes(CIFAR10_RECORD - 1)) * records
            member.size = len(content)
            file.addfile(member, io.BytesIO(content))
    return made.getvalue()


def _cifar10(folder):
    both = CIFAR10_TRAIN[0], CIFAR10_TEST
    long = "cifar-10-batches-bin/" + "x" * 200
    plain = [
        _archive(both),
        _archive((*both, "cifar-10-batches-bin/readme.html")),
        _archive((long, *both), 1, tarfile.PAX_FORMAT),
    ]
    return [*plain, gzip.compress(plain[0])], _reading(folder, "file", read_cifar10)


# ---- weights ---------------------------------------------------------------------------------------------------------

ARRAYS = {
    "weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "bias": np.zeros(2, np.float64),
    "count": np.array(3, np.int64),
    "mask": np.array([True, False]),
}


def _npz(folder):
    seeds = []
    for write in (np.savez, np.savez_compressed):
        made = io.BytesIO()
        write(made, **ARRAYS)
        seeds.append(made.getvalue())
    return seeds, _reading(folder, "weights.npz", load_weights)


def _safetensors(folder):
    from safetensors.numpy import save

    return [save(ARRAYS), save({"module.w": ARRAYS["weight"]})], _reading(folder, "weights.safetensors", load_weights)


# ---- checkpoints -----------------------------------------------------------------------------------------------------


def trained():
    """A network, its optimiser and its schedule, none of which a test changes."""
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    optimizer = optim.Adam(model.parameters(), lr=1e-2)
    return model, optimizer, optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)


def _stepped():
    parts = trained()
    for parameter in parts[0].parameters():
        parameter.grad = parameter.detach() * 0 + 1
    parts[1].step()
    parts[2].step()
    return parts


def _loading(folder):
    """load() into parts that must be as before where it refuses."""

    def load():
        parts = trained()
        before = checkpoint.weights_hash(parts[0]), repr(parts[1].state_dict()), repr(parts[2].state_dict())
        try:
            return checkpoint.load(folder, *parts)
        except checkpoint.CheckpointError:
            after = checkpoint.weights_hash(parts[0]), repr(parts[1].state_dict()), repr(parts[2].state_dict())
            assert after == before, "a checkpoint that was refused changed something"
            raise

    return load


def stated(path):
    """The state in a checkpoint, as what is mutated."""
    return json.dumps(state_of(path.parent)).encode()


def seal(path, data):
    """Write bytes as the state of a checkpoint that vouches for itself, so that damage is met behind the SHA-256."""
    content = path.read_bytes()
    header, end = header_of(content)
    header["__metadata__"]["state"] = data.decode("utf-8", "replace")
    text = json.dumps(header, separators=(",", ":")).encode()
    path.write_bytes(sealed(len(text).to_bytes(8, "little") + text + content[end:]))


def _state(folder):
    checkpoint.save(folder, *_stepped(), extra={"note": [1, 2.5, None]})
    load, path = _loading(folder), checkpoint.path_of(folder, 1)

    def read(data):
        seal(path, data)
        return load()

    return [stated(path)], read


def _tensors(folder):
    checkpoint.save(folder, *_stepped())
    load, path = _loading(folder), checkpoint.path_of(folder, 1)

    def read(data):
        with contextlib.suppress(ValueError, KeyError, RecursionError):  # a header that is none cannot be sealed
            data = sealed(data)
        path.write_bytes(data)
        return load()

    return [path.read_bytes()], read


FILES = [
    Target("idx", _idx, mutations.by_bytes, (DataError,)),
    Target("cifar10", _cifar10, mutations.by_tar, (DataError,)),
    Target("npz", _npz, mutations.by_zip, (WeightsError,)),
    Target("safetensors", _safetensors, mutations.by_safetensors, (WeightsError,)),
    Target("checkpoint-state", _state, mutations.by_json, (checkpoint.CheckpointError,)),
    Target("checkpoint-tensors", _tensors, mutations.by_safetensors, (checkpoint.CheckpointError,)),
]
