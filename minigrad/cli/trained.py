"""What is done with a trained network: minigrad evaluate, predict, export and report."""

import json
import time

import numpy as np

from .. import Tensor, checkpoint, data, export_onnx, models, nn
from ..data.formats import read_picture
from ..report import Report
from ..train import Histograms, History, evaluate, predict
from .picture import prepared, save_pixels
from .profiling import profiled
from .run import CONFIG, RESULT, Run


def run_evaluate(options):
    """Measure a trained network on the test images."""
    settings, model = _trained(options)
    _, test = settings.datasets(download=False)
    loss, accuracy = evaluate(model, settings.test_loader(test), precision=settings.precision)
    print(f"checkpoint {options.checkpoint} of {options.run}: {' on '.join(settings.names)}")
    print(f"test loss {loss:.4f}\ntest accuracy {100 * accuracy:.2f} %")
    return 0


def run_predict(options):
    """Say what a picture shows and what was done to it; seen.png in the folder of the run is what the network saw."""
    picture = read_picture(options.image)
    settings, model = _trained(options)
    pixels, notes = prepared(picture, settings.data, settings.shape)
    print(f"picture: {options.image}; {'; '.join(notes) or 'not changed'}")
    image = data.Dataset(pixels, np.zeros(1, np.int64), settings.classes)
    (shares,), _ = predict(model, settings.test_loader(image), precision=settings.precision)
    for share, name in sorted(zip(shares, settings.classes, strict=True), reverse=True)[:3]:
        print(f"{name:>10}  {100 * share:5.1f} %")
    seen = Run(options.run).folder / "seen.png"
    save_pixels(pixels, seen)
    print(f"the network saw {seen}")
    return 0


def run_export(options):
    """Write a trained network as a file that takes pixels, and say what is in it."""
    settings, model = _trained(options)
    path, how = options.onnx, ", light on dark" if settings.data in ("digits", "mnist") else ""
    about = {"model": settings.model, "data": settings.data, "classes": json.dumps(settings.classes)}
    about["input"] = f"pixels 0..255 as uint8, (batch, {', '.join(map(str, settings.shape))}){how}"
    about["output"] = "scores of the classes, (batch, classes): softmax makes probabilities of them"
    mean, std = (settings.mean, settings.std) if models.architecture(settings.model).normalised else (0, 1)
    of_pixels = _OfPixels(model, *data.Normalize(mean, std).factors(255))
    export_onnx(of_pixels, path, (1, *settings.shape), dtype="uint8", metadata=about)
    print(f"{path}: {path.stat().st_size:,} bytes, {settings.model} of {options.run} ({options.checkpoint})")
    print(f"input: {about['input']}\noutput: {about['output']}")
    return 0


class _OfPixels(nn.Module):
    """A network behind what the loader does to its images: pixels scaled, and normalised where it wants that."""

    def __init__(self, model, *factors):
        self.model, self.factors = model, factors

    def forward(self, input):
        scale, shift = (Tensor(one.reshape(1, -1, 1, 1)).to(input.device) for one in self.factors)
        return self.model(input.to("float32") * scale + shift)


def _trained(options):
    """(settings, model with the weights of the checkpoint) of a run; kernels then use its threads."""
    run, settings = Run.of(options.run, options.checkpoint)
    settings = settings.here(options)
    settings.set_threads(options.threads)
    model = settings.build_model()
    checkpoint.load(run.folder / options.checkpoint, model)
    return settings, model


def run_report(options):
    """Write report.html of a run folder again."""
    run, settings = Run.of(options.run)
    settings.set_threads(options.threads)
    print(write_report(run, settings.here(options)))
    return 0


def write_report(run, settings):
    """Write report.html into the folder of a run, from what is there; gives a line that says so."""
    begin = time.perf_counter()
    model, history = settings.build_model(), History()
    histograms = Histograms(model)
    checkpoint.load(run.folder / "last", model, history=history, histograms=histograms)
    train, test = settings.datasets(download=False)
    parts = run.read(CONFIG) | {"result": run.read(RESULT)}
    origin = {name.capitalize(): part for name, part in parts.items() if part}
    found = {"records": histograms.records, "origin": origin, "test": test}
    found["predictions"] = predict(model, settings.test_loader(test), precision=settings.precision)
    if settings.device != "interpreter":  # whose times say nothing of a GPU
        found["profile"] = profiled(settings, train)
    found["state"] = f"Done: {settings.epochs} of {settings.epochs} epochs."
    if len(history) < settings.epochs:
        at = f"epoch {len(history) + 1} of {settings.epochs}, after update {history.steps:,}"
        found["state"] = f"Interrupted in {at}; minigrad train --resume {run.argument} goes on."
    title, shown = " on ".join(settings.names), (history, model, settings.shape, settings.classes)
    Report(title, *shown, **found).save(run.folder / "report.html")
    return f"report: {run.folder / 'report.html'} ({time.perf_counter() - begin:.1f} s)"
