"""Digits learnt by kernels alone on the GPU, and by the CPU's kernels from the same start."""

import time

import cupy
import numpy as np

from minigrad.data import digits

from ..kernel_training import Network

EPOCHS, BATCH, HIDDEN = 20, 64, 128
WANTED = 0.95  # of the test images


def _trained(device, images, labels):
    """(network, losses of its epochs, seconds)"""
    network, losses, random = Network(64, HIDDEN, 10, device), [], np.random.default_rng(2)
    begun = time.perf_counter()
    for _ in range(EPOCHS):
        order = random.permutation(len(labels))
        chunks = [order[i : i + BATCH] for i in range(0, len(order), BATCH)]
        losses.append(float(np.mean([network.train(images[chunk], labels[chunk]) for chunk in chunks])))
    cupy.cuda.Device().synchronize()
    return network, losses, time.perf_counter() - begun


def run():
    """Accuracy on the test images and losses on both devices."""
    train, test = digits()
    found = {}
    for device in ("cpu", "cuda"):
        images = [np.asarray(part.images, np.float32).reshape(len(part.labels), -1) / 255 for part in (train, test)]
        network, losses, seconds = _trained(device, images[0], np.asarray(train.labels))
        accuracy = network.accuracy(images[1], np.asarray(test.labels))
        found[device] = {"accuracy": accuracy, "losses": [round(x, 5) for x in losses], "seconds": round(seconds, 2)}
        print(f"{device}: accuracy {accuracy:.4f}, last loss {losses[-1]:.4f}, {seconds:.1f} s", flush=True)
    apart = abs(found["cpu"]["losses"][0] - found["cuda"]["losses"][0])
    found["failed"] = not (found["cuda"]["accuracy"] >= WANTED and apart < 1e-3)
    return found
