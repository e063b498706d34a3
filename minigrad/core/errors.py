"""The errors of minigrad; see minigrad_kernels.errors."""

from minigrad_kernels.errors import *  # noqa: F403
