"""minigrad kernels"""

import re

import pytest

from minigrad import cli
from minigrad.cli import kernels as command
from minigrad_kernels.toolchain.cuda import KERNELS, compiler
from minigrad_kernels.toolchain.cuda.kernel import all_kernels
from tests.kernels.interpreter import cuda_kernels

pytestmark = pytest.mark.deep

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
    assert "DMUL in the code" in out
    assert out.splitlines()[-1].startswith("1 kernels, 1 compiled, ") and not out.endswith(" 0 problems\n")


def test_without_a_compiler_every_row_says_what_to_install(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("MINIGRAD_CACHE", str(tmp_path))
    monkeypatch.setattr(compiler, "missing", lambda: "the package numba-cuda is not installed")
    never = cuda_kernels.scale(2, "never_compiled")
    monkeypatch.setattr(command, "all_kernels", lambda: [never])
    assert cli.main(["kernels", "--arch", "sm_90"]) == 1
    KERNELS.pop(never.name)
    out = capsys.readouterr().out
    assert "the package numba-cuda is not installed; pip install 'minigrad-engine[compile]'" in out
    assert out.splitlines()[-1] == "1 kernels, 0 compiled, 1 problems"


def test_refuses_names_that_do_not_exist(capsys):
    assert cli.main(["kernels", "matmol"]) == 2
    refused = capsys.readouterr().err
    assert "matmol: no kernel begins so; their names begin with " in refused and ", matmul, " in refused
    assert cli.main(["kernels", "--arch", "sm_42"]) == 2
    assert "--arch sm_42: wants one of sm_75, sm_80" in capsys.readouterr().err


@pytest.mark.deep
def test_the_ladder(capsys):
    assert cli.main(["kernels", "--ladder"]) == 0
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines()[2:]] == ["plain", "tiled", "register", "buffered"]


# ---- the manifest ------------------------------------------------------------------------------------------------


@pytest.fixture
def manifest(tmp_path, monkeypatch, capsys):
    """A manifest of two kernels, just written."""
    kernels = [cuda_kernels.four_copies, cuda_kernels.power(2)]
    monkeypatch.setattr(command, "all_kernels", lambda: kernels)
    monkeypatch.setattr(command, "threads", lambda: 1)
    monkeypatch.setattr(command, "MANIFEST", tmp_path / "manifest.csv")
    assert cli.main(["kernels", "--write"]) == 0
    assert capsys.readouterr().out == f"2 kernels: {tmp_path / 'manifest.csv'}\n"
    yield tmp_path / "manifest.csv"
    KERNELS.pop("tests_power_2")


@compiled
def test_the_manifest_has_a_line_for_each_kernel(manifest, capsys):
    tools, columns, copies, power = manifest.read_text().splitlines()
    assert re.fullmatch(r"# numba==\S+ numba-cuda==.*; Python 3\.\d+; sm_80, of kernels for sm_90a alone sm_90a", tools)
    assert len(columns.split(",")) == 7
    name, registers, shared, spills, instructions, *loop = copies.split(",")
    assert name == "tests_four_copies" and int(registers) > 0 and int(instructions) > 8
    assert [shared, spills, *loop] == ["0"] * 4, "no loop is left"
    name, *_, moved, instructions = power.split(",")
    assert name == "tests_power_2" and moved == "0" and int(instructions) > 3
    assert cli.main(["kernels", "--check"]) == 0
    assert capsys.readouterr().out == "2 kernels, 0 differ from the manifest\n"


@compiled
@pytest.mark.parametrize(
    "change, names, shown",
    [
        (lambda lines: [*lines[:2], lines[2] + "0", lines[3]], [], ["-", "+"]),
        (lambda lines: lines[:3], [], ["+"]),
        (lambda lines: [*lines, "gone,1,2,3,4,5,6"], [], ["-"]),
        (lambda lines: [*lines[:2], lines[2] + "0", lines[3]], ["tests_power"], []),
    ],
    ids=["changed", "new", "gone", "of another"],
)
def test_what_differs_from_the_manifest_is_printed(manifest, capsys, change, names, shown):
    manifest.write_text("\n".join(change(manifest.read_text().splitlines())))
    assert cli.main(["kernels", "--check", *names]) == (1 if shown else 0)
    *lines, last = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == shown
    assert f"{1 if shown else 0} differ from the manifest" in last


@compiled
def test_other_tools_are_said_and_nothing_is_compared(manifest, capsys, monkeypatch):
    monkeypatch.setattr(command.metadata, "version", lambda name: "0.1")
    assert cli.main(["kernels", "--check"]) == 0
    first, old, new = capsys.readouterr().out.splitlines()
    assert first == "nothing is compared: the manifest is of other tools"
    assert old.startswith("- # numba==") and new.startswith("+ # numba==0.1 ")


def test_the_manifest_of_the_package_names_its_kernels():
    _, _, *lines = command.MANIFEST.read_text().splitlines()
    assert [line.partition(",")[0] for line in lines] == [kernel.name for kernel in all_kernels()]
    assert len(lines) <= 118, "a kernel more wants one less"
