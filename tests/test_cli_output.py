"""Where the output of the command goes nowhere, or cannot hold what is written."""
# ruff: noqa: F811  (a fixture has the name of the argument that asks for it)

import io
import os
import subprocess
import sys

import pytest

from minigrad.cli import main
from tests.cli_runs import QUICK, RESUME, elsewhere, environment, finished, weights_of  # noqa: F401

MINIGRAD = [sys.executable, "-W", "error", "-m", "minigrad"]


@pytest.mark.parametrize("command, unbuffered", [(["info"], ""), (["info"], "1"), (["train", "--help"], "")])
def test_output_that_nobody_reads_ends_the_command_quietly(command, unbuffered):
    """As in `minigrad info | true`."""
    unread = environment() | {"PYTHONUNBUFFERED": unbuffered}
    with subprocess.Popen(
        [*MINIGRAD, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=unread
    ) as process:
        process.stdout.close()
        error = process.stderr.read()
    assert (process.returncode, error) == (141, "")


def test_a_training_that_nobody_reads_can_be_resumed(finished):
    """As in `minigrad train | head -3`."""
    with subprocess.Popen(
        [*MINIGRAD, "train", *QUICK, "--out", "run"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as process:
        for _ in range(3):
            process.stdout.readline()
        process.stdout.close()
        error = process.stderr.read()
    assert (process.returncode, error) == (141, "")
    assert main([*RESUME, "run"]) == 0
    assert weights_of("run") == weights_of(finished)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a file that is always full is Linux's")
def test_a_full_disk_is_one_line():
    full = environment() | {"PYTHONUNBUFFERED": ""}
    with open("/dev/full", "w") as file:
        process = subprocess.run([*MINIGRAD, "info"], stdout=file, stderr=subprocess.PIPE, text=True, env=full)
    assert process.returncode == 1
    assert process.stderr.startswith("minigrad info: error: ") and len(process.stderr.splitlines()) == 1


def test_a_name_that_the_terminal_cannot_show(monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    assert main(["train", *QUICK, "--out", "é"]) == 0
    assert rb"run: \xe9" in written.getvalue()


AT_IMPORT = """
import os, signal, sys

def interrupt(event, arguments):
    if event == "import" and arguments[0] == os.environ.get("INTERRUPT_AT"):
        del os.environ["INTERRUPT_AT"]
        os.kill(os.getpid(), signal.SIGINT)

sys.addaudithook(interrupt)
"""


@pytest.mark.skipif(os.name != "posix", reason="signals to oneself that come at once are POSIX")
@pytest.mark.parametrize("installed", [False, True])
@pytest.mark.parametrize("module", ["numpy", "numba", "minigrad.cli.arguments", "minigrad.cli.picture"])
def test_ctrl_c_at_any_import_is_one_line(tmp_path, module, installed):
    """From the first that the command imports on; what comes before is Python's own."""
    (tmp_path / "sitecustomize.py").write_text(AT_IMPORT)
    script = tmp_path / "bin" / "minigrad"
    script.parent.mkdir()
    script.write_text("import sys\nfrom minigrad.cli import main\nsys.exit(main())\n")
    command = [sys.executable, str(script)] if installed else [sys.executable, "-m", "minigrad"]
    there = environment()
    there |= {"INTERRUPT_AT": module, "PYTHONPATH": os.pathsep.join([str(tmp_path), there["PYTHONPATH"]])}
    process = subprocess.run([*command, "info"], capture_output=True, text=True, env=there, timeout=300)
    assert process.returncode == 130
    assert process.stderr in ("minigrad: interrupted\n", "minigrad info: interrupted\n")


def test_importing_the_package_leaves_signals_alone():
    program = "import signal, minigrad; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment())
    assert process.stdout == "True\n"
