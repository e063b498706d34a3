"""report.html of a run, written by `minigrad train` at its end and by `minigrad report` again."""

import shlex
import time
from dataclasses import asdict

from tqdm import tqdm

from .. import checkpoint
from ..data import DataError
from ..errors import MinigradError
from ..report import SECTIONS, Report
from ..report.page import Html, escaped
from ..train import Histograms, History, predict
from .run import CONFIG, HISTOGRAMS, REPORT, RESULT, Run
from .settings import UsageError, checked_folder, kernel_threads, refusing

__all__ = ["run_report", "write_report"]


def run_report(options):
    """Write report.html of a run folder again."""
    with refusing():
        run, settings, images = Run.of(options.run)
        settings.device = options.device or settings.device
        if options.data_dir is not None:
            settings.data_dir = checked_folder(options.data_dir)
        model = settings.build_model(images)
        extra = checkpoint.load(run.folder / "last", model)
        history, seconds = _history_of(extra, run)
    test, lacking = None, {}
    try:
        _, test = settings.datasets(download=False)
    except DataError as error:
        lacking["mistakes"] = f"The test images are not here: {error}"
        print(f"report: without the test images, as they are not here: {error}")
    with kernel_threads(options.threads or settings.threads):
        print(write_report(run, settings, images, model, history, test, seconds, lacking))
    return 0


def _history_of(extra, run):
    """(History, seconds of training or None) that a checkpoint says."""
    history = History()
    try:
        history.load_state_dict(extra["history"])
        seconds = extra.get("seconds")
        return history, None if seconds is None else float(seconds)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{run.folder / 'last'} cannot be used: {checkpoint.reason(error)}") from error


def write_report(run, settings, images, model, history, test, seconds, lacking):
    """Write report.html into the folder of a run, from what is there and from these; returns what to say of it.

    test        Dataset on which the model is measured; None if it is not
    seconds     of training; None if nobody counted them
    lacking     {section: why something is missing in it}
    """
    begin, lacking = time.perf_counter(), dict(lacking)
    with tqdm(total=1 + len(SECTIONS), desc="report", unit=" parts", leave=False, disable=None) as bar:

        def show(name):
            bar.set_postfix_str(name)
            bar.update()

        predictions = None
        if test is not None:
            show("test images")
            predictions = predict(model, settings.test_loader(test, images))
        config, result = run.read_json(CONFIG), run.read_json(RESULT)
        report = Report(
            title=f"{settings.model} on {settings.data}",
            history=history,
            model=model,
            shape=images.shape,
            classes=images.classes,
            state=_state(run, settings, history),
            figures=_figures(model, seconds, result),
            test=test,
            predictions=predictions,
            records=_records(run, model, len(history), lacking),
            origin=_origin(run, settings, images, model, history, config),
            lacking=lacking,
            progress=show,
        )
        report.save(run.folder / REPORT)
    return f"report: {run.folder / REPORT} ({time.perf_counter() - begin:.1f} s)"


def _state(run, settings, history):
    if len(history) >= settings.epochs:
        return f"All {settings.epochs} epochs are done."
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
        "Machine that trained": _entries(config, "machine"),
        "Versions": _entries(config, "versions"),
    }


def _entries(config, name):
    found = config.get(name)
    return found if isinstance(found, dict) else {name: "not noted"}
