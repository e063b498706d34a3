"""Where the files of a published data set are found, and how they are fetched and trusted.

They lie in the caller's data_dir, else in the folder named by the environment variable MINIGRAD_DATA, else in the cache
of the operating system, or there in a subfolder named after the data set. A folder that the user names may hold other
files than the published ones, say fewer records; a file in the cache that is not the published one is downloaded again.
"""

import os
import sys
import warnings
from pathlib import Path
from typing import NamedTuple

from .formats import DataError

ENVIRONMENT = "MINIGRAD_DATA"
TIMEOUT = 30  # seconds without an answer before the next mirror is tried


class Published(NamedTuple):
    """mirrors: addresses of a folder that holds the files; files: {name: sha256}"""

    name: str
    title: str
    mirrors: tuple[str, ...]
    files: dict[str, str]


MNIST = Published(
    name="mnist",
    title="MNIST (LeCun, Cortes and Burges; CC BY-SA 3.0)",
    mirrors=("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
    files={
        "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    },
)

CIFAR10 = Published(
    name="cifar10",
    title="CIFAR-10 (Krizhevsky 2009)",
    mirrors=("https://www.cs.toronto.edu/~kriz/",),
    files={"cifar-10-binary.tar.gz": "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"},
)


def find(published, data_dir=None):
    """The folder that holds all files of the data set, or None. Touches no network and opens no file."""
    base, _ = _base(data_dir)
    for folder in (base, base / published.name):
        if all((folder / name).is_file() for name in published.files):
            return folder
    return None


def obtain(published, data_dir, download):
    """The folder that holds the data set, and a sentence on where its files come from.

    What is not there is downloaded into the subfolder. Errors: DataError if files cannot be had.
    """
    base, chosen = _base(data_dir)
    folder = find(published, data_dir) or base / published.name
    there = lambda name: (folder / name).is_file()
    found = {name: _pooch().file_hash(folder / name) for name in filter(there, published.files)}
    others = [name for name, sha in found.items() if sha != published.files[name]]
    for name in published.files:
        if name not in found or name in others and not chosen:
            _fetch(published, name, folder, download)
    note = f"; not the published file: {', '.join(others)}" if others and chosen else ""
    return folder, f"{published.title}, from {folder}{note}"


def _pooch():
    """pooch, imported when asked for, because that takes as long as all the rest of this package."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # in Jupyter without ipywidgets its tqdm would warn that bars are plain text
        import pooch
    return pooch


def _base(data_dir):
    """(where data sets lie, whether the user chose that)."""
    chosen = data_dir or os.environ.get(ENVIRONMENT)
    return Path(chosen or _pooch().os_cache("minigrad")).expanduser(), bool(chosen)


def _fetch(published, name, folder, download):
    """Have pooch download a file, and compare its hash, from the first mirror that has it."""
    pooch, reason = _pooch(), "download is off"
    fetch = pooch.HTTPDownloader(progressbar=sys.stderr.isatty(), timeout=TIMEOUT)
    for mirror in published.mirrors if download else ():
        try:
            pooch.retrieve(mirror + name, f"sha256:{published.files[name]}", name, folder, downloader=fetch)
            return
        except (OSError, ValueError) as error:  # no network, page or room; or another sha256 than published
            reason = f"{mirror}: {' '.join(str(error).split()[:40])}"
    hint = f"put it there, name its folder (data_dir, --data-dir or {ENVIRONMENT}), or use data.digits(), --data digits"
    raise DataError(f"{published.name}: {folder / name} is not there, or not the published file ({reason}); {hint}")
