"""Every kernel against its reference: exact on small integers, within rounding on random numbers, at all edges."""

import os
import platform
import re
import subprocess
import sys

import numpy as np
import pytest

from minigrad_kernels.conv2d.winograd_mode import winograd
from minigrad_kernels.toolchain import product, set_threads, threads, vector
from minigrad_kernels.toolchain.emit import TILES

from .cases import all_refusals
from .kernel_runs import CASES, PROCESSORS, each_type, make_inputs, run, same_bits, spoil, wanted, within_rounding

each_case = pytest.mark.parametrize("case", CASES, ids=str)


@each_type
@pytest.mark.parametrize("case", [case for case in CASES if case.exact], ids=str)
def test_exact_on_small_integers(case, dtype):
    inputs = make_inputs(case, dtype, integers=True)
    with winograd(False):  # whose fractions round; tests/kernels/test_winograd.py has its integers
        results = run(case, dtype, inputs)
    for got, want in zip(results, wanted(case, inputs), strict=True):
        np.testing.assert_array_equal(got, want)


@each_type
@each_case
def test_within_rounding_on_random_numbers(case, dtype):
    inputs = make_inputs(case, dtype)
    with winograd(False):  # whose errors are relative to the largest result, not to each
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


def test_exact_rows_of_matmul_and_conv2d_in_float32_reach_every_tile(monkeypatch):
    """Each microkernel is called by some row: the loops around them run in Python, where the tiles say their names."""
    reached = set()

    class Noted:
        @staticmethod
        def on(team, shares, items, jobs, a_rows, c_rows, a_taps, b_taps, panel_taps, *rest):
            relu, a, b, bias, c, _, scratch = rest[-7:]
            for job in jobs:
                if job[product.FORM] == product.DOT:
                    product._dot_product.function(a, 0, b, bias, c, 0, job, relu, a_rows, c_rows)
                else:
                    tables = a_rows, c_rows, a_taps, b_taps, panel_taps
                    product._gather_product.function(a, 0, b, 0, bias, c, 0, job, relu, *tables, scratch, 0)

    monkeypatch.setattr(product, "_run", Noted)
    monkeypatch.setattr(product, "_pack", lambda *arguments: None)
    for name in vector.__all__:
        monkeypatch.setattr(product, name, lambda *arguments, name=name: reached.add(name))
    with winograd(False):
        for case in CASES:
            if case.exact and case.family in ("matmul", "conv2d"):
                run(case, np.float32, make_inputs(case, np.float32, integers=True))
    assert reached == set(vector.__all__)


def test_tiles_of_every_instruction_set_are_forced():
    """Those of AVX-512 want its registers, so they run where a processor has them, which then takes no others."""
    assert {"avx512", *PROCESSORS} == set(TILES)


@pytest.mark.deep
@pytest.mark.skipif(platform.machine().lower() not in ("x86_64", "amd64"), reason="names instruction sets of x86-64")
@pytest.mark.parametrize("settings", PROCESSORS.values(), ids=PROCESSORS)
def test_tiles_of_other_instruction_sets(settings):
    """The rows for products again, in a process whose tiles are those of a lesser processor, or of an unknown one."""
    rows = "exact and float32 and (matmul or conv2d)"
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--deep", __file__, "-k", rows]
    done = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
