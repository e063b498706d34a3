"""New Tensors."""

import numpy as np

import minigrad
from minigrad import Tensor


def test_filled_and_alike():
    assert minigrad.zeros(2, 3).tolist() == [[0.0] * 3] * 2 and minigrad.zeros((2,)).dtype == np.float32
    assert minigrad.ones(2, dtype="float64").dtype == np.float64 and minigrad.ones(2, requires_grad=True).requires_grad
    assert minigrad.zeros(0, 3).shape == (0, 3) and minigrad.full((), 2.0).item() == 2
    for value, dtype in ((True, "bool"), (3, "int64"), (3.0, "float32"), (np.float64(1), "float32")):
        assert minigrad.full((2,), value).dtype == dtype
    assert minigrad.zeros(np.int64(2), np.uint8(3)).shape == (2, 3) == minigrad.ones((np.int32(2), 3)).shape
    x = Tensor(np.ones((2, 3)))
    for make in (minigrad.zeros_like, minigrad.ones_like, minigrad.empty_like, minigrad.rand_like, minigrad.randn_like):
        assert make(x).shape == (2, 3) and make(x).dtype == np.float64 and not make(x).requires_grad
    for make in (x.new_zeros, x.new_ones, x.new_empty):
        assert make(4, 5).shape == make((4, 5)).shape == (4, 5) and make(4).dtype == np.float64
    assert x.new_full((2,), 3).tolist() == [3, 3] and x.new_full((2,), 3).dtype == np.float64
    assert x.new_tensor([1, 2]).dtype == np.float64 and x.new_tensor([1, 2], dtype="int32").dtype == np.int32
    assert x.new_zeros(2, requires_grad=True).requires_grad and Tensor([1, 2]).type_as(x).dtype == np.float64
    assert minigrad.full_like(x, 7, dtype="int64").tolist() == [[7] * 3] * 2


def test_ranges_and_identities():
    assert minigrad.eye(2, 3).tolist() == np.eye(2, 3).tolist() and minigrad.eye(0).shape == (0, 0)
    np.testing.assert_allclose(minigrad.linspace(-1, 2, 7).array, np.linspace(-1, 2, 7), rtol=1e-6)
    assert minigrad.linspace(0, 1, 1).tolist() == [0.0]
    for arguments in ((5,), (1, 5), (0, 5, 2), (5, 0, -2), (0, 1, 0.25), (0.5, 2), (3, 3), (np.int64(3),)):
        x = minigrad.arange(*arguments)
        np.testing.assert_allclose(x.array, np.arange(*arguments), rtol=1e-6)
        assert x.dtype == ("float32" if any(isinstance(a, float) for a in arguments) else "int64")


def test_tensor_copies():
    array = np.arange(3.0)
    x = minigrad.tensor(array)
    array[0] = 7
    assert x.tolist() == [0, 1, 2] and x.dtype == np.float64
    assert minigrad.tensor([1.5]).dtype == np.float32 and minigrad.tensor(3).dtype == np.int64
    y = minigrad.tensor(x, dtype="float32", requires_grad=True)
    assert y.dtype == np.float32 and y.requires_grad and not np.shares_memory(x.array, y.array)


def test_draws_follow_the_seed_and_half_precision_is_drawn_in_single():
    for draw in (minigrad.rand, minigrad.randn):
        first, other = minigrad.manual_seed(3) and draw(50), draw(50)
        assert minigrad.manual_seed(np.int64(3)) and draw(50).tolist() == first.tolist() != other.tolist()
        half = minigrad.manual_seed(3) and draw(50, dtype="float16")
        np.testing.assert_array_equal(half.array, first.array.astype(np.float16))
    for dtype in ("float32", "float16"):  # where numbers just below 1 are not rounded up
        x = minigrad.rand(100_000, dtype=dtype)
        assert 0 <= x.min().item() and x.max().item() < 1
    draws = minigrad.randint(-1, 3, (1000,))
    assert draws.dtype == np.int64 and set(draws.tolist()) == {-1, 0, 1, 2}
    assert set(minigrad.randint(2, (100,)).tolist()) == {0, 1}
    assert sorted(minigrad.randperm(50).tolist()) == list(range(50)) != minigrad.randperm(50).tolist()


def test_generator_state_repeats_draws_and_keys():
    generator, other = minigrad.device.Generator(5), minigrad.device.Generator(1)
    generator.numpy.random(7, np.float32)
    generator.next_key()
    other.set_state(generator.get_state())
    draws = [(one.numpy.random(5).tolist(), one.next_key()) for one in (generator, other)]
    assert draws[0] == draws[1]
