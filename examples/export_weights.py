"""Write the weights of a network as safetensors and as .npz, and read them with other libraries.

python examples/export_weights.py [RUN] [--out FOLDER]

RUN is the folder of a `minigrad train`; without one, a fresh LeNet is written. Names, shapes and meaning of the
arrays are PyTorch's, so a network built alike there takes them as they are:

    weights = safetensors.torch.load_file("weights.safetensors")
    torch_model.load_state_dict(weights)

The way back is minigrad.load_weights(file), which takes what PyTorch wrote too. The network itself leaves by
`minigrad export RUN --onnx FILE` (examples/docs/differences.md).

Neither format can hold code. Where PyTorch is installed, the script loads them there and compares the outputs.
"""

import argparse
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

import minigrad
from minigrad import models
from minigrad.cli.run import Run

SHAPE = (1, 28, 28)


def trained(run):
    """(network, shape of its images) of a run of `minigrad train`."""
    from minigrad import checkpoint

    run, settings = Run.of(run)
    model = settings.build_model()
    checkpoint.load(run.folder / "last", model)
    return model, settings.shape


def arrays_of(model):
    """{name: array} of parameters and running statistics, in the order of their axes."""
    return {name: np.ascontiguousarray(tensor.numpy()) for name, tensor in model.state_dict().items()}


def lenet_in_torch():
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    )  # fmt: skip


def difference_in_torch(model, file):
    """The largest difference of outputs between this network and PyTorch's with the weights in the file."""
    import torch
    from safetensors.torch import load_file as load_for_torch

    theirs = lenet_in_torch()
    theirs.load_state_dict(load_for_torch(file))
    images = np.random.default_rng(0).standard_normal((8, *SHAPE)).astype(np.float32)
    with torch.no_grad(), minigrad.no_grad():
        return float(np.abs(theirs(torch.from_numpy(images)).numpy() - model(minigrad.tensor(images)).numpy()).max())


def main(run=None, out="weights"):
    minigrad.manual_seed(0)
    model, shape = (models.lenet(), SHAPE) if run is None else trained(run)
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    arrays = arrays_of(model.eval())
    save_file(arrays, folder / "weights.safetensors", metadata={"input shape": str(shape)})
    np.savez(folder / "weights.npz", **arrays)

    for file in (folder / "weights.safetensors", folder / "weights.npz"):
        again = minigrad.load_weights(file)
        assert all((again[name].numpy() == array).all() for name, array in arrays.items())
        model.load_state_dict(again)
    for name, array in arrays.items():
        print(f"{name:<12} {array.dtype} {array.shape}")
    for file in sorted(folder.glob("weights.*")):
        print(f"{file}: {file.stat().st_size:,} bytes")
    if run is None and find_spec("torch"):
        found = difference_in_torch(model, folder / "weights.safetensors")
        print(f"largest difference of PyTorch's outputs: {found:.1e}")
        return found
    return None


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write the weights of a network for other libraries.")
    parser.add_argument("run", nargs="?", help="the folder of a run")
    parser.add_argument("--out", default="weights", help="the folder to write to")
    main(**vars(parser.parse_args()))
