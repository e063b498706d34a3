"""RestoreBest in checkpoints and in fit: states, files, runs that are stopped or killed and go on."""

import math
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import minigrad
from minigrad import MinigradError, Tensor, checkpoint, data, nn, optim
from minigrad.checkpoint import CheckpointError
from minigrad.optim.lr_scheduler import ReduceLROnPlateau, RestoreBest
from minigrad.train import Callback, History, evaluate, fit
from tests.checkpoint_parts import edit, state_of, tensors_of
from tests.optim_parts import arrays, same
from tests.small_training import images, network
from tests.test_optim_restore import normalised

# ---- state -----------------------------------------------------------------------------------------------------------

METRICS = [5, 4, 6, 4.5, 3, math.nan, 3.5, 2, 2.5, 2.5, 1, 7]


def watched(seed=0, rate=0.05):
    """A network that the parts of a checkpoint train: model, optimiser, schedule."""
    minigrad.manual_seed(seed)
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(3 * 2 * 2, 4))
    optimizer = optim.Adam(model.parameters(), lr=rate)
    return model, optimizer, RestoreBest(optimizer, patience=1, model=model)


def epochs(parts, numbers):
    """One update and one metric for each number."""
    model, optimizer, schedule = parts
    for number in numbers:
        minigrad.manual_seed(number)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(minigrad.randn(5, 2, 4, 4)), minigrad.tensor([0, 1, 2, 3, 0])).backward()
        optimizer.step()
        schedule.step(METRICS[number])


def bits(parts):
    """Everything that a checkpoint keeps, as comparable values."""
    found = {}

    def visit(name, value):
        if isinstance(value, dict):
            for key, entry in value.items():
                visit(f"{name}/{key}", entry)
        elif isinstance(value, list):
            visit(name, dict(enumerate(value)))
        else:
            found[name] = np.asarray(value).tobytes() if isinstance(value, Tensor | np.ndarray) else value

    for name, part in zip(("model", "optimizer", "schedule"), parts, strict=True):
        visit(name, part.state_dict())
    return found


@pytest.mark.parametrize("stop", range(len(METRICS)))
def test_a_checkpoint_resumes_bit_for_bit(tmp_path, stop):
    parts, others = watched(), watched(seed=1, rate=0.3)
    epochs(parts, range(stop))
    checkpoint.save(tmp_path, *parts)
    epochs(others, range(3))
    checkpoint.load(tmp_path, *others)
    assert bits(others) == bits(parts)
    for one_of_them in (parts, others):
        epochs(one_of_them, range(stop, len(METRICS)))
    assert bits(others) == bits(parts)


def test_files_name_what_is_kept(tmp_path):
    parts = watched()
    epochs(parts, range(3))
    checkpoint.save(tmp_path, *parts)
    tensors = tensors_of(tmp_path)
    kept = state_of(tmp_path)["schedule"]["copy"]
    assert kept["arrays"]["0"] == {"__tensor__": "schedule.copy.arrays.0"} and kept["state"]["0"]["step"] == 2
    assert tensors["schedule.copy.arrays.0"].shape == (3, 2, 3, 3)
    assert {"schedule.copy.state.0.exp_avg", "schedule.copy.arrays.model.1.running_mean"} <= tensors.keys()


def test_a_buffer_of_any_name_comes_back(tmp_path):
    """Even where it is called as the mark that the index puts in place of an array."""
    parts = []
    for value in (1.0, 2.0):
        model = nn.Module()
        model.weight = nn.Parameter(np.zeros(2, np.float32))
        model.register_buffer("tensor", Tensor(np.array([value])))
        optimizer = optim.SGD([model.weight])
        parts.append((model, optimizer, RestoreBest(optimizer, model=model)))
    checkpoint.save(tmp_path, *parts[0])
    checkpoint.load(tmp_path, *parts[1])
    assert bits(parts[0]) == bits(parts[1])


def edited(state, path, value):
    """The state with another value at the end of a path of keys; None takes the key away."""
    *path, last = path
    place = state
    for key in path:
        place = place[key]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return state


WRONG = [
    (["copy"], None, "load_state_dict: got"),
    (["copy", "arrays", "0"], np.ones(2), "the copy is of other parameters"),
    (["copy", "arrays", "9"], np.ones(2), "the copy is of other parameters"),
    (["copy", "arrays", "model.1.running_mean"], None, "the copy is of other parameters"),
]


@pytest.mark.parametrize("path, value, text", WRONG, ids=[text for *_, text in WRONG])
def test_states_that_do_not_fit_change_nothing(path, value, text):
    parts = watched()
    epochs(parts, range(2))
    before = bits(parts)
    with pytest.raises((ValueError, TypeError), match=text) as caught:
        parts[2].load_state_dict(edited(parts[2].state_dict(), path, value))
    assert isinstance(caught.value, MinigradError) and bits(parts) == before


@pytest.mark.parametrize(
    "path, value, text",
    [
        (["schedule", "copy", "arrays", "0"], {"__tensor__": "schedule.copy.arrays.77"}, "no field"),
        (["schedule", "copy", "arrays", "0"], {"__tensor__": "model.0.bias"}, "the copy is of other parameters"),
        (["schedule", "copy", "arrays", "0"], {"__tensor__": 5}, "cannot load"),
        (["schedule", "copy"], None, "load_state_dict: got"),
    ],
)
def test_damaged_checkpoints_change_nothing(tmp_path, path, value, text):
    parts = watched()
    epochs(parts, range(2))
    checkpoint.save(tmp_path, *parts)
    edit(tmp_path, lambda index: edited(index, path, value))
    others = watched(seed=1)
    before = bits(others)
    with pytest.raises(CheckpointError, match=text):
        checkpoint.load(tmp_path, *others)
    assert bits(others) == before


