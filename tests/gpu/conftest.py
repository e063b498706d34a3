"""The parts that need a GPU, imported with the stand-in for CuPy."""

import importlib

import pytest

from tests.device.stand_in_gpus import gpus

from . import main


@pytest.fixture
def part(monkeypatch):
    """Imports a file of parts anew, on one GPU of the stand-in, and gives other values to some of its names."""

    def get(name, **values):
        found = importlib.import_module(f"tests.gpu.{name}")
        for key, value in values.items():
            monkeypatch.setattr(found, key, value)
        return found

    with gpus(1, forget=[f"tests.gpu.{name}" for name in ("timing", *main.PARTS, *main.FILES.values())]):
        yield get


@pytest.fixture
def ran(part):
    """What a part finds, with other values for some of the names in its file."""

    def run(name, **values):
        found = {}
        getattr(part(main.FILES.get(name, name), **values), name)(found)
        return found

    return run
