"""The lowest rungs in Numba's CUDA simulator, which runs a kernel as Python, with a thread for each of its threads.

Nobody here wrote it: it says whether these kernels are plain `numba.cuda`, and whether they are right. They run on
NumPy's arrays, and their launchers start them. The simulator replaces Numba's compiler in a whole process, so the rows
run in a process of their own, which the last test starts.
"""

import copy
import os
import subprocess
import sys
from importlib import import_module
from itertools import groupby
from types import SimpleNamespace

import numpy as np
import pytest

from minigrad_kernels.bias import cuda as bias_cuda
from minigrad_kernels.conv2d import cuda_plan
from minigrad_kernels.optimizer import Plan
from minigrad_kernels.toolchain.cuda.intrinsics import SIMULATOR, cuda
from minigrad_kernels.toolchain.cuda.memory import View

from .kernel_runs import CASES, exists, make_inputs, run, same_bits, wanted, within_rounding
from .test_optimizer import FULL, random
from .test_optimizer import within_rounding as within_rounding_of_rule

RUNGS = dict.fromkeys(("augment", "pool2d", "bias", "norm", "softmax", "elementwise", "scatter"), ("plain",))
RUNGS["matmul"] = RUNGS["conv2d"] = "plain", "tiled"
# They start kernels of other families as well, or count in words of 32 bits.
LEFT = {"forward_pooled", "dropout"}
LARGEST = 200  # elements of an array: the simulator starts a thread of the system for each of them


def rows():
    """The largest row of each function that is small enough."""
    named = lambda case: (case.family, case.function)
    shapes = lambda case: [*filter(None, case.shapes), *(output.shape for output in case.outputs)]
    size = lambda case: max(map(np.prod, shapes(case)))
    cases = [case for case in CASES if case.family in RUNGS and exists(case, ".cuda") and case.function not in LEFT]
    cases = [case for case in cases if case.function != "max_input_grad" or case.shapes[1] is None]  # without a ReLU
    for _, group in groupby(sorted(cases, key=lambda case: (*named(case), size(case))), named):
        for case in [case for case in group if size(case) <= LARGEST][-1:]:
            for rung in RUNGS[case.family]:
                if rung == "plain" or (case.function == "forward" and case.params.get("groups", 1) == 1):
                    yield pytest.param(rung, case, id=f"{rung}-{case}")


@pytest.fixture
def simulated(monkeypatch):
    """Kernels of the simulator are called as those of this project are."""
    from numba.cuda.simulator.cudadrv.devicearray import FakeCUDAArray  # what cuda.to_device gives, with any strides
    from numba.cuda.simulator.kernelapi import FakeCUDAModule

    made, call = type(cuda.jit(print)), type(cuda.jit(print)).__call__

    def start(kernel, *given):
        if kernel._device:
            return call(kernel, *given)
        grid, block, arguments = given[:3]
        call(kernel[grid, block], *map(seen, arguments))

    def seen(argument):
        if isinstance(argument, View):
            argument = np.lib.stride_tricks.as_strided(*argument)
        argument = np.empty(0) if argument is None else argument
        return FakeCUDAArray(argument) if isinstance(argument, np.ndarray) else argument

    monkeypatch.setattr(made, "__call__", start)
    apart = SimpleNamespace(fadd_rn=np.add, fmul_rn=np.multiply)  # which the simulator lacks
    monkeypatch.setattr(FakeCUDAModule, "libdevice", apart, raising=False)


if SIMULATOR:

    @pytest.mark.filterwarnings("ignore:.*encountered:RuntimeWarning")  # as a GPU does: 0 / 0 is NaN
    @pytest.mark.parametrize("rung, case", list(rows()))
    def test_the_lowest_rungs_are_right_in_the_simulator(rung, case, simulated, monkeypatch):
        launcher = import_module(f"minigrad_kernels.{case.family}.cuda")
        for module in (launcher, import_module(getattr(launcher, case.function).__module__), bias_cuda):
            monkeypatch.setattr(module, "choose", lambda op, asked, misfits: rung, raising=False)
        if case.family == "matmul":
            launcher._plan.cache_clear()
        if case.family == "conv2d":
            monkeypatch.setattr(cuda_plan, "choose", lambda op, asked, misfits: rung)
            cuda_plan.plan_of.cache_clear()
        of_rows = case.family == "softmax" or "standardize" in case.function
        dtype = np.float64 if of_rows else np.float32  # rows of float32 are joined by shuffles
        inputs = make_inputs(case, dtype, integers=case.exact)
        results = run(case, dtype, inputs, "interpreter")
        if case.exact:
            same_bits(results, wanted(case, inputs))
        else:
            within_rounding(case, dtype, inputs, results)

    @pytest.mark.parametrize("name", ["sgd", "adam"])
    def test_an_update_is_right_in_the_simulator(name, simulated):
        """Of parameters in several chunks, by one launch."""
        lists, plan = random(name, [(3,), (1030,), (2, 4)]), Plan()
        before, launcher = copy.deepcopy(lists), import_module("minigrad_kernels.optimizer.cuda")
        names = "parameters", "gradients", "x", "y", "z"
        plan.remember(dict(zip(names, lists, strict=False)), launcher.addresses, launcher.tables)
        getattr(launcher, name)(plan, FULL[name], None, None)
        within_rounding_of_rule(name, FULL[name], before, lists)

else:

    def test_all_of_it_in_a_process_of_the_simulator():
        pytest.importorskip("numba_cuda")
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", __file__]
        done = subprocess.run(command, env=os.environ | {"NUMBA_ENABLE_CUDASIM": "1"}, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
