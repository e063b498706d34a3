"""What the kernels of softmax and cross entropy move, counted by the interpreter."""

import numpy as np
import pytest

from minigrad_kernels import interpreter, softmax
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
    """On either rung; shuffles need no shared memory within a warp."""
    rows, reads = 4, READS[function]
    inputs = [array(rows, classes) for _ in reads]
    size, shared = 4 * rows * classes, {}
    for rung in ("plain", "warp"):
        name, counts = counts_of(getattr(cuda, function), *inputs, interpreter.empty((rows, classes)), rung=rung)
        assert name == f"softmax_{'grad' if 'grad' in function else 'forward'}_{rung}_f32"
        assert list(counts.bytes_loaded.values()) == [n * size for n in reads]
        assert list(counts.bytes_stored.values()) == [size]
        if classes % 32 == 0:
            assert counts.global_sectors == counts.global_sectors_ideal
        shared[rung] = sum(n for word, n in counts.instructions.items() if word.startswith(("ld.shared", "bar")))
    assert shared["warp"] < shared["plain"] and (classes > 4096 or not shared["warp"])


def test_losses_are_two_reads_and_their_gradient_is_one():
    x, target, losses, logsumexp = array(9, 1024), interpreter.array(np.arange(9)), *array(2, 9)
    launched, counts = counts_of(softmax.cross_entropy, x, target, IGNORED, losses, logsumexp)
    assert launched == "softmax_loss_warp_f32"
    assert counts.bytes_loaded["x"] == 2 * x.nbytes + 9 * 4  # and the logit of each target
    dx = interpreter.empty(x.shape)
    launched, counts = counts_of(softmax.cross_entropy_grad, losses, x, target, IGNORED, logsumexp, None, dx)
    assert launched == "softmax_loss_grad_f32"
    assert counts.bytes_loaded["x"] == x.nbytes and counts.bytes_stored == {"dx": x.nbytes}


def test_few_classes_share_warps():
    """Rows of 10 classes take 16 lanes, of 3 take 4: so many fewer warps than rows execute."""
    for classes, lanes in ((10, 16), (3, 4), (1, 1)):
        _, counts = counts_of(softmax.softmax, array(512, classes), interpreter.empty((512, classes)))
        stores = sum(n for name, n in counts.instructions.items() if name.startswith("st.") and "shared" not in name)
        assert stores == 512 * lanes // 32
