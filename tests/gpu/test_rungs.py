"""Every rung in every type, as it runs beside cuBLAS and cuDNN: here on the stand-in for CuPy, beside NumPy."""

import numpy as np
import pytest

from .test_checks import once, part

pytestmark = pytest.mark.deep
assert part  # a fixture
TYPES = {"float32": 23, "tf32": 9, "float16": 9, "bfloat16": 6}
ALONE = {"set_torch": lambda kind: None, "medians": once}  # the stand-in has no cuBLAS that PyTorch could share


def test_products(part):
    kinds, found = part("kinds", **ALONE), {}
    products = part("products", SIZES=(16,), SHAPES=[], _cublas=lambda a, b, out: lambda: None)
    part("products", runs_on=lambda device, rung: rung != "tma").run(found)
    assert not found["failed"], found["wrong"]
    for kind, digits in TYPES.items():
        assert {"cublas", "default"} < {row["rung"] for row in found["rows"] if row["kind"] == kind}, kind
        assert kinds.KINDS[kind].digits == digits
    assert {"plain", "tiled", "register", "buffered", "tensor", "async"} <= {row["rung"] for row in found["rows"]}
    part("kinds", KINDS={"float32": kinds.KINDS["float32"]._replace(digits=60)})
    products.run(found)
    assert found["failed"] and {row["rung"] for row in found["rows"]} == {"cublas"}
    assert found["wrong"][0].startswith("float32 16 16 16 NN default: off by ")


def test_convolutions(part):
    """Every rung that fits, in every type, beside the plain rung in float64 in place of cuDNN."""

    def plain(direction, arrays, stride, padding):
        geometry = ((stride,) * 2, (padding,) * 2, (1, 1), 1)
        result, ours = convolutions._ours(direction, [array.astype(np.float64) for array in arrays], geometry)
        ours["plain"]()
        return {"cudnn NCHW": lambda: None}, result.copy()

    part("kinds", **ALONE)
    convolutions, found = part("convolutions", LAYERS=[("small", 1, 8, 4, 8, 3, 1, 1)], _cudnn=plain), {}
    convolutions.run(found)
    assert not found["failed"], found["wrong"]
    for direction in ("forward", "input_grad", "weight_grad"):
        for kind in TYPES:
            rungs = {row["rung"] for row in found["rows"] if (row["kind"], row["direction"]) == (kind, direction)}
            assert {"default", "cudnn NCHW"} < rungs
            assert kind != "float32" or {"plain", "register", "vector"} <= rungs
