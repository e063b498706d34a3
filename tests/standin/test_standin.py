"""The stand-in for CuPy is as strict as CuPy: names, arguments, refusals, layouts and values."""

import contextlib
import json
import subprocess
import sys

import numpy as np
import pytest

from tests import standin
from tests.standin import looks, names, rows
from tests.standin.rows import GIVEN, HOST, REFUSED


@pytest.fixture
def machine():
    with standin.installed(devices=2) as found:
        yield found


@pytest.fixture
def space(machine):
    return rows.space(machine)


# ---- what CuPy refuses, and what it gives ---------------------------------------------------------------------------


@pytest.mark.parametrize("expression, error, message", REFUSED, ids=[row[0] for row in REFUSED])
def test_refuses(space, expression, error, message):
    with pytest.raises(error, match=message):
        eval(expression, space)


@pytest.mark.parametrize("expression, wanted", GIVEN, ids=[row[0] for row in GIVEN])
def test_gives(space, expression, wanted):
    found = eval(expression, space)
    assert (found.item() if hasattr(found, "item") else found) == wanted


@pytest.mark.parametrize("expression", looks.EXPRESSIONS)
def test_arrays_say_of_themselves_what_those_of_cupy_say(machine, expression):
    import cupy

    assert looks.outcomes(cupy, cupy.cuda.alloc(1024), [expression])[expression] == names.known()["looks"][expression]


def test_assignments(space):
    exec("a[0] = 7; a[1, :2] = a[0, 1:]; a[:, 2] += 1; i[cupy.asarray([4])] = 9; half[...] = a", space)
    assert space["a"].tolist() == [[7, 7, 8], [7, 7, 7]]
    assert space["i"].tolist() == [0, 9, 2] and space["half"].dtype == np.float16
    with pytest.raises(TypeError, match="Implicit"):
        HOST.copy()[0] = space["a"][0]


def test_a_name_that_is_there_comes_from_names_json():
    known = names.known()["cupy"]
    assert {"ndarray", "add", "sum"} <= known.keys() and "float128" not in known
    assert known["sum"] == "a, axis=None, dtype=None, out=None, keepdims=False"


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


def on_host(value):
    """The value with NumPy's arrays; a NumPy array in it would be one that a function of CuPy cannot give."""
    if isinstance(value, list | tuple):
        return [on_host(part) for part in value]
    assert not isinstance(value, np.ndarray | np.generic), "an array of the host"
    return value.get() if hasattr(value, "get") else value


def alike(found, wanted):
    if isinstance(wanted, list | tuple):
        return len(found) == len(wanted) and all(map(alike, found, wanted))
    found, wanted = np.asarray(found), np.asarray(wanted)
    same = np.array_equal(found, wanted, equal_nan=wanted.dtype.kind in "fc")
    return same and found.dtype == wanted.dtype


MATRIX, ROW, WHOLE = HOST * [[1, -2, 3], [4, 5, 6]], np.array([0.5, 3, 1]), np.array([2, 0, 1])
SAMPLES = (
    (MATRIX,), (ROW,), (WHOLE,), (MATRIX, MATRIX), (MATRIX, 1), (WHOLE, WHOLE), (ROW, WHOLE), ([ROW, ROW],),
)  # fmt: skip


def numpys(name):
    """(arguments, what NumPy's function gives) for each of the samples that it takes."""
    for sample in SAMPLES:
        if type(sample[0]) is list and not names.known()["cupy"][name].startswith("tup"):
            continue
        with contextlib.suppress(Exception):
            yield sample, getattr(np, name)(*(x.copy() if isinstance(x, np.ndarray) else x for x in sample))


@pytest.mark.filterwarnings("ignore")
def test_functions_give_what_those_of_numpy_give(space):
    """On the device, with the shape, type and values of NumPy's."""
    cupy, compared = space["cupy"], set()
    sent = lambda x: cupy.asarray(x) if isinstance(x, np.ndarray) else [sent(y) for y in x] if type(x) is list else x
    for name in sorted(cupy_functions() - UNLIKE_NUMPY):
        for sample, wanted in numpys(name):
            found = on_host(getattr(cupy, name)(*map(sent, sample)))
            assert alike(found, wanted), f"{name}{sample} is {found}, wants {wanted}"
            compared.add(name)
    assert len(compared) > 170


UNLIKE_NUMPY = {
    "array2string", "array_repr", "array_str", "asnumpy", "clip", "diag_indices_from", "empty", "empty_like", "full",
    "full_like", "lexsort", "ones", "take_along_axis", "zeros",
}  # fmt: skip


def cupy_functions():
    told, aside = names.known()["cupy"], ("save", "load", "from", "set_", "get_", "show", "print")
    found = {name for name, parameters in told.items() if isinstance(parameters, str) and hasattr(np, name)}
    return {name for name in found if not name.startswith(aside)}
