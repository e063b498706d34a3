"""minigrad interpret"""

import json

import numpy as np

from minigrad import cli
from tests.kernels.interpreter.ptx import kernel

COPY = """mov.u32 %r30, %tid.x; mad.wide.u32 %rd30, %r30, 4, %rd0; mad.wide.u32 %rd31, %r30, 4, %rd1;
ld.global.f32 %f1, [%rd30]; st.global.f32 [%rd31], %f1;"""


def test_a_file_of_ptx_is_run(tmp_path, capsys):
    (tmp_path / "k.ptx").write_text(kernel(COPY, "u64 u64"))
    np.save(tmp_path / "x.npy", np.arange(8, dtype=np.float32))
    spec = [str(tmp_path / "x.npy"), {"shape": [8], "dtype": "float32"}]
    (tmp_path / "args.json").write_text(json.dumps(spec))
    command = ["interpret", str(tmp_path / "k.ptx"), "--args", str(tmp_path / "args.json"), "--block"]
    assert cli.main([*command, "8"]) == 0
    out = capsys.readouterr().out
    assert "argument 1, float32 (8,): [0. 1. 2. 3. 4. 5. 6. 7.]" in out and "ld.global.f32" in out
    assert cli.main([*command, "9"]) == 1
    assert "out of bounds: ld.global.f32 reads 4 bytes at byte 32 of 0, which has 32" in capsys.readouterr().out
    (tmp_path / "args.json").write_text(json.dumps([3, {"form": 8}]))
    assert cli.main([*command, "8"]) == 2
    assert "--args: argument 1 is {'form': 8}" in capsys.readouterr().err
    (tmp_path / "k.ptx").write_text(kernel("frobnicate.b32 %r1;"))
    assert cli.main(["interpret", str(tmp_path / "k.ptx")]) == 1
    assert "'frobnicate.b32 %r1' is an opcode that is not known (PTX:" in capsys.readouterr().err
