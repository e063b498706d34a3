"""Where the files of a published data set are found, and how they are fetched and trusted.

The folders looked through, in order: the caller's data_dir, the one named by the environment variable
MINIGRAD_DATA, and the cache of the operating system; each also has a subfolder named after the data set. The
first that holds all files is used. The two that the user names may hold other files than the published ones,
say fewer records; in the cache only the published ones are accepted.
"""

import contextlib
import os
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

from .formats import DataError

__all__ = ["CIFAR10", "MNIST", "Published", "find", "obtain"]

ENVIRONMENT = "MINIGRAD_DATA"
TIMEOUT = 30  # seconds without an answer before the next mirror is tried


@dataclass(frozen=True)
class Published:
    """mirrors: addresses of a folder that holds the files; files: {name: sha256}"""

    name: str
    title: str
    mirrors: tuple[str, ...]
    files: dict[str, str]


MNIST = Published(
    name="mnist",
    title="MNIST (LeCun, Cortes and Burges; CC BY-SA 3.0)",
    mirrors=(
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    ),
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
    for folder, _ in _folders(published, data_dir):
        if all((folder / name).is_file() for name in published.files):
            return folder
    return None


def obtain(published, data_dir, download):
    """The folder that holds the data set, and a sentence on where its files come from.

    What is not found is downloaded into the subfolder of data_dir, of MINIGRAD_DATA, or of the cache,
    whichever of the three comes first. Errors: DataError if files are absent and cannot be had, or not to be
    trusted.
    """
    folder = find(published, data_dir)
    if folder is None:
        folder = _bases(data_dir)[0][0] / published.name
        for name in published.files:
            if not (folder / name).is_file():
                _download(published, name, folder, download)
    others = [name for name, sha in published.files.items() if _pooch().file_hash(folder / name) != sha]
    source = f"{published.title}, from {folder}"
    if not others:
        return folder, source
    if not dict(_folders(published, data_dir))[folder]:
        raise DataError(
            f"{published.name}: {folder / others[0]} is not the published file "
            f"(sha256 {published.files[others[0]]}); delete it to have it downloaded again"
        )
    return folder, f"{source}; not the published file: {', '.join(others)}"


def _pooch():
    """pooch, imported when asked for, because that takes as long as all the rest of this package."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # in Jupyter without ipywidgets its tqdm would warn that bars are plain text
        import pooch
    return pooch


def _bases(data_dir):
    """(folder, whether the user chose it), first choice first."""
    chosen = [data_dir, os.environ.get(ENVIRONMENT)]
    bases = [(Path(folder).expanduser(), True) for folder in chosen if folder]
    return [*bases, (Path(_pooch().os_cache("minigrad")), False)]


def _folders(published, data_dir):
    return [(folder, chosen) for base, chosen in _bases(data_dir) for folder in (base, base / published.name)]


def _download(published, name, folder, download):
    pooch = _pooch()
    reason, absent = "download is off", not folder.exists()
    fetch = pooch.HTTPDownloader(progressbar=sys.stderr.isatty(), timeout=TIMEOUT)
    for mirror in published.mirrors if download else ():
        try:
            pooch.retrieve(mirror + name, f"sha256:{published.files[name]}", name, folder, downloader=fetch)
            return
        except (OSError, ValueError) as error:  # no network, page or room; or another sha256 than published
            reason = f"{mirror}: {' '.join(str(error).split())[:200]}"
    if absent:
        with contextlib.suppress(OSError):  # another process may have put something into it
            folder.rmdir()
    raise DataError(
        f"{published.name}: {name} is not there ({reason}); put it into {folder}, or name another folder by "
        f"--data-dir or {ENVIRONMENT}, or use --data digits"
    )
