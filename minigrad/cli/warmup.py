"""minigrad warmup: compile the kernels for the CPU before they are needed."""

import time

import numpy as np
from tqdm import tqdm

from minigrad_kernels.toolchain import progress
from minigrad_kernels.toolchain.cache import cache_folder

from .. import data, manual_seed, models
from ..train import fit
from .settings import MOMENTUM, OPTIMIZERS, kernel_threads

__all__ = ["run_warmup"]

IMAGES, BATCH = 8, 4
COLOUR = ("resnet",)  # trained on CIFAR-10; the others on digits


def run_warmup(options):
    """Train each network on a few images of noise, by each optimiser; say what that compiled."""
    names = options.models or list(models.MODELS)
    begin, compiled = time.perf_counter(), []
    bar = tqdm(total=len(names) * len(OPTIMIZERS), unit=" trainings", leave=False, disable=None)

    def listener(kernel, seconds):
        compiled.append(seconds)
        bar.set_postfix_str(f"compiled {kernel}")

    with bar, kernel_threads(options.threads), progress.listen(listener):
        for name in names:
            for optimizer in OPTIMIZERS:
                bar.set_description(f"{name}, {optimizer}")
                _train(name, optimizer)
                bar.update()
    time_taken = f"in {sum(compiled):.1f} s, {time.perf_counter() - begin:.1f} s in all"
    print(f"{len(compiled)} kernels compiled {time_taken}, for {', '.join(names)}")
    print(f"kernel cache: {cache_folder() or 'none: no folder can be written'}")
    return 0


def _train(name, optimizer):
    manual_seed(0)
    channels, size = (3, 32) if name in COLOUR else (1, models.MODELS[name].made_for or 8)
    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (IMAGES, channels, size, size), dtype=np.uint8)
    noise = data.Dataset(pixels, np.arange(IMAGES) % 2, ("a", "b"))
    model = models.build(name, noise.images.shape[1:], 2)
    extra = {"momentum": MOMENTUM, "nesterov": True} if optimizer == "sgd" else {}
    steps = [data.PadCrop(1), data.Flip()]
    if models.MODELS[name].normalised:
        steps.append(data.Normalize(noise.mean, noise.std))
    loader = data.Loader(noise, BATCH, transform=data.Compose(steps))
    test = data.Loader(noise, BATCH, transform=data.Compose(steps[2:]) if steps[2:] else None)
    fit(model, loader, OPTIMIZERS[optimizer](model.parameters(), lr=1e-6, **extra), 1, test=test, clip=1.0)
