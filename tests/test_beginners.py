"""What goes wrong in the first week, and what the messages say about it."""

import re
import subprocess
import sys

import numpy as np
import pytest

import minigrad
import minigrad.nn.functional as F
from minigrad import draw, gradcheck, gradgradcheck, nn, optim, primitive, randn, tensor
from minigrad.cli import main
from minigrad.data import Dataset, Loader
from minigrad.train import evaluate, fit

DATA = Dataset(np.zeros((4, 1, 8, 8), np.uint8), np.array([0, 1, 2, 1]), "abc")


def network():
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(72, 3))


def recorded_update():
    w = randn(2, 3, requires_grad=True)
    w -= 0.1 * w


def without_tape():
    with minigrad.no_grad():
        loss = network()(randn(1, 1, 8, 8)).sum()
    loss.backward()


def started(loader, test=None):
    model = network()
    return fit(model, loader, optim.SGD(model.parameters(), lr=0.1), 1, test=test)


def returning(result):
    @primitive
    def op(input):
        return result

    return op(randn(2))


def with_rule(**rules):
    @primitive
    def op(input):
        return 2 * input

    op.grads(**rules)


MISTAKES = {
    "size after flatten": (
        lambda: network()(randn(2, 1, 28, 28)),
        "linear: input has 1352 features (shape (2, 1352)), weight expects 72 (shape (3, 72))",
    ),
    "weight of three dimensions": (lambda: F.linear(randn(2, 3), randn(1, 3, 3)), "wanted (..., C) and (O, C)"),
    "channels last": (lambda: network()(randn(2, 8, 8, 1)), "input.permute(0, 3, 1, 2) brings them to the front"),
    "float64 images": (lambda: network()(tensor(np.zeros((1, 1, 8, 8)))), "as by input.to('float32')"),
    "float64 rows": (lambda: nn.Linear(2, 2)(tensor(np.zeros((1, 2)))), "as by input.to('float32')"),
    "bytes": (lambda: network()(tensor(np.zeros((1, 1, 8, 8), np.uint8))), "convert with .to('float32')"),
    "one-hot labels": (
        lambda: F.cross_entropy(randn(2, 3), F.one_hot(tensor([0, 2]), 3)),
        "wanted (2,) for an input of shape (2, 3), the number of a class for each; class probabilities are floating",
    ),
    "no leaf": (lambda: randn(3).sum().backward(), "make what you differentiate by with requires_grad=True"),
    "no tape": (without_tape, "compute the loss outside of no_grad()"),
    "an update outside of no_grad": (recorded_update, "isub: input is a leaf that requires a gradient; put the update"),
    "truth of many": (lambda: bool(randn(2) > 0), "bool: self has shape (2,), wanted a single element; ask .any()"),
    "list of layers": (lambda: nn.Sequential([nn.ReLU(), nn.ReLU()]), "one by one, as in Sequential(*modules)"),
    "dataset for a loader": (lambda: started(DATA), "fit: loader is a Dataset, wanted batches: data.Loader("),
    "dataset for tests": (lambda: started(Loader(DATA, 2), DATA), "fit: test is a Dataset, wanted batches"),
    "evaluating a dataset": (lambda: evaluate(network(), DATA), "evaluate: loader is a Dataset, wanted batches"),
    "number of classes": (lambda: Dataset(DATA.images, DATA.labels, 3), "wanted the names of all, such as range(10)"),
    "pixels from 0 to 1": (
        lambda: Dataset(DATA.images / 255, DATA.labels, "abc"),
        "Dataset: images are float64, wanted uint8, pixels 0..255: (255 * x).astype('uint8')",
    ),
    "curve of a list": (lambda: draw.learning_curve([0.5, 0.4]), "learning_curve: history is a list, want a train.Hi"),
    "filters of a layer": (lambda: draw.filters(nn.Conv2d(1, 2, 3)), "filters: weight is a Conv2d, wanted an array"),
    "rule of no argument": (
        lambda: with_rule(x=lambda g: g),
        "op: a rule is given for x, the arguments are ('input',)",
    ),
    "rule that asks too much": (
        lambda: with_rule(input=lambda g, y: g),
        "op: the rule of input asks for ['y'], it may ask for g, g_out, index, input, input_shape, out",
    ),
    "primitive of lists": (lambda: returning([1.0]), "op: the function returned a list, wanted an array"),
    "primitive of Tensors": (lambda: returning(tensor(1.0)), "a function of Tensors needs no @primitive"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_message(name):
    mistake, message = MISTAKES[name]
    with pytest.raises(minigrad.MinigradError, match=re.escape(message)):
        mistake()


def test_primitive_of_a_sum():
    """NumPy gives a scalar there, which is no array."""

    @primitive
    def total(input):
        return input.sum()

    total.grads(input=lambda g, input_shape: g.expand(input_shape))
    x = randn(3, dtype="float64", requires_grad=True)
    assert type(total(x).array) is np.ndarray
    assert gradcheck(total, x) and gradgradcheck(total, x)


def test_parts_are_there_without_an_import_of_their_own():
    program = (
        "import minigrad; minigrad.draw.graph; minigrad.data.digits; minigrad.train.fit; minigrad.checkpoint.save; "
        "minigrad.gradcheck; minigrad.models.lenet; minigrad.parallel.run_local; minigrad.report.Report; "
        "minigrad.sofmax"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "module 'minigrad' has no attribute 'sofmax'. Did you mean: 'softmax'?" in done.stderr


def test_loader_says_what_it_holds():
    assert repr(Loader(DATA, 3)).startswith(f"Loader({DATA!r}, 2 batches of 3")


@pytest.mark.parametrize("command", ["evaluate", "report"])
def test_no_such_run(command, tmp_path, capsys):
    assert main([command, str(tmp_path / "nowhere")]) == 2
    assert "there is no such folder" in capsys.readouterr().err
    assert main([command, str(tmp_path)]) == 2
    assert "it is not the folder of a run" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words, message",
    [
        (
            ["train", "--optimiser", "adam"],
            "minigrad train: error: unrecognized arguments: --optimiser adam; did you mean",
        ),
        (
            ["profile", "--model", "lenet"],
            "minigrad profile: error: unrecognized arguments: --model; minigrad profile",
        ),
    ],
)
def test_the_command_refuses_what_is_no_option_of_its_own(words, message, capsys):
    assert main(words) == 2
    assert message in capsys.readouterr().err


def test_command_alone_says_what_there_is(capsys):
    assert main([]) == 2
    shown = capsys.readouterr()
    assert "train a network on a data set" in shown.err and not shown.out
