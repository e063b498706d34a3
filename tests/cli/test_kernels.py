"""minigrad kernels and minigrad interpret"""

import re

import numpy as np
import pytest

from minigrad import cli
from minigrad.cli import kernels as command
from minigrad_kernels.toolchain.cuda import KERNELS, compiler
from minigrad_kernels.toolchain.cuda.kernel import all_kernels
from tests.kernels.interpreter import cuda_kernels
from tests.kernels.interpreter.ptx import kernel

compiled = pytest.mark.skipif(compiler.missing() is not None, reason=f"compiles: {compiler.missing()}")


@compiled
@pytest.mark.deep
def test_a_table_of_kernels_and_architectures_and_problems(capsys, monkeypatch):
    assert cli.main(["kernels", "matmul_plain", "--arch", "sm_80", "sm_90"]) == 0
    _, *rows, last = capsys.readouterr().out.splitlines()
    made = [(f"matmul_plain_{kind}", machine) for kind in ("f32", "f64") for machine in ("sm_80", "sm_90")]
    assert [tuple(row.split()[:2]) for row in rows] == made
    assert all(row.split()[4] == "0" and row.endswith(" none") for row in rows)
    assert last == "2 kernels, 4 compiled, 0 problems"
    monkeypatch.setattr(command, "all_kernels", lambda: [cuda_kernels.with_a_bare_number])
    assert cli.main(["kernels", "--arch", "sm_90"]) == 1
    *_, row, last = capsys.readouterr().out.splitlines()
    assert "DMUL in the code" in row and last.startswith("1 kernels, 1 compiled, ")


def test_without_a_compiler_every_row_says_what_to_install(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("MINIGRAD_CACHE", str(tmp_path))
    monkeypatch.setattr(compiler, "missing", lambda: "the package numba-cuda is not installed")
    never = cuda_kernels.scale(2, "never_compiled")
    monkeypatch.setattr(command, "all_kernels", lambda: [never])
    assert cli.main(["kernels", "--arch", "sm_90"]) == 1
    KERNELS.pop(never.name)
    *_, row, last = capsys.readouterr().out.splitlines()
    assert 'the package numba-cuda is not installed; pip install -e ".[compile]"' in row
    assert last == "1 kernels, 0 compiled, 1 problems"


@compiled
@pytest.mark.deep
def test_the_manifest_has_a_line_for_each_kernel_and_differences_are_printed(tmp_path, monkeypatch, capsys):
    manifest, kernels = tmp_path / "manifest.csv", [cuda_kernels.four_copies, cuda_kernels.power(2)]
    manifest.write_text("# made by others\n-\n")
    monkeypatch.setattr(command, "all_kernels", lambda: kernels)
    monkeypatch.setattr(command, "threads", lambda: 1)
    monkeypatch.setattr(command, "MANIFEST", manifest)
    assert cli.main(["kernels", "--check"]) == 0
    assert capsys.readouterr().out.startswith("nothing is compared: the manifest is of other tools\n- # made by oth")
    assert cli.main(["kernels", "--write"]) == 0
    assert capsys.readouterr().out.endswith("\n2 kernels, 2 compiled, 0 problems\n")
    tools, _, copies, power = lines = manifest.read_text().splitlines()
    assert re.fullmatch(r"# numba==\S+ numba-cuda==.*; Python 3\.\d+; sm_80, of kernels for sm_90a alone sm_90a", tools)
    name, registers, shared, spills, instructions, *loop = copies.split(",")
    assert name == kernels[0].name and int(registers) > 0 and int(instructions) > 8
    assert [shared, spills, *loop] == ["0"] * 4, "no loop is left"
    name, *_, moved, instructions = power.split(",")
    assert name == kernels[1].name and moved == "0" and int(instructions) > 3
    changed = [*lines[:2], copies + "0", power]
    for kept, names, wrong in ((lines, [], 0), (changed, [], 1), (changed, [kernels[1].name], 0)):
        manifest.write_text("\n".join(kept))
        assert cli.main(["kernels", "--check", *names]) == wrong
        out = capsys.readouterr().out
        assert out.count(f"not the manifest's: {copies}\n") == wrong and out.endswith(f", {wrong} problems\n")
    manifest.write_text("\n".join([*lines, "gone_f32,1"]))
    assert cli.main(["kernels", "--check"]) == 1
    assert capsys.readouterr().out.endswith("manifest: gone_f32,1\n2 kernels, 2 compiled, 1 problems\n")
    KERNELS.pop(kernels[1].name)


def test_the_manifest_of_the_package_names_its_kernels():
    _, _, *lines = command.MANIFEST.read_text().splitlines()
    assert [line.partition(",")[0] for line in lines] == [kernel.name for kernel in all_kernels()]
    assert len(lines) <= 118, "a kernel more wants one less"


COPY = """mov.u32 %r30, %tid.x; mad.wide.u32 %rd30, %r30, 4, %rd0; mad.wide.u32 %rd31, %r30, 4, %rd1;
ld.global.f32 %f1, [%rd30]; st.global.f32 [%rd31], %f1;"""


def test_a_file_of_ptx_is_run(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "k.ptx").write_text(kernel(COPY, "u64 u64"))
    np.save("x.npy", np.arange(8, dtype=np.float32))
    words = ["interpret", "k.ptx", "--args", "x.npy", "float32[2,4]", "--block"]
    assert cli.main([*words, "8"]) == 0
    out = capsys.readouterr().out
    assert "argument 1, float32 (2, 4): [[0. 1. 2. 3.]\n [4. 5. 6. 7.]]" in out and "ld.global.f32" in out
    assert cli.main([*words, "9"]) == 1
    assert "out of bounds: ld.global.f32 reads 4 bytes at byte 32 of 0, which has 32" in capsys.readouterr().out
    for word in ("float31[8]", "x.json"):
        assert cli.main(["interpret", "k.ptx", "--args", word]) == 2
        assert f"--args: got {word}, want a number, a file x.npy" in capsys.readouterr().err
    (tmp_path / "k.ptx").write_text(kernel("frobnicate.b32 %r1;"))
    assert cli.main(["interpret", "k.ptx"]) == 1
    assert "'frobnicate.b32 %r1' is an opcode that is not known (PTX:" in capsys.readouterr().err
