"""report.html of a run, written by `minigrad train` at its end and by `minigrad report` again."""

import shlex
import time
from dataclasses import asdict

from tqdm import tqdm

from minigrad_kernels.toolchain import threads

from .. import checkpoint, ops
from ..core.errors import MinigradError
from ..data import DataError, Loader
from ..profile import measure_step
from ..report import Report
from ..report.page import Html, escaped
from ..train import Histograms, History, predict
from ..train.precision import computing
from .run import CONFIG, HISTOGRAMS, REPORT, RESULT, Run
from .settings import checked_folder, kernel_threads, refusing

__all__ = ["run_report", "write_report"]


def run_report(options):
    """Write report.html of a run folder again."""
    with refusing():
        run, settings, images = Run.of(options.run)
        settings.device = options.device or settings.device
        if options.data_dir is not None:
            settings.data_dir = checked_folder(options.data_dir)
        model = settings.build_model(images)
        history = History()
        seconds = run.seconds_in(checkpoint.load(run.folder / "last", model, history=history))
    datasets, lacking = None, {}
    try:
        datasets = settings.datasets(download=False)
    except DataError as error:
        lacking = dict.fromkeys(("mistakes", "cost"), f"The images of the run are not here: {error}")
        print(f"report: without the images of the run, as they are not here: {error}")
    with kernel_threads(options.threads or settings.threads):
        print(write_report(run, settings, images, model, history, datasets, seconds, lacking))
    return 0


def write_report(run, settings, images, model, history, datasets, seconds, lacking):
    """Write report.html into the folder of a run, from what is there and from these; returns what to say of it.

    datasets    (train, test), by which the model is measured; None if it is not
    seconds     of training; None if nobody counted them
    lacking     {section: why something is missing in it}
    """
    begin, lacking = time.perf_counter(), dict(lacking)
    found = {}
    if datasets is not None:
        found |= _tried(lambda: _looked_at(settings, images, model, datasets[1]), "mistakes", lacking)
        found |= _tried(lambda: _step(settings, images, datasets[0]), "cost", lacking)
    config, result = run.read_json(CONFIG), run.read_json(RESULT)
    report = Report(
        title=f"{settings.model} on {settings.data}",
        history=history,
        model=model,
        shape=images.shape,
        classes=images.classes,
        state=_state(run, settings, history),
        figures=_figures(model, seconds, result),
        records=_records(run, model, len(history), lacking),
        origin=_origin(run, settings, images, model, history, config),
        lacking=lacking,
        **found,
    )
    report.save(run.folder / REPORT)
    return f"report: {run.folder / REPORT} ({time.perf_counter() - begin:.1f} s)"


def _tried(measure, section, lacking):
    """What measure() finds; nothing where it cannot, for want of memory say, which the page then mentions."""
    try:
        return measure()
    except MinigradError as error:
        lacking[section] = f"This could not be measured: {error}"
        return {}


def _looked_at(settings, images, model, test):
    """The test images and what the model says of them."""
    batches = tqdm(settings.test_loader(test, images), desc="test images", leave=False, disable=None)
    return {"test": test, "predictions": predict(model, batches, precision=settings.precision)}


def _step(settings, images, train):
    """The Profile of a step of a new network like the one trained, by this process alone, and what it is of.

    Nothing for the interpreter: its times say nothing of a GPU.
    """
    if settings.device == "interpreter":
        return {}
    model = settings.build_model(images)
    options = {"transform": settings.transform(images, settings.augment), "prefetch": 0, "device": settings.device}
    batch = next(iter(Loader(train, settings.batch_size, True, settings.seed, **options)))
    with computing(settings.precision):
        profile = measure_step(model, ops.cross_entropy, batch, settings.build_optimizer(model))
    where = f"threads: {threads()}" if settings.device == "cpu" else settings.device
    return {
        "profile": profile,
        "measured": f"One step (forward, backward, update) on {settings.batch_size} images by one process "
        f"({where}; {settings.precision}).",
    }


def _state(run, settings, history):
    if len(history) >= settings.epochs:
        return f"Done: {settings.epochs} of {settings.epochs} epochs."
    at = f"epoch {len(history) + 1} of {settings.epochs}"
    return f"Interrupted in {at}, after update {history.steps:,}; minigrad train --resume {run.argument} goes on."


def _figures(model, seconds, result):
    """What the history does not say."""
    figures = {"parameters": f"{sum(parameter.numel() for parameter in model.parameters()):,}"}
    if seconds is not None:
        figures["seconds of training"] = f"{seconds:,.1f}"
    harder = result.get("new_writers")
    if isinstance(harder, dict) and isinstance(harder.get("test_accuracy"), float):
        figures["accuracy on new writers"] = f"{100 * harder['test_accuracy']:.2f} %"
    return figures


def _records(run, model, epochs, lacking):
    """The histograms of the run; where they cannot be had, the page says why."""
    histograms = Histograms(model)
    try:
        histograms.load_state_dict(run.read_json(HISTOGRAMS), epochs)
    except MinigradError as error:
        lacking["distributions"] = str(error)
    return histograms.records


def _origin(run, settings, images, model, history, config):
    """All that it takes to do it again, by heading."""
    command = config.get("command")
    words = shlex.join(map(str, command)) if isinstance(command, list) else "unknown"
    written = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    numbers = {name: " ".join(f"{value:.4f}" for value in getattr(images, name)) for name in ("mean", "std")}
    return {
        "Command": {
            "command": Html(f"<code>{escaped(words)}</code>"),
            "run folder": run.folder.resolve(),
            "begun": config.get("created", "unknown"),
            "this page": written,
        },
        "Weights": {
            "after update": f"{history.steps:,}",
            "SHA-256": Html(f"<code>{checkpoint.weights_hash(model)}</code>"),
        },
        "Settings": {name: "-" if value is None else value for name, value in asdict(settings).items()},
        "Data": {"source": config.get("source") or "unknown", "image (C, H, W)": images.shape, **numbers},
        "Machine that began it": _entries(config, "machine"),
        "Versions": _entries(config, "versions"),
    }


def _entries(config, name):
    found = config.get(name)
    return found if isinstance(found, dict) else {name: "not noted"}
