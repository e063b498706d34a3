"""The history of a training, its progress on a terminal, and its learning curve."""

import json
import sys

import numpy as np
import pytest

from minigrad import data, draw, optim
from minigrad.core.errors import ShapeError
from minigrad.train import Callback, History, Progress, Running, fit
from tests.train.small_training import images, network

ROWS = [
    {"epoch": 1, "loss": 0.1 + 0.2, "accuracy": 0.5},
    {"epoch": 2, "loss": 1e-300, "accuracy": 1.0, "test_loss": 0.25, "images_per_second": None},
]


def test_a_history_holds_every_figure_exactly_and_goes_on():
    history = History(ROWS)
    assert [json.loads(line) for line in history.to_jsonl().splitlines()] == ROWS
    assert history.columns() == ["epoch", "loss", "accuracy", "test_loss", "images_per_second"]
    assert history["test_loss"] == [None, 0.25] and history[-1] == ROWS[1] and len(history) == 2
    assert repr(history) == "History(2 epochs, 0 steps)"
    history.steps, history.latest = 9, Running(loss=0.1, correct=3, images=8)
    other = History()
    other.load_state_dict(json.loads(json.dumps(history.state_dict())))
    assert other.state_dict() == history.state_dict()
    history[0]["loss"] = 7
    assert ROWS[0]["loss"] != 7


def test_progress_prints_plain_lines_and_draws_a_bar_on_a_terminal(monkeypatch, capsys):
    class Stop(Callback):
        def stop(self, history):
            return history.steps >= 2

    def run(epochs, *callbacks):
        model, loader = network(), data.Loader(images(), 11)
        optimizer, progress = optim.SGD(model.parameters(), 0.1), Progress(44, epochs)
        fit(model, loader, optimizer, epochs, test=loader, callbacks=[progress, *callbacks])
        assert progress.bar is None
        return capsys.readouterr()

    out, err = run(2)
    lines = out.splitlines()
    assert [line.split("  ")[0] for line in lines] == ["epoch 1/2", "epoch 2/2"] and err == ""
    assert all(word in lines[0] for word in ("loss ", "train ", "test ", "images/s"))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert "epoch 1/1:" in run(1, Stop()).err
    monkeypatch.setattr(sys, "stderr", None)
    assert run(1).out.startswith("epoch 1/1")


def test_learning_curve_shows_the_figures():
    history = History(ROWS)
    axes = draw.learning_curve(history, quantity="accuracy")
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("epoch", "accuracy (%)")
    (line,) = axes.get_lines()
    np.testing.assert_array_equal(line.get_xydata(), [[1, 50], [2, 100]])
    axes = draw.learning_curve(history)
    assert [line.get_label() for line in axes.get_lines()] == ["train", "test"] and axes.get_ylabel() == "loss"
    low, high = draw.learning_curve(History(ROWS[:1])).get_xlim()  # of one epoch, counted in whole ones
    assert (low, high) == (0.5, 1.5)
    with pytest.raises(ShapeError, match="has no epochs"):
        draw.learning_curve(History())
