"""What pyproject.toml asks for."""

import tomllib
from pathlib import Path

import pytest

EXTRAS = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]["optional-dependencies"]


@pytest.mark.parametrize("cuda", [12, 13])
def test_cupy_brings_the_headers_of_cuda_for_its_own_kernels(cuda):
    """With a driver alone, CuPy's first sum of two arrays would end in "Failed to find CUDA headers"."""
    assert any(wanted.startswith(f"cupy-cuda{cuda}x[ctk]>=14") for wanted in EXTRAS[f"cuda{cuda}"])
    assert any(wanted.startswith(f"nvidia-nccl-cu{cuda}>=") for wanted in EXTRAS[f"cuda{cuda}"])
