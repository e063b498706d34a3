"""minigrad warmup: kernels compiled before they are needed."""

import re

from minigrad.cli import main
from minigrad_kernels import toolchain


def test_what_is_needed_is_compiled_once(capsys):
    threads = toolchain.threads()
    for _ in range(2):
        assert main(["warmup", "--models", "mlp", "--threads", "1"]) == 0
        first, second = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"0 kernels compiled in 0\.0 s, \d+\.\d s in all, for mlp", first)
    assert second.startswith("kernel cache: ")
    assert toolchain.threads() == threads


def test_says_how_many_kernels_it_compiled(capsys, monkeypatch):
    from minigrad.cli import tools

    def compile_two(name, optimizer):
        assert name == "lenet"
        for _ in range(2):
            with toolchain.progress.compiling(compile_two):
                pass

    monkeypatch.setattr(tools, "_train", compile_two)
    assert main(["warmup", "--models", "lenet"]) == 0
    assert capsys.readouterr().out.startswith("10 kernels compiled in ")
