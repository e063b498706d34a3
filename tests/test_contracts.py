"""What every file, op and kernel of the project has promised: imports, docstrings, sizes, signatures."""

import ast
import functools
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import minigrad
import minigrad_kernels
from minigrad import Tensor, models, nn, ops, optim
from minigrad.core.primitive import Primitive
from minigrad.ops import methods
from tests import size, typing_face
from tests.kernels.cases import all_cases

REPOSITORY = Path(__file__).resolve().parents[1]
PACKAGES = {"minigrad": REPOSITORY / "minigrad", "minigrad_kernels": REPOSITORY / "kernels" / "minigrad_kernels"}
SOURCES = [path for folder in PACKAGES.values() for path in sorted(folder.rglob("*.py"))]
FAMILIES = sorted(
    {info.name for info in pkgutil.iter_modules(minigrad_kernels.__path__) if info.ispkg} - {"interpreter", "toolchain"}
)


def relative(path):
    return path.relative_to(REPOSITORY).as_posix()


@functools.cache
def tree(path):
    return ast.parse(path.read_text())


def imports(path):
    """The absolute names of the modules that a file imports, wherever it does."""
    package = path.relative_to(REPOSITORY if path.is_relative_to(PACKAGES["minigrad"]) else REPOSITORY / "kernels")
    parts, found = list(package.parts[:-1]), set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = parts[: len(parts) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            found |= {module, *(f"{module}.{alias.name}" for alias in node.names)}
    return found


def belongs(name, package):
    return name == package or name.startswith(package + ".")


# ---- imports ---------------------------------------------------------------------------------------------------------

ALLOWED = {  # who may import what, among the packages that have one door
    "cuda": ("kernels/minigrad_kernels/toolchain/cuda/",),
    "cupy": ("minigrad/device/", "minigrad/parallel/nccl", "kernels/minigrad_kernels/toolchain/cuda/launch"),
    "llvmlite": ("kernels/minigrad_kernels/toolchain/",),
    "numba.cuda": ("kernels/minigrad_kernels/toolchain/cuda/",),
    "numba_cuda": ("kernels/minigrad_kernels/toolchain/cuda/",),
}
LAYERS = {  # what the files of a folder may import of minigrad
    "minigrad/device/": ("minigrad.device",),
    "minigrad/core/": ("minigrad.core", "minigrad.device"),
    "minigrad/ops/": ("minigrad.anomaly", "minigrad.core", "minigrad.device", "minigrad.fusion", "minigrad.ops"),
}


def test_imports_keep_to_their_layer():
    found = [(relative(path), name) for path in SOURCES for name in imports(path)]
    wrong = [pair for pair in found if pair[0].startswith("kernels/") and belongs(pair[1], "minigrad")]
    for package, doors in ALLOWED.items():
        wrong += [pair for pair in found if belongs(pair[1], package) and not pair[0].startswith(doors)]
    for folder, allowed in LAYERS.items():
        inside = [pair for pair in found if pair[0].startswith(folder) and pair[1].startswith("minigrad.")]
        wrong += [pair for pair in inside if not any(belongs(pair[1], package) for package in allowed)]
    assert not wrong, f"kernels know no tensors, packages have their doors, layers nothing of those above: {wrong}"


def test_import_is_light():
    """import minigrad loads neither plotting nor downloading nor progress bars, and starts no thread."""
    program = (
        "import sys, threading, minigrad, minigrad.nn, minigrad.optim, minigrad.data; "
        "heavy = {'matplotlib', 'pooch', 'tqdm', 'safetensors', 'torch', 'mpi4py', 'cupy'}; "
        "heavy |= {f'minigrad.parallel.{name}' for name in ('mpi', 'launch', 'world')}; "
        "heavy &= set(sys.modules); "
        "assert not heavy, heavy; assert threading.active_count() == 1"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


# ---- docstrings ------------------------------------------------------------------------------------------------------


def test_files_and_public_names_say_what_they_are():
    silent = [relative(path) for path in SOURCES if not ast.get_docstring(tree(path))]
    names = sorted({*minigrad.__all__} - {"bfloat16"})  # ml_dtypes' type has none
    assert not silent + [name for name in names if not getattr(getattr(minigrad, name), "__doc__", None)]


HEADS = ["Math", "Grads", "Shapes", "Types", "Errors", "Source"]


def heads(text):
    return re.findall(rf"^ *({'|'.join(HEADS)})(?=  )", text or "", re.MULTILINE)


def test_ops_state_their_mathematics():
    """Math, Grads and Shapes themselves, the other heads themselves or by the head of their file; in one order."""
    wrong = []
    for name in ops.__all__:
        op = getattr(ops, name)
        own, shared = heads(op.__doc__), heads(sys.modules[inspect.unwrap(op).__module__].__doc__)
        wrong += [(name, head) for head in HEADS[:3] if head not in own]
        wrong += [(name, head) for head in HEADS[3:] if head not in own + shared]
        if own != sorted(own, key=HEADS.index) or not op.__doc__.strip().splitlines()[0].endswith("."):
            wrong.append((name, "the order of the heads, or a sentence first"))
    assert not wrong


# ---- ops -------------------------------------------------------------------------------------------------------------


def primitives():
    found = {}
    for info in pkgutil.walk_packages(ops.__path__, "minigrad.ops."):
        for name, value in vars(importlib.import_module(info.name)).items():
            if isinstance(value, Primitive):
                found[name] = value
    return found


INNER = set("average_over cast leaky_relu_grad move pick product put relu_grad".split())  # for other ops
SETTINGS = """
    axes axis ceil_mode columns correction delta diagonal dilation dim dims dtype eps geometry groups
    ignore_index input_shape keepdim key momentum name nan_wins order p padding parts place reduction reverse rows
    shape shifts stride value weight_shape widths windows
""".split()  # scalars are known by their names


def test_primitives_are_public_and_lose_no_gradient():
    """Or begin with an underscore; an array argument without a rule, which is not fixed, would lose it silently."""
    found = primitives()
    inner = {name for name in found if name.startswith("_") or name.endswith("_op")}
    assert not found.keys() - inner - {*ops.__all__} - INNER, "primitives that the __all__ of their file does not name"
    for name, primitive in found.items():
        assert not {*primitive.names} - primitive.rules.keys() - primitive.fixed - {*SETTINGS}, name


def test_the_face_for_type_checkers_is_that_of_the_methods():
    assert typing_face.FILE.read_text() == typing_face.face(), "out of date; python -m tests.typing_face writes it"
    bound = {*methods.BINARY, *methods.REFLECTED, *methods.METHODS, *methods.CONVERSIONS, "T"}
    assert all(hasattr(Tensor, name) for name in bound)


# ---- kernels ---------------------------------------------------------------------------------------------------------


def launchers(family):
    """The launchers of a family, by name."""
    face = importlib.import_module(f"minigrad_kernels.{family}")
    own = {name: value for name, value in vars(face).items() if getattr(value, "__module__", None) == face.__name__}
    return {name: value for name, value in own.items() if hasattr(value, "contract")}


def test_launchers_have_a_reference_have_cases_and_take_16_bits():
    covered = {(case.family, case.function) for case in all_cases()}
    text = (REPOSITORY / "tests" / "kernels" / "test_optimizer.py").read_text()  # whose launchers take lists
    for family in FAMILIES:
        reference = importlib.import_module(f"minigrad_kernels.{family}.reference")
        for name, launcher in launchers(family).items():
            assert hasattr(reference, name) or hasattr(reference, name.removesuffix("s")), f"{family}.{name}"
            tested = re.search(rf"\b{name}\b", text) if family == "optimizer" else (family, name) in covered
            assert tested, f"{family}.{name} has no case"
            floats = any(array.dtype == "float" for _, _, array in launcher.contract.arrays)
            assert floats or family == "augment", f"{family}.{name}"  # whose batches are float32


def test_a_training_step_calls_no_product_of_numpy(monkeypatch):
    """All products of a step are ours."""
    model = models.build("lenet", (1, 28, 28))
    optimizer = optim.Adam(model.parameters())
    x, y = minigrad.randn(8, 1, 28, 28), Tensor(np.arange(8) % 10)
    for name in "matmul dot tensordot einsum inner vdot convolve correlate".split():
        monkeypatch.setattr(np, name, lambda *_, **__: pytest.fail("a product of NumPy was called"))
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    assert np.isfinite(loss.item())


# ---- packaging, and what counts as a code line -----------------------------------------------------------------------


@pytest.mark.parametrize("cuda", [12, 13])
def test_cupy_brings_the_headers_of_cuda_for_its_own_kernels(cuda):
    """With a driver alone, CuPy's first sum of two arrays would end in "Failed to find CUDA headers"."""
    extras = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for begins in (f"cupy-cuda{cuda}x[ctk]>=14", f"nvidia-nccl-cu{cuda}>="):
        assert any(wanted.startswith(begins) for wanted in extras[f"cuda{cuda}"])


def test_code_lines():
    """Neither docstrings nor comments nor empty lines; strings and brackets over several lines count each of them."""
    text = '"""A docstring."""\n\nimport os  # 1\n\n# a comment\nNAMES = [\n    "one",\n\n    "two",\n]\n'
    assert size.code_lines(text) == 5 and size.code_lines('TEXT = """a string\nof two lines"""\n') == 2
    files = [("minigrad/__init__.py", "a = 1\n"), ("minigrad/ops/conv/a.py", "a = 1\nb = 2\n")]
    assert size.table(files) == {"minigrad": 1, "minigrad/ops": 2}
