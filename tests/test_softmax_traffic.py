"""What the kernels of softmax and cross entropy move, counted by the interpreter, and what they refuse."""

from functools import partial

import numpy as np
import pytest

from minigrad_kernels import interpreter, softmax
from minigrad_kernels.errors import ShapeError
from minigrad_kernels.softmax import cuda

IGNORED = -100


def array(*shape):
    return interpreter.array(np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32))


def counts_of(function, *arguments, **options):
    """(name of the kernel, its counts)"""
    with interpreter.recording() as launches:
        function(*arguments, **options)
    ((name, seen),) = launches
    return name, seen.counts


# Times that each function reads its rows: those of the first array, of the second.
READS = {"softmax": (3,), "log_softmax": (3,), "softmax_grad": (2, 2), "log_softmax_grad": (2, 1)}


@pytest.mark.parametrize("function", READS)
@pytest.mark.parametrize("classes", [8, 32, 1056, 4104])
def test_rows_are_read_as_often_as_the_docstrings_say(function, classes):
    rows, reads = 4, READS[function]
    inputs = [array(rows, classes) for _ in reads]
    name, counts = counts_of(getattr(cuda, function), *inputs, interpreter.empty((rows, classes)))
    size = 4 * rows * classes
    assert name == f"softmax_{'grad' if 'grad' in function else 'forward'}_f32"
    assert list(counts.bytes_loaded.values()) == [n * size for n in reads]
    assert list(counts.bytes_stored.values()) == [size]
    if classes % 32 == 0:
        assert counts.global_sectors == counts.global_sectors_ideal


def test_losses_are_two_reads():
    x, target = array(9, 1024), interpreter.array(np.arange(9))
    launched, counts = counts_of(softmax.cross_entropy, x, target, IGNORED, interpreter.empty(9), interpreter.empty(9))
    assert launched == "softmax_loss_f32"
    assert counts.bytes_loaded["x"] == 2 * x.nbytes and counts.bytes_stored == {"losses": 36, "logsumexp": 36}


def test_gradients_of_losses_are_one_read_and_one_write():
    x, target, dx = array(40, 12), interpreter.array(np.arange(40) % 12), interpreter.empty((40, 12))
    launched, counts = counts_of(
        softmax.cross_entropy_grad, array(40, 1)[:, 0], x, target, IGNORED, array(40, 1)[:, 0], dx
    )
    assert launched == "softmax_loss_grad_f32"
    assert counts.bytes_loaded["x"] == x.nbytes and counts.bytes_stored == {"dx": x.nbytes}


def test_few_classes_share_warps():
    """Rows of 10 classes take 16 lanes, of 3 take 4: so many fewer warps than rows execute."""
    for classes, lanes in ((10, 16), (3, 4), (1, 1)):
        _, counts = counts_of(softmax.softmax, array(512, classes), interpreter.empty((512, classes)))
        stores = sum(n for name, n in counts.instructions.items() if name.startswith("st.global"))
        assert stores == 512 * lanes // 32


@pytest.mark.parametrize("function", [*READS, "cross_entropy", "cross_entropy_grad"])
def test_more_elements_than_places_are_refused(function):
    """2**31 - 256 of them: the kernels look 256 elements ahead in 32 bits."""
    far = np.broadcast_to(array(1), (1, (1 << 31) - 256)).view(interpreter.Array)
    call = getattr(cuda, function)
    call = {
        "softmax": partial(call, far, far),
        "log_softmax": partial(call, far, far),
        "softmax_grad": partial(call, far, far, far),
        "log_softmax_grad": partial(call, far, far, far),
        "cross_entropy": partial(call, far, None, 0, None, None),
        "cross_entropy_grad": partial(call, None, far, None, 0, None, far),
    }[function]
    with pytest.raises(ShapeError, match=f"^{function}: x has shape .*, wants less than 2147483392"):
        call()
