"""What the rungs of softmax and cross entropy move, counted by the interpreter; which one runs; what they refuse."""

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


# Times that each function reads its rows, by kernel: those of the first array, of the second.
READS = {
    "softmax": {"plain": (3,), "warp": (1,), "wide": (3,)},
    "log_softmax": {"plain": (3,), "warp": (1,), "wide": (3,)},
    "softmax_grad": {"plain": (2, 2), "warp": (1, 1), "wide": (2, 2)},
    "log_softmax_grad": {"plain": (2, 1), "warp": (1, 1), "wide": (2, 1)},
}
KERNELS = {"softmax": "forward", "log_softmax": "log", "softmax_grad": "grad", "log_softmax_grad": "log_grad"}


@pytest.mark.parametrize("function", READS)
@pytest.mark.parametrize(
    "rung, kind, classes, suffix",
    [
        ("plain", "plain", 32, "plain_f32"),
        (None, "warp", 8, "warp_32"),
        (None, "warp", 32, "warp_32"),
        (None, "warp", 96, "warp_128"),
        (None, "warp", 1024, "warp_1024"),
        (None, "wide", 1056, "wide"),
        (None, "wide", 4096, "wide"),
        (None, "wide", 4104, "wide_block"),
    ],
)
def test_rows_are_read_as_often_as_the_docstrings_say(function, rung, kind, classes, suffix):
    rows = 4
    reads = READS[function][kind]
    inputs = [array(rows, classes) for _ in reads]
    name, counts = counts_of(getattr(cuda, function), *inputs, interpreter.empty((rows, classes)), rung=rung)
    size = 4 * rows * classes
    assert name == f"softmax_{KERNELS[function]}_{suffix}"
    first = 4 * rows if kind == "plain" and len(reads) == 1 else 0  # the element from which the greatest starts
    assert list(counts.bytes_loaded.values()) == [n * size + first * (i == 0) for i, n in enumerate(reads)]
    assert list(counts.bytes_stored.values()) == [size]
    if kind != "plain" and classes % 32 == 0:
        assert counts.global_sectors == counts.global_sectors_ideal


@pytest.mark.parametrize("classes, name", [(8, "softmax_loss_warp_32"), (1024, "softmax_loss_warp_1024")])
def test_losses_are_one_read(classes, name):
    x, target = array(9, classes), interpreter.array(np.arange(9) % classes)
    out = interpreter.empty(9), interpreter.empty(9)
    launched, counts = counts_of(softmax.cross_entropy, x, target, IGNORED, *out)
    assert launched == name
    assert counts.bytes_loaded["x"] == x.nbytes and counts.bytes_stored == {"losses": 36, "logsumexp": 36}


@pytest.mark.parametrize("classes, name", [(12, "softmax_loss_grad_vector"), (10, "softmax_loss_grad_plain_f32")])
def test_gradients_of_losses_are_one_read_and_one_write(classes, name):
    x, target, dx = array(40, classes), interpreter.array(np.arange(40) % classes), interpreter.empty((40, classes))
    launched, counts = counts_of(
        softmax.cross_entropy_grad, array(40, 1)[:, 0], x, target, IGNORED, array(40, 1)[:, 0], dx
    )
    assert launched == name
    assert counts.bytes_loaded["x"] == x.nbytes and counts.bytes_stored == {"dx": x.nbytes}


def test_few_classes_share_warps():
    """Rows of 10 classes take 16 lanes, of 3 take 4: so many fewer warps than rows execute."""
    for classes, lanes in ((10, 16), (3, 4), (1, 1)):
        _, counts = counts_of(softmax.softmax, array(512, classes), interpreter.empty((512, classes)))
        stores = sum(n for name, n in counts.instructions.items() if name.startswith("st.global"))
        assert stores == 512 * lanes // 32


def test_rungs_that_do_not_fit_are_refused():
    double = interpreter.array(np.ones((2, 2)))
    with pytest.raises(ShapeError, match="^softmax: the rung warp wants float32"):
        cuda.softmax(double, double, rung="warp")
    with pytest.raises(
        ShapeError, match="^cross_entropy_grad: the rung vector wants float32, a number of classes that"
    ):
        cuda.cross_entropy_grad(None, array(2, 5), None, 0, None, array(2, 5), rung="vector")


@pytest.mark.parametrize("function", [*READS, "cross_entropy", "cross_entropy_grad", "cross_entropy_with_grad"])
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
        "cross_entropy_with_grad": partial(call, far, None, 0, 1, None, far),
    }[function]
    with pytest.raises(ShapeError, match=f"^{function}: x has shape .*, wants less than 2147483392"):
        call()
