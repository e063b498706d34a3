"""The loader: what it delivers, in which order, and what it refuses."""

import numpy as np
import pytest

from minigrad.core.tensor import Tensor
from minigrad.data import Dataset, Loader, PadCrop
from minigrad_kernels.errors import KindError, ShapeError
from minigrad_kernels.layout import CHANNELS_LAST, is_dense
from tests.data.data_batches import AUGMENT, PREFETCH, arrays, assert_same_batches, labels_of, numbered

# What is delivered


@pytest.mark.parametrize("prefetch", PREFETCH)
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("batch_size", [1, 5, 22, 23])
def test_batches_in_order(batch_size, drop_last, prefetch):
    loader = Loader(numbered(), batch_size, drop_last=drop_last, prefetch=prefetch)
    batches = list(arrays(loader))
    assert len(batches) == len(loader) == (23 // batch_size if drop_last else -(-23 // batch_size))
    delivered = sum(labels_of(batches), [])
    assert delivered == list(range(23 // batch_size * batch_size if drop_last else 23))
    for images, labels in batches:
        assert images.dtype == np.float32 and labels.dtype == np.int64
        assert is_dense(images, CHANNELS_LAST) and images.shape == (len(labels), 2, 4, 5)
        want = loader.dataset.images[labels].astype(np.float32) / np.float32(255)
        np.testing.assert_array_equal(images, want)


def test_iteration_yields_tensors():
    loader, other = (Loader(numbered(), 5, shuffle=True, transform=AUGMENT) for _ in range(2))
    batches = list(loader)
    assert all(type(part) is Tensor and not part.requires_grad for batch in batches for part in batch)
    assert_same_batches([(x.array, y.array) for x, y in batches], arrays(other))
    assert loader.epoch == 1


@pytest.mark.parametrize("prefetch", PREFETCH)
def test_delivered_arrays_stay_as_they_are(prefetch):
    loader = Loader(numbered(), 4, shuffle=True, prefetch=prefetch)
    kept = [(images, labels, images.copy()) for images, labels in arrays(loader)]
    for images, labels, copy in kept:
        np.testing.assert_array_equal(images, copy)
        np.testing.assert_array_equal(np.rint(images[:, 0, 0, 0] * 255), labels)


# Order and randomness


def test_epochs_are_different_permutations():
    loader = Loader(numbered(), 5, shuffle=True, seed=7)
    epochs = [sum(labels_of(arrays(loader)), []) for _ in range(4)]
    assert all(sorted(epoch) == list(range(23)) for epoch in epochs)
    assert len(set(map(tuple, epochs))) == 4
    other = Loader(numbered(), 5, shuffle=True, seed=8)
    assert sum(labels_of(arrays(other)), []) != epochs[0]


def test_order_does_not_depend_on_batch_size_and_transform():
    one = Loader(numbered(), 1, shuffle=True, seed=3)
    six = Loader(numbered(), 6, shuffle=True, seed=3, transform=AUGMENT)
    assert sum(labels_of(arrays(one)), []) == sum(labels_of(arrays(six)), [])


def test_permutation_is_uniform_enough():
    dataset = numbered(5)
    loader = Loader(dataset, 5, shuffle=True, prefetch=0)
    order = np.array([labels_of(arrays(loader))[0] for _ in range(1000)])
    at_place = np.array([np.bincount(order[:, place], minlength=5) for place in range(5)])
    assert (np.abs(at_place - 200) < 5 * np.sqrt(160)).all()


def test_the_order_of_seed_0_is_fixed():
    loader = Loader(numbered(8), 8, shuffle=True, seed=0, prefetch=0)
    # Saves outlive versions: a NumPy that shuffles differently must be noticed.
    assert [labels_of(arrays(loader))[0] for _ in range(2)] == [
        [4, 1, 3, 6, 0, 5, 2, 7],
        [4, 0, 7, 3, 5, 2, 1, 6],
    ]


@pytest.mark.parametrize("prefetch", PREFETCH)
def test_bits_do_not_depend_on_prefetch(prefetch):
    plain = Loader(numbered(), 5, shuffle=True, seed=1, transform=AUGMENT, prefetch=0)
    ahead = Loader(numbered(), 5, shuffle=True, seed=1, transform=AUGMENT, prefetch=prefetch)
    for _ in range(3):
        assert_same_batches(arrays(ahead), arrays(plain))


def test_augmentation_depends_on_epoch_and_batch():
    images = np.repeat(np.random.default_rng(0).integers(0, 256, (1, 1, 8, 8), np.uint8), 40, 0)
    loader = Loader(Dataset(images, np.zeros(40, int), ("a",)), 20, transform=PadCrop(4))
    bits = [x.tobytes() for _ in range(2) for x, _ in arrays(loader)]
    assert len(set(bits)) == 4


# Refusals


REFUSED = {
    "no dataset": (KindError, "dataset is a ndarray", {"dataset": np.zeros(3)}),
    "empty dataset": (ShapeError, "batch_size is 5, but the dataset has 0 images", {"dataset": numbered().subset([])}),
    "batch_size 0": (ShapeError, "batch_size is 0, wanted at least 1", {"batch_size": 0}),
    "batch_size above len": (ShapeError, "batch_size is 24, but the dataset has 23", {"batch_size": 24}),
    "batch_size float": (KindError, "batch_size is 5.0", {"batch_size": 5.0}),
    "batch_size bool": (KindError, "batch_size is True", {"batch_size": True}),
    "seed negative": (ShapeError, "seed is -1", {"seed": -1}),
    "seed None": (KindError, "seed is None", {"seed": None}),
    "transform": (KindError, "transform is a int", {"transform": 3}),
    "prefetch negative": (ShapeError, "prefetch is -1", {"prefetch": -1}),
    "prefetch float": (KindError, "prefetch is 0.5", {"prefetch": 0.5}),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_arguments(case):
    error, message, arguments = REFUSED[case]
    with pytest.raises(error, match=f"^Loader: {message}"):
        Loader(**{"dataset": numbered(), "batch_size": 5} | arguments)


@pytest.mark.parametrize("prefetch", PREFETCH)
@pytest.mark.parametrize(
    ("transform", "error"),
    [
        (lambda x, g: x[1:], ShapeError),
        (lambda x, g: x[0], ShapeError),
        (lambda x, g: x.astype(int), KindError),
        (lambda x, g: None, KindError),
    ],
)
def test_a_transform_that_returns_no_batch(transform, error, prefetch):
    loader = Loader(numbered(), 5, transform=transform, prefetch=prefetch)
    with pytest.raises(error, match="^Loader: transform"):
        next(arrays(loader))


@pytest.mark.parametrize(
    ("transform", "want"),
    [
        (lambda x, g: x, lambda x: x.astype(np.float32) / np.float32(255)),
        (lambda x, g: x.astype(np.float64) / 3, lambda x: (x / 3).astype(np.float32)),
        (lambda x, g: np.ascontiguousarray(x, np.float32), lambda x: x.astype(np.float32)),
    ],
)
def test_what_transforms_return_becomes_float32_channels_last(transform, want):
    dataset = numbered()
    images, _ = next(arrays(Loader(dataset, 5, transform=transform)))
    np.testing.assert_array_equal(images, want(dataset.images[:5]))
    assert images.dtype == np.float32 and is_dense(images, CHANNELS_LAST)
