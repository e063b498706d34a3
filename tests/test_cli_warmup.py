"""minigrad warmup: kernels compiled before they are needed."""

import re

import pytest

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
    from minigrad.cli import warmup

    def compile_two(name, optimizer):
        assert name == "lenet"
        for _ in range(2):
            with toolchain.progress.compiling(compile_two):
                pass

    monkeypatch.setattr(warmup, "_train", compile_two)
    assert main(["warmup", "--models", "lenet"]) == 0
    assert capsys.readouterr().out.startswith("10 kernels compiled in ")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--models", "vgg"], "--models: invalid choice: 'vgg'"),
        (["--threads", "0"], "--threads: got 0, want an integer of at least 1"),
        (["--models"], "--models: expected at least one argument"),
    ],
)
def test_refusals(capsys, options, message):
    assert main(["warmup", *options]) == 2
    assert message in capsys.readouterr().err
