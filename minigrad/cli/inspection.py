"""minigrad evaluate, predict, info"""

import os
import platform

from minigrad_kernels.toolchain import threads
from minigrad_kernels.toolchain.cache import cache_folder

from .. import Tensor, checkpoint, cuda, ops
from ..checkpoint.versions import versions
from ..core.errors import StateError
from ..core.modes import no_grad
from ..device import memory_statistics, place
from ..train import evaluate
from ..train.precision import computing
from .picture import prepared, read_picture
from .run import Run
from .settings import checked_folder, kernel_threads, refusing

__all__ = ["run_evaluate", "run_info", "run_predict", "trained"]

SHOWN = 3  # of the classes, the likeliest
MEBIBYTE = 1 << 20


def run_evaluate(options):
    """Measure a trained network on the test images."""
    with refusing():
        settings, images, model = trained(options)
        if options.data_dir is not None:
            settings.data_dir = checked_folder(options.data_dir)
        _, test = settings.datasets(download=False)
        loader = settings.test_loader(test, images)
    with kernel_threads(options.threads or settings.threads):
        loss, accuracy = evaluate(model, loader, precision=settings.precision)
    print(f"checkpoint {options.checkpoint} of {options.run}: {settings.model} on {settings.data}")
    print(f"test loss {loss:.4f}")
    print(f"test accuracy {100 * accuracy:.2f} %")
    return 0


def run_predict(options):
    """Say what a picture shows, and what was done to it."""
    with refusing():
        image = read_picture(options.image)
        settings, images, model = trained(options)
        pixels, notes = prepared(image, settings.data, images.shape)
    print(f"picture: {options.image}; {'; '.join(notes) or 'taken as it is'}")
    transform = settings.transform(images)
    inputs = transform(pixels, None) if transform else pixels.astype("float32") / 255
    with no_grad(), computing(settings.precision), kernel_threads(options.threads or settings.threads):
        shares = ops.softmax(model.eval()(Tensor(inputs).to(settings.device)), 1).tolist()[0]
    for number in sorted(range(len(shares)), key=lambda number: -shares[number])[:SHOWN]:
        print(f"{images.classes[number]:>10}  {100 * shares[number]:5.1f} %")
    return 0


def trained(options):
    """(settings, Images, model with the weights of the checkpoint) of a run."""
    run, settings, images = Run.of(options.run, options.checkpoint)
    settings.device = options.device or settings.device
    settings.precision = options.precision or settings.precision
    model = settings.build_model(images)
    checkpoint.load(run.folder / options.checkpoint, model)
    return settings, images, model


def run_info(options):
    """Versions, devices, threads, memory and the cache of kernels."""
    memory = memory_statistics()
    pool = {name: memory[f"{name}_bytes"] / MEBIBYTE for name in ("reserved", "used", "peak")}
    rows = {
        **versions(),
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "devices": ", ".join([f"cpu ({os.cpu_count()} cores)", *_gpus(), "interpreter"]),
        "threads": threads(),
        "memory pool": ", ".join(f"{value:.1f} MiB {name}" for name, value in pool.items()) + " by this process, "
        f"{memory['reused']} of {memory['requests']} requests served again",
        "kernel cache": cache_folder() or "none: no folder can be written",
    }
    for name, value in rows.items():
        print(f"{name:<14}{value}")
    return 0


def _gpus():
    """Name and memory of each GPU, or why there is none."""
    try:
        place("cuda")
    except StateError as error:
        return [f"no GPU ({str(error).partition(': ')[2]})"]
    found = []
    for number in range(cuda.device_count()):
        free, total = (value / MEBIBYTE for value in cuda.mem_get_info(number))
        found.append(f"cuda:{number} ({cuda.get_device_name(number)}, {free:,.0f} of {total:,.0f} MiB free)")
    return found
