"""DLPack with NumPy and with CuPy, for which the stand-in stands: memory is shared, never copied."""

import gc
import weakref

import numpy as np
import pytest

import minigrad
from minigrad import Tensor, device

from .stand_in_gpus import gpus


class Source:
    """An array of another library, which sees when it is let go."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool"])
def test_types_shapes_and_strides_stay(dtype):
    whole = (np.arange(120) % 2).astype(dtype).reshape(2, 3, 4, 5)
    for array in (
        whole,
        whole.transpose(0, 3, 1, 2),
        whole[:, ::2, 1:],
        whole[0, 0, 0, 0, None].reshape(()),
        whole[:0],
    ):
        taken = minigrad.from_dlpack(array)
        given = np.from_dlpack(taken)
        for other in (taken.array, given):
            assert (other.dtype, other.shape) == (array.dtype, array.shape)
            assert not array.size or (other.strides == array.strides and np.shares_memory(other, array))
        np.testing.assert_array_equal(given, array)


def test_images_that_lie_channels_last_leave_so():
    images = minigrad.nn.Conv2d(3, 4, 3)(minigrad.rand(2, 3, 6, 6)).detach()
    assert images.array.strides == np.from_dlpack(images).strides and images.array.strides[1] == 4


def test_memory_lives_as_long_as_either():
    tensor = minigrad.full((100, 100), 7.0)
    array = np.from_dlpack(tensor)
    del tensor
    others = [minigrad.full((100, 100), 1.0) for _ in range(4)]
    assert (array == 7).all() and all((other.array == 1).all() for other in others)
    base = np.full((100, 100), 3.0)
    source = Source(base)
    gone = weakref.ref(source)
    tensor = minigrad.from_dlpack(source)
    del source, base
    gc.collect()
    assert gone() is None and (tensor.numpy() == 3).all()


def test_what_is_read_only_stays_so():
    array = np.ones(3)
    array.flags.writeable = False
    taken = minigrad.from_dlpack(array)
    assert not taken.array.flags.writeable and not np.from_dlpack(taken).flags.writeable


def test_what_cannot_be_shared_is_refused():
    with pytest.raises(BufferError, match="requires a gradient.*call .detach"):
        np.from_dlpack(minigrad.ones(2, requires_grad=True))
    with pytest.raises(RuntimeError, match="requires a gradient"):
        minigrad.from_dlpack(minigrad.ones(2, requires_grad=True))
    backwards = Tensor(np.arange(5.0)[::-1])
    with pytest.raises(BufferError, match=r"lies backwards \(strides \(-8,\)\); call .clone\(\) first"):
        np.from_dlpack(backwards)
    np.testing.assert_array_equal(np.from_dlpack(backwards.clone()), [4, 3, 2, 1, 0])
    for dtype in ("float16", "float32"):  # what a library that knows no read-only memory asks for
        with pytest.raises(BufferError, match=r"dlpack: .*readonly.*; call .clone\(\) first"):
            minigrad.ones(1, 3).to(dtype).expand(2, 3).__dlpack__()
    with pytest.raises(TypeError, match="Tensor: element type is complex64"):
        minigrad.from_dlpack(np.ones(2, np.complex64))
    with pytest.raises(TypeError, match="from_dlpack: source is a list"):
        minigrad.from_dlpack([1.0])


def test_an_array_that_its_library_keeps_for_itself():
    class Kept(Source):
        def __dlpack__(self, **options):
            raise BufferError("it is kept")

    with pytest.raises(BufferError, match="the Kept does not share its memory: it is kept"):
        minigrad.from_dlpack(Kept(np.ones(2)))


def test_arrays_on_a_gpu():
    with gpus():
        there = Tensor(np.arange(6.0).reshape(2, 3)).to("cuda")
        taken = minigrad.from_dlpack(there.array)
        assert taken.device == "cuda:0" and taken.array.data.ptr == there.array.data.ptr
        assert there.__dlpack_device__() == (2, 0)
        device.fill(there.array, 5)
        assert (taken.cpu().numpy() == 5).all()
        with pytest.raises(BufferError, match="requires a gradient"):
            minigrad.ones(2, device="cuda", requires_grad=True).__dlpack__()
