"""DLPack with NumPy and with CuPy, for which the stand-in stands: memory is shared, never copied."""

import gc

import numpy as np
import pytest

import minigrad
from minigrad import Tensor, device

from .stand_in_gpus import gpus


def test_types_shapes_and_strides_stay_and_memory_lives_as_long_as_either():
    for dtype in ("float16", "float32", "float64", "int8", "int64", "uint8", "bool"):
        whole = (np.arange(120) % 2).astype(dtype).reshape(2, 3, 4, 5)
        for array in (whole, whole.transpose(0, 3, 1, 2), whole[:, ::2, 1:], whole[0, 0, 0, 0, None].reshape(())):
            taken = minigrad.from_dlpack(array)
            for other in (taken.array, np.from_dlpack(taken)):
                assert (other.dtype, other.shape, other.strides) == (array.dtype, array.shape, array.strides)
                assert np.shares_memory(other, array)
    taken = minigrad.from_dlpack(np.full((100, 100), 3.0))
    gc.collect()
    assert (taken.numpy() == 3).all()
    array = np.ones(3)
    array.flags.writeable = False
    taken = minigrad.from_dlpack(array)
    assert not taken.array.flags.writeable and not np.from_dlpack(taken).flags.writeable


def test_what_cannot_be_shared_is_refused():
    backwards, wanting = Tensor(np.arange(5.0)[::-1]), minigrad.ones(2, requires_grad=True)
    np.testing.assert_array_equal(np.from_dlpack(backwards.clone()), [4, 3, 2, 1, 0])
    for call, error, words in (
        (lambda: np.from_dlpack(wanting), BufferError, "requires a gradient.*call .detach"),
        (lambda: np.from_dlpack(backwards), BufferError, r"lies backwards \(strides \(-8,\)\); call .clone\(\) first"),
        # what a library that knows no read-only memory asks for
        (lambda: minigrad.ones(1, 3).expand(2, 3).__dlpack__(), BufferError, r"readonly.*; call .clone\(\) first"),
        (lambda: minigrad.from_dlpack(np.ones(2, np.complex64)), TypeError, "Tensor: element type is complex64"),
        (lambda: minigrad.from_dlpack([1.0]), TypeError, "from_dlpack: source is a list"),
    ):
        with pytest.raises(error, match=words):
            call()


def test_arrays_on_a_gpu():
    with gpus():
        there = Tensor(np.arange(6.0).reshape(2, 3)).to("cuda")
        taken = minigrad.from_dlpack(there.array)
        assert taken.device == "cuda:0" and taken.array.data.ptr == there.array.data.ptr
        assert there.__dlpack_device__() == (2, 0)
        device.fill(there.array, 5)
        assert (taken.cpu().numpy() == 5).all()
