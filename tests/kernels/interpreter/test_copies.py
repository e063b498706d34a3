"""cp.async: copies arrive at the wait that covers them; waits that are too lax are found."""

import numpy as np
import pytest

from minigrad_kernels.interpreter import empty

from .test_faults import X, clean, faults_of, found

START = "cp.async.ca.shared.global [%r33], [%rd30], 4;\ncp.async.commit_group;\n"
AGAIN = "add.u32 %r36, %r33, 512;\ncp.async.ca.shared.global [%r36], [%rd30], 4;\ncp.async.commit_group;\n"
READ = "ld.shared.f32 %f1, [{0}];\nst.global.f32 [%rd31], %f1;"


def test_copies_are_waited_for():
    """By the thread that started them, before a barrier lets others read; else the fault names the wait it wants."""
    own, other, wait = READ.format("%r33"), READ.format("%r35"), "cp.async.wait_group {};\n"
    late = "@%p11 bra PAST;\ncp.async.wait_group 0;\nPAST: bar.sync 0;\n"
    open_group = START.replace("cp.async.commit_group;", "") + wait.format(0)
    twice = AGAIN.replace("512", "0")
    for body, part, kind, message in (
        (START + own, "ld.shared", "cp.async wait", "under way (PTX:"),
        (START + own, "ld.shared", "cp.async wait", "wants cp.async.wait_group 0 or less"),
        (START + AGAIN + wait.format(2) + own, "ld.shared", "cp.async wait", "wants cp.async.wait_group 1 or less"),
        (open_group + own, "ld.shared", "cp.async wait", "in no committed group yet"),
        (START + "st.shared.f32 [%r33], %f10;", "st.shared", "cp.async wait", "under way (PTX:"),
        (START + twice, "cp.async.ca.shared.global [%r36]", "cp.async wait", "under way (PTX:"),
        (START + late + other, "ld.shared", "cp.async wait", "thread (0, 0, 0) of block (0, 0, 0) is under way"),
        (START + wait.format(0) + other, "ld.shared", "shared race", "which another thread wrote"),
    ):
        report = found(body, part, kind, message, X, empty(64))
        assert kind == "shared race" or "1" not in report.outputs or np.isnan(report.outputs["1"]).any()
    for body, wanted in (
        (START + AGAIN + wait.format(1) + own, X),
        (START + "cp.async.wait_all;\n" + own, X),
        (START + wait.format(0) + "bar.sync 0;\n" + other, X.reshape(32, 2)[:, ::-1].reshape(-1)),
    ):
        out = empty(64)
        clean(body, X, out)
        assert np.array_equal(out, wanted)
    clean(START, X, empty(64))


def test_data_arrives_at_the_wait_so_a_barrier_before_it_is_too_early():
    body = START + "bar.sync 0;\ncp.async.wait_group 0;\n" + READ.format("%r35")
    found(body, "ld.shared", "shared race", "which another thread wrote", X, empty(64))


def test_an_access_that_only_a_part_of_is_under_way():
    late = "setp.eq.u32 %p1, %r34, 1; @%p1 bra PAST;\ncp.async.wait_group 0;\nPAST: bar.sync 0;\n"
    wide = "setp.eq.u32 %p2, %r30, 0;\n@%p2 ld.shared.v4.f32 {%f1, %f2, %f3, %f4}, [%r33];"
    message = "the cp.async of thread (1, 0, 0) of block (0, 0, 0) is under way"
    found(START + late + wide, "ld.shared.v4", "cp.async wait", message, X, empty(64))


@pytest.mark.parametrize("given", [0, 4, 8, 12, 16])
def test_copies_fill_up_with_zeros(given):
    body = f"""mad.wide.u32 %rd5, %r30, 16, %rd0; mad.wide.u32 %rd6, %r30, 16, %rd1; mad.lo.u32 %r37, %r30, 16, %r32;
    cp.async.cg.shared.global [%r37], [%rd5], 16, {given};
    cp.async.wait_all;
    ld.shared.v4.f32 {{%f1, %f2, %f3, %f4}}, [%r37]; st.global.v4.f32 [%rd6], {{%f1, %f2, %f3, %f4}};"""
    out = empty((16, 4))
    clean(body, X, out, block=(16,))
    expected = X.reshape(16, 4).copy()
    expected[:, given // 4 :] = 0
    assert np.array_equal(out, expected)
    short = X[: 60 + given // 4]
    assert bool(faults_of(body, short, empty((16, 4)), block=(16,))[1].faults) is False


@pytest.mark.parametrize("given", [0, 4, 16])
def test_the_source_of_a_copy_is_aligned_however_little_of_it_is_read(given):
    body = f"cp.async.cg.shared.global [%r32], [%rd0+4], 16, {given};\ncp.async.wait_all;"
    found(body, "cp.async.cg", "misaligned", "which is no multiple of 16", X, empty(64), block=(1,))