def test_a_state_without_the_model_does_not_fit_a_schedule_with_it():
    model, optimizer = normalised()
    with_model, without = RestoreBest(optimizer, model=model), RestoreBest(optimizer)
    for one_of_them, state in ((with_model, without.state_dict()), (without, with_model.state_dict())):
        with pytest.raises(ValueError, match="the copy is of other parameters"):
            one_of_them.load_state_dict(state)


# ---- in fit ----------------------------------------------------------------------------------------------------------


class Rates(Callback):
    """The rate and the first weight that callbacks see after each epoch."""

    def __init__(self, model, optimizer):
        self.model, self.optimizer, self.seen = model, optimizer, []

    def on_epoch(self, history):
        weight = next(self.model.parameters()).array.ravel()[0]
        self.seen.append((self.optimizer.param_groups[0]["lr"], float(weight)))


@pytest.mark.parametrize("tested", [False, True])
@pytest.mark.parametrize("kind", [ReduceLROnPlateau, RestoreBest])
def test_fit_steps_what_watches_a_metric_once_an_epoch(kind, tested):
    """As the loop written out; a large rate makes the loss rise now and then."""

    def parts():
        model = network()
        optimizer = optim.SGD(model.parameters(), 0.5, momentum=0.9)
        return model, optimizer, kind(optimizer, factor=0.5, patience=0)

    test = data.Loader(images(seed=1), 20) if tested else None
    model, optimizer, schedule = parts()
    callback = Rates(model, optimizer)
    loader = data.Loader(images(), 16, shuffle=True)
    history = fit(model, loader, optimizer, 8, test=test, schedule=schedule, callbacks=[callback])
    other, written, watcher = parts()
    loader, seen = data.Loader(images(), 16, shuffle=True), []
    for _ in range(8):
        row = fit(other, loader, written, 1)[-1]
        watcher.step(evaluate(other, test)[0] if tested else row["loss"])
        seen.append((written.param_groups[0]["lr"], float(next(other.parameters()).array.ravel()[0])))
    assert callback.seen == seen and len({rate for rate, _ in seen}) > 1
    assert schedule.last_epoch == 8 and schedule.best == min(history["test_loss" if tested else "loss"])
    if kind is RestoreBest:
        assert seen[0][0] == 0.5 and same(arrays(model.parameters()), arrays(other.parameters()))


class Stop(Callback):
    """Says stop at the nth question."""

    def __init__(self, questions):
        self.questions = questions

    def stop(self, history):
        self.questions -= 1
        return self.questions <= 0


@pytest.mark.parametrize("questions", range(1, 26, 2))
def test_fit_stopped_anywhere_and_continued_equals_uninterrupted(tmp_path, questions):
    """Between updates, amid the evaluation, after an epoch; through a checkpoint in a folder."""

    def parts():
        model = network(dropout=0.2)
        optimizer = optim.SGD(model.parameters(), 0.5, momentum=0.9)
        return model, optimizer, RestoreBest(optimizer, model=model), data.Loader(images(), 16, shuffle=True)

    def run(parts, history, callbacks=()):
        model, optimizer, schedule, loader = parts
        test = data.Loader(images(seed=1), 20)
        return fit(model, loader, optimizer, 5, test=test, schedule=schedule, history=history, callbacks=callbacks)

    whole, wanted = parts(), History()
    run(whole, wanted)
    assert whole[2].get_last_lr() != [0.5]
    first, history = parts(), History()
    run(first, history, [Stop(questions)])
    checkpoint.save(tmp_path, *first[:3], history=history, loader=first[3])
    second, history = parts(), History()
    rest = {"history": history, "generator": minigrad.default_generator}
    checkpoint.load(tmp_path, *second[:3], loader=second[3], **rest)
    run(second, history)
    assert bits(second[:3]) == bits(whole[:3])
    assert history["test_loss"] == wanted["test_loss"] and history["lr"] == wanted["lr"]


TRAINER = """
import sys
from pathlib import Path
from tests.test_optim_restore_resume import METRICS, epochs, watched
from minigrad import checkpoint
parts = watched()
for number in range(len(METRICS)):
    epochs(parts, [number])
    checkpoint.save(sys.argv[1], *parts, extra=number + 1)
    print(number, flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL is POSIX")
@pytest.mark.parametrize("last", [2, 5, 8])
def test_a_killed_run_goes_on_as_if_it_had_not_been(tmp_path, last):
    command, folder = [sys.executable, "-c", TRAINER, str(tmp_path)], Path(__file__).parents[1]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=folder) as trainer:
        while int(trainer.stdout.readline()) < last:
            pass
        trainer.send_signal(signal.SIGKILL)
    whole, resumed = watched(), watched(seed=1)
    done = checkpoint.load(tmp_path, *resumed)
    assert done > last
    epochs(whole, range(len(METRICS)))
    epochs(resumed, range(done, len(METRICS)))
    assert bits(resumed) == bits(whole)
