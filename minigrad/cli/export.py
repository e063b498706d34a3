"""minigrad export"""

import json
from pathlib import Path

import numpy as np

from .. import Tensor, export_onnx, models, nn
from .inspection import trained
from .settings import UsageError, check_can_be_made, kernel_threads, refusing

__all__ = ["run_export"]


class _OfPixels(nn.Module):
    """A network behind what the loader does to its images: pixels scaled, and normalised where it wants that."""

    def __init__(self, model, scale, shift):
        self.model = model
        for name, numbers in (("scale", scale), ("shift", shift)):
            self.register_buffer(name, Tensor(np.array(numbers, np.float32).reshape(1, -1, 1, 1)))

    def forward(self, input):
        return self.model(input.to("float32") * self.scale + self.shift)


def run_export(options):
    """Write a trained network as a file that takes pixels, and say what is in it."""
    with refusing():
        settings, images, model = trained(options)
        path = Path(options.onnx)
        if not path.parent.is_dir():
            raise UsageError(f"--onnx {path}: {path.parent} is not a folder")
        if path.is_dir():
            raise UsageError(f"--onnx {path} is a folder, want the file to write")
        check_can_be_made("--onnx", path.parent)
        scale, shift = 1 / 255, 0.0
        if models.MODELS[settings.model].normalised:
            mean, std = np.array(images.mean), np.array(images.std)
            scale, shift = 1 / (255 * std), -mean / std
        channels, height, width = images.shape
        how = ", light on dark" if settings.data in ("digits", "mnist") else ""
        metadata = {
            "input": f"pixels 0..255 as uint8, (batch, {channels}, {height}, {width}){how}",
            "output": "scores of the classes, (batch, classes): softmax makes probabilities of them",
            "classes": json.dumps(images.classes),
            "model": settings.model,
            "data": settings.data,
        }
        network = _OfPixels(model, scale, shift).to(settings.device)
        with kernel_threads(options.threads or settings.threads):
            export_onnx(network, path, (1, *images.shape), dtype="uint8", metadata=metadata)
    print(f"{path}: {path.stat().st_size:,} bytes, {settings.model} of {options.run} ({options.checkpoint})")
    for name in ("input", "output"):
        print(f"{name}: {metadata[name]}")
    return 0
