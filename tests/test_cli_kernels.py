"""minigrad kernels"""

import pytest

from minigrad import cli
from minigrad.cli import kernels as command
from minigrad_kernels.toolchain.cuda import KERNELS, compiler

from . import cuda_kernels

compiled = pytest.mark.skipif(compiler.missing() is not None, reason=f"compiles: {compiler.missing()}")


@compiled
def test_a_table_of_kernels_and_architectures(capsys):
    assert cli.main(["kernels", "matmul_plain", "--arch", "sm_80", "sm_90"]) == 0
    head, *rows, last = capsys.readouterr().out.splitlines()
    assert head.split() == ["kernel", "machine", "registers", "shared", "spills", "instructions", "problems"]
    assert [row.split()[:2] for row in rows] == [
        [f"matmul_plain_{kind}", machine] for kind in ("f32", "f64") for machine in ("sm_80", "sm_90")
    ]
    assert all(row.split()[4] == "0" and row.endswith(" none") for row in rows)
    assert last == "2 kernels, 4 compiled, 0 problems"


@compiled
def test_problems_are_counted_and_make_it_fail(capsys, monkeypatch):
    monkeypatch.setattr(command, "all_kernels", lambda: [cuda_kernels.with_a_bare_number])
    assert cli.main(["kernels", "--arch", "sm_90"]) == 1
    out = capsys.readouterr().out
    assert "DMUL in the code" in out and "no PTX of this source in the package" in out
    assert out.splitlines()[-1].startswith("1 kernels, 1 compiled, ") and not out.endswith(" 0 problems\n")


def test_without_a_compiler_every_row_says_what_to_install(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("MINIGRAD_CACHE", str(tmp_path))
    monkeypatch.setattr(compiler, "missing", lambda: "the package numba-cuda is not installed")
    monkeypatch.setattr(cuda_kernels.without_its_opcode, "_binaries", {})
    monkeypatch.setattr(command, "all_kernels", lambda: [cuda_kernels.without_its_opcode])
    assert cli.main(["kernels", "--arch", "sm_90"]) == 1
    out = capsys.readouterr().out
    assert "the package numba-cuda is not installed; pip install 'minigrad-engine[compile]'" in out
    assert out.splitlines()[-1] == "1 kernels, 0 compiled, 2 problems"  # the other: no PTX in the package


def test_refuses_names_that_do_not_exist(capsys):
    assert cli.main(["kernels", "matmol"]) == 2
    refused = capsys.readouterr().err
    assert "matmol: no kernel begins so; their names begin with " in refused and ", matmul, " in refused
    assert cli.main(["kernels", "--arch", "sm_42"]) == 2
    assert "--arch sm_42: wants one of sm_75, sm_80" in capsys.readouterr().err


def test_the_ladder(capsys):
    assert cli.main(["kernels", "--ladder"]) == 0
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines()[2:]] == ["plain", "tiled", "register", "vector", "buffered"]


def test_every_kernel_of_the_package_ships_its_ptx():
    """A kernel whose source changed is compiled anew where that can be, but those without a compiler need the text."""
    from minigrad_kernels.toolchain.cuda import cache
    from minigrad_kernels.toolchain.cuda.kernel import all_kernels

    stale = [k.name for k in all_kernels() if cache.shipped_ptx(k.name, k.key) is None]
    assert not stale, "run minigrad kernels --write-ptx"
    files = {file.stem for file in cache.SHIPPED.glob("*.ptx")}
    assert files == {k.name for k in all_kernels()}, "a file of a kernel that is gone"
    assert KERNELS
