"""Dataset: its checks, its picks, its statistics."""

import numpy as np
import pytest

from minigrad.data import Dataset
from minigrad_kernels.errors import KindError, ShapeError
from minigrad_kernels.layout import CHANNELS_LAST, is_dense


def small(n=10, channels=3, classes="abc"):
    images = np.random.default_rng(0).integers(0, 256, (n, channels, 4, 5), np.uint8)
    return Dataset(images, np.arange(n) % len(classes), tuple(classes), "small")


def test_dataset_lies_channels_last_with_the_same_pixels():
    images = np.random.default_rng(0).integers(0, 256, (6, 3, 4, 5), np.uint8)
    dataset = Dataset(images, np.zeros(6, np.uint8), ("a",))
    np.testing.assert_array_equal(dataset.images, images)
    assert is_dense(dataset.images, CHANNELS_LAST)
    assert dataset.labels.dtype == np.int64
    assert np.shares_memory(Dataset(dataset.images, dataset.labels, ("a",)).images, dataset.images)


def test_dataset_picks_and_subsets():
    dataset = small()
    for indices in ([3, 1], np.array([3, 1]), slice(2, 4), np.arange(10) > 6, range(3), []):
        images, labels = dataset[indices]
        picked = np.arange(10)[indices]
        np.testing.assert_array_equal(labels, dataset.labels[picked])
        np.testing.assert_array_equal(images, dataset.images[picked])
        part = dataset.subset(indices)
        assert len(part) == np.size(picked) and part.mean == dataset.mean and part.name == "small"
    assert dataset[-1][1] == dataset.labels[-1]
    for indices in ([10], -11, [0.5], "a", (3, 1)):
        with pytest.raises(IndexError):
            dataset[indices]


def test_dataset_statistics():
    dataset = small(channels=2)
    scaled = dataset.images / 255
    np.testing.assert_allclose(dataset.mean, scaled.mean((0, 2, 3)), rtol=1e-13)
    np.testing.assert_allclose(dataset.std, scaled.std((0, 2, 3)), rtol=1e-13)
    given = Dataset(dataset.images, dataset.labels, "abc", mean=[0.5, 0.25])
    assert given.mean == (0.5, 0.25) and given.std == dataset.std


IMAGES = np.zeros((2, 1, 3, 3), np.uint8)
REFUSED = {
    "float images": (KindError, "images are float64", (IMAGES / 1, [0, 1], "ab")),
    "flat images": (ShapeError, "wanted \\(N, C, H, W\\)", (IMAGES[:, 0], [0, 1], "ab")),
    "no pixels": (ShapeError, "wanted \\(N, C, H, W\\)", (IMAGES[..., :0], [0, 1], "ab")),
    "float labels": (KindError, "labels are float64", (IMAGES, [0.0, 1.0], "ab")),
    "bool labels": (KindError, "labels are bool", (IMAGES, [False, True], "ab")),
    "one-hot labels": (ShapeError, "wanted \\(2,\\)", (IMAGES, np.eye(2, dtype=int), "ab")),
    "too few labels": (ShapeError, "labels have shape \\(1,\\)", (IMAGES, [0], "ab")),
    "label too big": (
        ShapeError,
        "labels\\[1\\] = 2, but there are 2 classes \\(0..1\\)",
        (IMAGES, [0, 2], "ab"),
    ),
    "label negative": (ShapeError, "labels\\[0\\] = -1", (IMAGES, [-1, 2], "ab")),
    "mean too long": (
        ShapeError,
        "mean has 2 numbers, wanted 1, one a channel",
        (IMAGES, [0, 1], "ab", "", "", [0, 0], [1]),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_dataset_refuses(case):
    error, message, arguments = REFUSED[case]
    with pytest.raises(error, match=message):
        Dataset(*arguments)


def test_split_is_a_seeded_partition():
    dataset = Dataset(np.arange(50, dtype=np.uint8).reshape(50, 1, 1, 1), np.zeros(50, int), ("a",))
    first, second = dataset.split(0.7, seed=3)
    values = [part.images.ravel() for part in (first, second)]
    assert [len(v) for v in values] == [35, 15]
    assert all((np.diff(v.astype(int)) > 0).all() for v in values)
    assert sorted(np.concatenate(values)) == list(range(50))
    again, other = dataset.split(0.7, seed=3)[0], dataset.split(0.7, seed=4)[0]
    np.testing.assert_array_equal(again.images, first.images)
    assert (other.images != first.images).any()


@pytest.mark.parametrize("fraction", [0, 1, -0.5, 1.5, float("nan"), 0.001, 0.999])
def test_split_refuses_an_empty_part(fraction):
    with pytest.raises(ShapeError, match="one part empty"):
        small().split(fraction, 0)


@pytest.mark.parametrize(
    ("fraction", "seed", "error"),
    [(0.5, "a", KindError), (0.5, 1.5, KindError), (0.5, -1, ShapeError)],
)
def test_split_refuses_kinds(fraction, seed, error):
    with pytest.raises(error, match="split: "):
        small().split(fraction, seed)
