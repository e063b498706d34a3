"""The stand-in for CuPy is as strict as CuPy: names, arguments, refusals, layouts and values."""

import json
import subprocess
import sys

import numpy as np
import pytest

from tests import standin
from tests.standin import names

HOST = np.ones((2, 3), np.float32)
HOSTS = "Unsupported type <class 'numpy.ndarray'>"


@pytest.fixture
def space():
    """What the expressions may use."""
    with standin.installed(devices=2):
        import cupy
        import cupyx

        a = cupy.asarray(HOST * [[1, 2, 3], [4, 5, 6]]).astype("f4")
        yield dict(cupy=cupy, cupyx=cupyx, np=np, a=a, host=HOST, flags=a > 2, i=cupy.arange(3))


REFUSED = {
    # arrays of the host
    "np.asarray(a)": (TypeError, "Implicit conversion to a NumPy array is not allowed"),
    "host + a": (TypeError, HOSTS),
    "cupy.concatenate([a, host])": (TypeError, HOSTS),
    "cupy.where(flags, a, host)": (TypeError, HOSTS),
    "a @ host": (TypeError, HOSTS),
    "a.__setitem__(slice(None), host)": (ValueError, "non-scalar numpy.ndarray"),
    # names and arguments that it has not
    "cupy.bogus": (AttributeError, "module 'cupy' has no attribute 'bogus'"),
    "setattr(a, 'label', 1)": (AttributeError, "label"),
    "cupy.add(a, a, where=flags)": (TypeError, "Wrong arguments"),
    "a.max(initial=0)": (TypeError, "unexpected keyword argument 'initial'"),
    "cupy.fuse": (NotImplementedError, "cupy.fuse is one of CuPy's names, but is not modelled"),
    # types and values
    "cupy.empty(3, object)": (ValueError, "Unsupported dtype object"),
    "cupy.add(i, 0.5, out=i)": (TypeError, "[Cc]annot cast"),
    "cupy.cuda.runtime.setDevice(2)": (RuntimeError, "cudaErrorInvalidDevice"),
}


def test_refuses(space):
    for expression, (error, message) in REFUSED.items():
        with pytest.raises(error, match=message):
            eval(expression, space)
            print(expression)


GIVEN = {
    "type(a.sum()) is cupy.ndarray and a.sum().shape": (),
    "(a.T + a.T).flags.c_contiguous": True,
    "(cupy.empty_like(a.T).strides, a.T.astype('f8').strides, a.T.copy().strides)": ((4, 12), (8, 24), (8, 4)),
    "cupy.ndarray((3,), 'f4', a.data + 4, (4,)).get().tolist()": [2, 3, 4],
    "a[flags].tolist(), a[:, i > 1].tolist(), i[[0, 2]].tolist()": ([3, 4, 5, 6], [[3], [6]], [0, 2]),
    "str((flags * flags).dtype), str((a.astype('f2') + 1.5).dtype)": ("bool", "float16"),
    "cupy.reshape(a, (3, 2)).shape, (a @ a.T).tolist()": ((3, 2), [[14, 32], [32, 77]]),
    "a.astype('f4', copy=False) is a, cupy.ascontiguousarray(a) is a, cupy.asarray(a) is a": (True, True, True),
}


def test_gives(space):
    for expression, wanted in GIVEN.items():
        assert eval(expression, space) == wanted, expression
    a, i = space["a"], space["i"]
    a[0] = 7
    a[1, :2] = a[0, 1:]
    a[:, 2] += 1
    i[i == 1] = 9
    assert a.tolist() == [[7, 7, 8], [7, 7, 7]] and i.tolist() == [0, 9, 2]


def test_names_are_those_of_cupy():
    """In a process of its own, which has the real CuPy if it is installed."""
    done = subprocess.run([sys.executable, names.__file__, "--print"], capture_output=True, text=True)
    if "ModuleNotFoundError: No module named 'cupy'" in done.stderr:
        pytest.skip("CuPy is not installed: its names cannot be compared")
    assert not done.returncode, done.stderr
    real, kept = json.loads(done.stdout), names.known()
    if real["version"] != kept["version"]:
        pytest.skip(f"names.json is of CuPy {kept['version']}, {real['version']} is installed")
    assert real == kept
