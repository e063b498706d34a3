"""What the command `minigrad` refuses: a line on stderr, after one on usage, status 2, nothing written.

A row's call runs the command; the error is the line, as the UsageError that the commands raise.
"""

import contextlib
import io
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path
from unittest import mock

from minigrad.cli import main
from minigrad.cli.settings import UsageError
from tests.refusals import row

TRAINING = ["train", "--data", "digits", "--model", "mlp", "--epochs", "1", "--batch-size", "200"]


@cache
def _finished():
    """The folder of a run of one epoch; removed with the process."""
    folder = tempfile.TemporaryDirectory()
    with contextlib.redirect_stdout(io.StringIO()):
        assert main([*TRAINING, "--no-report", "--out", f"{folder.name}/run"]) == 0
    return folder


@contextlib.contextmanager
def SETTING():
    """A folder with a finished run "run" and a picture that is none; no MNIST, no network."""
    with tempfile.TemporaryDirectory() as scratch:
        shutil.copytree(Path(_finished().name) / "run", Path(scratch) / "run")
        (Path(scratch) / "text.png").write_text("")
        with contextlib.chdir(scratch), mock.patch.dict(os.environ, MINIGRAD_DATA=f"{scratch}/cache"):
            yield


def _files():
    return {str(path): path.stat().st_mtime_ns for path in Path(".").rglob("*")}


def refused(*words):
    """Run the command, which must refuse; raises what it printed."""
    before, out, err = _files(), io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(list(words))
    lines = err.getvalue().splitlines()
    assert (status, len(lines) <= 2, out.getvalue()) == (2, True, ""), (status, lines, out.getvalue())
    assert lines[-1].startswith("minigrad") and ": error: " in lines[-1] and _files() == before
    raise UsageError(lines[-1])


ROWS = """
train --epochs 0                     | --epochs: got 0, want an integer of at least 1
train --data digits --out new --model vgg              | --model: got vgg, want one of .*keras-cnn.* or FILE.py:FUNCTION
train --data digits --out new --data-dir nowhere       | --data-dir: got nowhere, want a folder
train --data digits --out new --device toaster         | device is 'toaster', wanted 'cpu', 'cuda'
train --data digits --out new --threads 100000         | Numba allows 1 to
train --data digits --out run                          | run holds a run already; go on with it by --resume run, remove
train --data cifar10 --out new --split writers         | --split writers wants --data digits
train --data digits --out run --continue --lr 0.5      | run holds a run with another --.*lr; leave that out or
train --resume nowhere               | nowhere holds no checkpoint 'last': there is no such folder
train --resume run --lr 1 --clip 1   | run holds a run with another --clip, --lr
predict run absent.png               | absent.png cannot be read as a picture: .*No such file
predict run text.png                 | text.png cannot be read as a picture: cannot identify image file
math nothing                         | nothing
kernels --arch sm_12                 | sm_12
launch -n 2 absent.py                | launch: absent.py is no file; want a Python script
"""

REFUSALS = [
    row(ValueError, pattern.strip(), refused, *words.split())
    for words, _, pattern in (line.partition("|") for line in ROWS.strip().splitlines())
]
