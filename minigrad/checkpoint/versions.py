"""The versions of what a result depends on."""

import contextlib
import functools
import platform
from importlib import metadata

__all__ = ["versions"]

PACKAGES = "numpy numba llvmlite safetensors matplotlib tqdm pooch".split()
PACKAGES += "cupy-cuda13x cupy-cuda12x cupy numba-cuda mpi4py mpich tensorboardX".split()


@functools.cache
def _found():
    from .. import __version__  # not above: the package imports this while it is being made

    found = {"minigrad": __version__, "python": platform.python_version()}
    for package in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def versions():
    """{name: version} of minigrad, of Python and of those packages that are installed."""
    return dict(_found())
