"""Every kernel against its reference: exact on small integers, within rounding on random numbers, at all edges."""

import os
import platform
import re
import subprocess
import sys

import numpy as np
import pytest

from minigrad_kernels.conv2d.winograd_mode import winograd
from minigrad_kernels.toolchain import set_threads, threads

from .cases import all_refusals
from .kernel_runs import CASES, PROCESSORS, each_type, make_inputs, run, same_bits, spoil, wanted, within_rounding

each_case = pytest.mark.parametrize("case", CASES, ids=str)


@each_type
@pytest.mark.parametrize("case", [case for case in CASES if case.exact], ids=str)
def test_exact_on_small_integers(case, dtype):
    inputs = make_inputs(case, dtype, integers=True)
    with winograd(False):  # whose fractions round; tests/test_winograd.py has its integers
        results = run(case, dtype, inputs)
    for got, want in zip(results, wanted(case, inputs), strict=True):
        np.testing.assert_array_equal(got, want)


@each_type
@each_case
def test_within_rounding_on_random_numbers(case, dtype):
    inputs = make_inputs(case, dtype)
    within_rounding(case, dtype, inputs, run(case, dtype, inputs))


@each_type
@each_case
def test_same_bits_for_any_number_of_threads(case, dtype):
    inputs, results, before = make_inputs(case, dtype), [], threads()
    try:
        for count in (1, 2):
            set_threads(count)
            results.append(run(case, dtype, inputs))
    finally:
        set_threads(before)
    same_bits(*results)


@pytest.mark.parametrize("case, position", [(case, i) for case in CASES for i in case.nan], ids=str)
def test_nan_reaches_what_it_must(case, position):
    inputs = make_inputs(case, np.float32)
    spoil(inputs[position])
    for got, want in zip(run(case, np.float32, inputs), wanted(case, inputs), strict=True):
        np.testing.assert_array_equal(np.isnan(got), np.isnan(want))


@pytest.mark.parametrize("refusal", all_refusals(), ids=str)
def test_refuses(refusal):
    with pytest.raises(refusal.error, match="^" + re.escape(refusal.message)):
        refusal.call()


@pytest.mark.skipif(platform.machine().lower() not in ("x86_64", "amd64"), reason="names instruction sets of x86-64")
@pytest.mark.parametrize("settings", PROCESSORS.values(), ids=PROCESSORS)
def test_tiles_of_other_instruction_sets(settings):
    """The rows for products again, in a process whose tiles are those of a lesser processor, or of an unknown one."""
    rows = "exact and float32 and (matmul or conv2d)"
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", __file__, "-k", rows]
    done = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
