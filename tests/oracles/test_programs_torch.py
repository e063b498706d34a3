"""Programs typed as they are in courses and repositories, word for word, with PyTorch and with minigrad in its place.

python -m tests.oracles.test_programs_torch prints which of them run, and what the others want.

Both get the same random numbers: weights when an optimiser is made, data from NumPy, and samples in order.
"""

import contextlib
import itertools
import runpy
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

import minigrad
import minigrad.autograd
import minigrad.utils.data

torch = pytest.importorskip("torch")

FOLDER = Path(__file__).parent / "programs"
PROGRAMS = sorted(path.stem for path in FOLDER.glob("*.py"))


@contextlib.contextmanager
def alike(library):
    """The library draws numbers that depend on nothing but how many were drawn before."""
    rng = np.random.default_rng(0)
    made = lambda array, named: library.tensor(
        array, dtype=named.get("dtype", array_type(array)), requires_grad=named.get("requires_grad", False)
    )
    array_type = lambda array: library.int64 if array.dtype.kind == "i" else library.float32
    shape_of = lambda shape: tuple(shape[0]) if shape and not isinstance(shape[0], int) else tuple(shape)

    def randint(low, high=None, size=None, **named):
        low, high, size = (low, high, size) if size is not None and high is not None else (0, low, size or high)
        return made(rng.integers(low, high, tuple(size)), named)

    def in_order(whole, lengths):
        ends = itertools.accumulate(lengths, initial=0)
        return [data.Subset(whole, list(range(*pair))) for pair in itertools.pairwise(ends)]

    def started(optimizer, *args, **kwargs):
        init(optimizer, *args, **kwargs)
        for group in optimizer.param_groups:
            for p in group["params"]:
                p.data = library.tensor(
                    rng.standard_normal(tuple(p.shape)) / max(1, p[0].numel()) ** 0.5, dtype=p.dtype
                )

    init, data = library.optim.Optimizer.__init__, library.utils.data
    names = {
        "randn": lambda *shape, **named: made(rng.standard_normal(shape_of(shape)), named),
        "rand": lambda *shape, **named: made(rng.random(shape_of(shape)), named),
        "randn_like": lambda x: made(rng.standard_normal(tuple(x.shape)), {"dtype": x.dtype}),
        "normal": lambda mean, std, size, **named: made(mean + std * rng.standard_normal(tuple(size)), named),
        "randint": randint,
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, function in names.items():
            patch.setattr(library, name, function)
        patch.setattr(library.optim.Optimizer, "__init__", started)
        for sampler in (data.RandomSampler, data.SubsetRandomSampler):
            source = "indices" if library is torch and sampler is data.SubsetRandomSampler else "data_source"
            order = lambda self, s=source: iter(
                getattr(self, s) if isinstance(getattr(self, s), list) else range(len(self))
            )
            patch.setattr(sampler, "__iter__", order)
        patch.setattr(data, "random_split", in_order)
        if library is minigrad:
            for name in [name for name in sys.modules if name.partition(".")[0] == "torch"]:
                patch.delitem(sys.modules, name)
            for name, module in modules().items():
                patch.setitem(sys.modules, name, module)
        yield


def modules():
    """minigrad under the names of PyTorch's modules."""
    parts = {name: sys.modules[name] for name in list(sys.modules) if name.partition(".")[0] == "minigrad"}
    parts |= {"minigrad.backends.cudnn": minigrad.backends.cudnn}
    return {name.replace("minigrad", "torch", 1): module for name, module in parts.items()}


def run(name, library):
    with alike(library):
        return [float(number) for number in runpy.run_path(str(FOLDER / f"{name}.py"))["result"]]


@pytest.mark.filterwarnings("ignore")  # PyTorch tells that some of them are old
@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # where programs keep their files
    compare(name)


def compare(name):
    np.testing.assert_allclose(run(name, minigrad), run(name, torch), rtol=2e-4, atol=1e-5)


def main():
    wants = {}
    for name in PROGRAMS:
        try:
            compare(name)
        except Exception as error:
            wants[name] = f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
        print(f"{name:24} {wants.get(name, 'as it is')}", flush=True)
    print(f"{len(PROGRAMS) - len(wants)} of {len(PROGRAMS)} run word for word")


if __name__ == "__main__":
    main()
