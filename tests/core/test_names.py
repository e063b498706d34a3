"""PyTorch's names for what is made and drawn, devices, element types, and modes, where no table of ops has them."""

import numpy as np
import pytest

import minigrad
from minigrad import Tensor


def test_multinomial_draws_in_proportion():
    weights = minigrad.tensor([[0.0, 1.0, 3.0, 0.0], [2.0, 2.0, 0.0, 4.0]])
    draw = lambda *how: minigrad.multinomial(weights, *how, generator=minigrad.Generator().manual_seed(5)).numpy()
    many = draw(10000, True)
    assert (many == draw(10000, True)).all() and many.dtype == np.int64
    shares = [np.bincount(row, minlength=4) / 10000 for row in many]
    np.testing.assert_allclose(shares, weights.numpy() / weights.numpy().sum(1, keepdims=True), atol=0.02)
    assert sorted(draw(2)[0]) == [1, 2] and 0 not in shares[0][1:3] and not shares[0][0]
    for wrong, words in (([1.0, -1.0], "finite weights"), ([0.0, 0.0], "not all 0"), ([1.0, 0.0], "1 weights above 0")):
        with pytest.raises(ValueError, match=words):
            minigrad.multinomial(Tensor(wrong), 2)
    with pytest.raises(ValueError, match="num_samples is 0"):
        draw(0)


def test_numbers_from_normal_distributions():
    mean, source = minigrad.tensor([[0.0, 100.0]]), minigrad.Generator().manual_seed(1)
    drawn = minigrad.normal(mean.expand(2000, 2), minigrad.tensor([1.0, 5.0]), generator=source).numpy()
    assert np.abs(drawn.mean(0) - [0, 100]).max() < 0.6 and np.abs(drawn.std(0) / [1, 5] - 1).max() < 0.1
    assert minigrad.normal(2.0, 0.0, (2, 3), requires_grad=True).tolist() == [[2.0] * 3] * 2
    with pytest.raises(TypeError, match="size is missing"):
        minigrad.normal(0.0, 1.0)


def test_types_and_devices_have_names():
    x = minigrad.FloatTensor([[1, 2]])
    assert minigrad.LongTensor(2, 3).shape == (2, 3) and x.dtype == minigrad.float and x.nelement() == 2
    assert x.type(minigrad.DoubleTensor).dtype == minigrad.double == x.type(minigrad.double).dtype
    assert (x.device.type, x.device.index, minigrad.device("cuda", 1).index) == ("cpu", None, 1)
    assert minigrad.device(2) == "cuda:2" and x.to(minigrad.device("interpreter")).device.type == "interpreter"
    with pytest.raises(TypeError, match="device: device is 'gpu'"):
        minigrad.device("gpu")
    array = np.ones(2, np.float32)
    assert minigrad.from_numpy(array).array is array
    assert minigrad.randint(3, size=(50,)).amax() < 3 and minigrad.randint(1, 3, (50,)).amin() == 1


def test_numpy_names_the_dimensions_too():
    x = minigrad.rand(2, 3)
    assert minigrad.allclose(x.sum(axis=1, keepdims=True), x.sum(1, True)) and x.argmax(axis=0).shape == (3,)
    assert [one.shape for one in minigrad.std_mean(x, 0)] == [(3,)] * 2
    assert minigrad.allclose(minigrad.var_mean(x)[0], x.var())


def test_gradients_are_switched_from_a_call_on():
    x = Tensor([1.0], requires_grad=True)
    before = minigrad.set_grad_enabled(False)
    assert not (x * 2).requires_grad
    with minigrad.set_grad_enabled(True):
        assert (x * 2).requires_grad
    assert not minigrad.is_grad_enabled()
    before.__exit__()
    assert minigrad.is_grad_enabled()
    with minigrad.inference_mode(), minigrad.autocast("cpu"):
        assert not (x * 2).requires_grad and (x[None] @ x[None].T).dtype == minigrad.bfloat16
