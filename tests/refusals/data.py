"""What data sets, loaders and transforms refuse."""

import tempfile
from functools import partial
from pathlib import Path

import numpy as np

from minigrad import data
from minigrad.data import Compose, Dataset, Flip, Loader, Normalize, PadCrop
from minigrad.parallel import ShardSampler

IMAGES, LABELS = np.zeros((6, 1, 4, 4), np.uint8), np.arange(6) % 3
RANDOM = np.random.default_rng(0)
FLOATS = np.zeros((2, 3, 4, 4), np.float32)


def dataset():
    return Dataset(IMAGES, LABELS, tuple("abc"))


def wrong(array, at, value):
    changed = array.copy()
    changed[at] = value
    return changed


SETS = [
    (
        "floats",
        (IMAGES / 255, LABELS, "abc"),
        TypeError,
        r"images are float64, wanted uint8, pixels 0..255: \(255 \* x\)",
    ),
    ("flat", (IMAGES.reshape(6, 16), LABELS, "abc"), ValueError, r"images have shape \(6, 16\), wanted \(N, C, H, W\)"),
    ("no pixels", (IMAGES[:, :, :0], LABELS, "abc"), ValueError, r"images have shape \(6, 1, 0, 4\), wanted \(N, C, H"),
    ("text", ("images", LABELS, "abc"), TypeError, r"images are <U6, wanted uint8"),
    (
        "one-hot",
        (IMAGES, np.eye(6), "abc"),
        TypeError,
        r"labels are float64, wanted integers \(the number of the class\)",
    ),
    ("few labels", (IMAGES, LABELS[:5], "abc"), ValueError, r"labels have shape \(5,\), wanted \(6,\) for 6 images"),
    ("columns", (IMAGES, LABELS[:, None], "abc"), ValueError, r"labels have shape \(6, 1\), wanted \(6,\)"),
    ("label 3", (IMAGES, wrong(LABELS, 4, 3), "abc"), ValueError, r"labels\[4\] = 3, but there are 3 classes \(0..2\)"),
    ("label -1", (IMAGES, wrong(LABELS, 1, -1), "abc"), ValueError, r"labels\[1\] = -1, but there are 3 classes"),
    ("mean", (IMAGES, LABELS, "abc", "", "", (0.1, 0.2)), ValueError, r"mean has 2 numbers, wanted 1, one a channel"),
    ("mean text", (IMAGES, LABELS, "abc", "", "", "half", (1,)), TypeError, r"mean is 'half', wanted a number"),
    (
        "std nan",
        (IMAGES, LABELS, "abc", "", "", (0,), (np.nan,)),
        ValueError,
        r"std is \(nan,\), wanted finite numbers",
    ),
]

PICKED = [
    ("split all", dataset().split, (1.0, 0), ValueError, r"split: fraction 1.0 of 6 images leaves one part empty"),
    ("split nan", dataset().split, (float("nan"), 0), ValueError, r"split: fraction nan of 6 images leaves one part"),
    ("split seed", dataset().split, (0.5, -1), ValueError, r"split: seed is -1, wanted at least 0"),
    ("split float seed", dataset().split, (0.5, 1.5), TypeError, r"split: seed is 1.5, wanted an integer"),
]

LOADERS = [
    ({"dataset": IMAGES}, TypeError, r"dataset is a ndarray, wanted a minigrad.data.Dataset"),
    ({"dataset": dataset().subset([])}, ValueError, r"batch_size is 2, but the dataset has 0 images"),
    ({"batch_size": 0}, ValueError, r"batch_size is 0, wanted at least 1"),
    ({"batch_size": 7}, ValueError, r"batch_size is 7, but the dataset has 6 images"),
    ({"batch_size": 2.0}, TypeError, r"batch_size is 2.0, wanted an integer"),
    ({"batch_size": True}, TypeError, r"batch_size is True, wanted an integer"),
    ({"seed": -1}, ValueError, r"seed is -1, wanted at least 0"),
    ({"seed": None}, TypeError, r"seed is None, wanted an integer"),
    ({"transform": "flip"}, TypeError, r"transform is a str, wanted a function"),
    ({"prefetch": -1}, ValueError, r"prefetch is -1, wanted at least 0"),
    ({"device": "gpu"}, TypeError, r"Loader: device is 'gpu', wanted 'cpu', 'cuda', 'cuda:0'"),
]

CHANGES = [
    ("no dict", None, ValueError, r"state is None, wanted a dict of seed, epoch, position"),
    ("a field more", {"extra": 1}, ValueError, r"wanted a dict of seed, epoch, position"),
    ("position", {"position": 9}, ValueError, r"position is 9, an epoch has 3 batches"),
    ("epoch", {"epoch": -1}, ValueError, r"epoch is -1, wanted at least 0"),
    ("seed", {"seed": "0"}, TypeError, r"seed is '0', wanted an integer"),
    (
        "batch size",
        {"position": 1, "batch_size": 3},
        RuntimeError,
        r"batch_size was 3, wanted 2 to go on in the epoch",
    ),
    (
        "images",
        {"position": 1, "images": 60},
        RuntimeError,
        r"images was 60, wanted 6 to go on in the epoch",
    ),
]

TRANSFORMS = [
    ("fewer images", lambda images, generator: images[1:], ValueError, r"transform returned 1 images, wanted 2"),
    (
        "a list",
        lambda images, generator: images.tolist(),
        TypeError,
        r"transform: images are list, wanted a NumPy array",
    ),
    (
        "integers",
        lambda images, generator: images.astype(int),
        TypeError,
        r"transform: images are int64, wanted a NumPy",
    ),
    ("flat", lambda images, generator: images.reshape(2, 16), ValueError, r"transform: images have shape \(2, 16\)"),
    ("channels", Normalize((0, 0, 0), (1, 1, 1)), ValueError, r"Normalize: images have 1 channels .* mean has 3"),
]

OTHERS = [
    ("Normalize: lengths", partial(Normalize, (0, 0), (1,)), ValueError, r"Normalize: std has 1 numbers, wanted 2, on"),
    ("Normalize: std 0", partial(Normalize, (0,), (0,)), ValueError, r"Normalize: std is \(0.0,\), wanted numbers a"),
    ("Normalize: nan", partial(Normalize, (float("nan"),), (1,)), ValueError, r"mean is \(nan,\), wanted finite numb"),
    ("Normalize: text", partial(Normalize, "zero", 1), TypeError, r"Normalize: mean is 'zero', wanted a number"),
    ("Normalize: integers", partial(Normalize((0,), (1,)), LABELS), TypeError, r"Normalize: images are int64, wanted"),
    ("PadCrop: padding", partial(PadCrop, -1), ValueError, r"PadCrop: padding is -1, wanted at least 0"),
    ("PadCrop: half", partial(PadCrop, 1.5), TypeError, r"PadCrop: padding is 1.5, wanted an integer"),
    ("PadCrop: mode", partial(PadCrop, 1, "wrap"), ValueError, r"PadCrop: mode is 'wrap', wanted 'constant' or 'edge'"),
    ("PadCrop: shape", partial(PadCrop(1), FLOATS[0], RANDOM), ValueError, r"PadCrop: images have shape \(3, 4, 4\)"),
    ("Flip: p", partial(Flip, 1.5), ValueError, r"Flip: p is 1.5, wanted a number from 0 to 1"),
    ("Flip: nan", partial(Flip, float("nan")), ValueError, r"Flip: p is nan, wanted a number from 0"),
    ("Compose: number", partial(Compose, [Flip(), 3]), TypeError, r"Compose: a transform is a int, wanted a function"),
    ("digits: split", partial(data.digits, "test"), ValueError, r"digits: split is 'test', wanted 'random' or 'writer"),
    ("digits: size", partial(data.digits, size=7), ValueError, r"digits: size is 7, wanted at least 8"),
    ("digits: half a pixel", partial(data.digits, size=8.5), TypeError, r"digits: size is 8.5, wanted an integer"),
    ("available: name", partial(data.available, "svhn"), ValueError, r"available: name is 'svhn', wanted 'digits' or "),
    ("read_idx: absent", partial(data.read_idx, "nowhere.idx"), ValueError, r"read_idx: nowhere.idx: No such file"),
    ("read_cifar10: folder", partial(data.read_cifar10, "."), ValueError, r"read_cifar10: \.: Is a directory"),
]  # fmt: skip

FILES = {
    "empty": (b"", r"is truncated: 4 of the next 4 bytes are missing"),
    "a picture": (b"\x89PNG\r\n\x1a\n", r"starts with 0x89504e47, wanted 0x000008"),
    "a type": (b"\0\0\x07\x01\0\0\0\x01\0", r"starts with 0x00000701, wanted 0x000008"),
    "no dimensions": (b"\0\0\x08\0", r"starts with 0x00000800, wanted 0x000008 .bytes. and the number"),
    "no elements": (b"\0\0\x08\x01\0\0\0\0", r"shape \(0,\) takes 0 bytes, wanted 1 to"),
    "too large": (b"\0\0\x08\x02\x7f\xff\xff\xff\x7f\xff\xff\xff", r"takes \d+ bytes, wanted 1 to 268435456"),
    "truncated": (b"\0\0\x08\x01\0\0\0\x05abc", r"is truncated: 2 of the next 5 bytes are missing"),
    "longer": (b"\0\0\x08\x01\0\0\0\x01ab", r"goes on after the 1 bytes of its shape \(1,\)"),
    "damaged": (b"\x1f\x8bno gzip file at all", r"damaged: "),
}


def read(content, name):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        return data.read_idx(path)


def loader(**options):
    return Loader(**{"dataset": dataset(), "batch_size": 2} | options)


def rows():
    for name, args, error, pattern in SETS:
        yield f"Dataset: {name}", partial(Dataset, *args), error, f"Dataset: {pattern}"
    for name, function, args, error, pattern in PICKED:
        yield f"Dataset: picked, {name}", partial(function, *args), error, pattern
    for i, (options, error, pattern) in enumerate(LOADERS):
        yield f"Loader: {i} {next(iter(options))}", partial(loader, **options), error, pattern
    for name, changes, error, pattern in CHANGES:
        own = loader(shuffle=True)
        state = changes if changes is None else own.state_dict() | changes
        yield f"Loader: load_state_dict, {name}", partial(own.load_state_dict, state), error, pattern
    for name, transform, error, pattern in TRANSFORMS:
        yield f"Loader: transform, {name}", partial(list, loader(transform=transform, prefetch=0)), error, pattern
    yield "ShardSampler: shards", partial(ShardSampler, 3, 0, 2), ValueError, r"shards is 3, wanted a multiple of the 2"
    yield "ShardSampler: rank", partial(ShardSampler, 2, 2, 2), ValueError, r"rank is 2, wanted one from 0 to 1"
    yield "ShardSampler: none", partial(ShardSampler, 0), ValueError, r"shards is 0, wanted a multiple of the 1 ranks"
    yield "ShardSampler: text", partial(ShardSampler, "2"), TypeError, r"shards is '2', wanted an integer"
    yield from OTHERS
    for name, (content, pattern) in FILES.items():
        yield f"read_idx: {name}", partial(read, content, name.replace(" ", "-")), ValueError, pattern


REFUSALS = list(rows())
