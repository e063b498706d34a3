"""What the command `minigrad` refuses: one line on stderr, status 2, nothing written.

A row's call runs the command; the error is the line, as the UsageError that the commands raise.
"""

import contextlib
import io
import os
import shutil
import tempfile
from functools import cache, partial
from pathlib import Path
from unittest import mock

import numpy as np
from matplotlib.image import imsave

from minigrad.cli import main
from minigrad.cli.settings import UsageError

TRAINING = ["train", "--data", "digits", "--model", "mlp", "--epochs", "1", "--batch-size", "200", "--no-new-writers"]


@cache
def _finished():
    """The folder of a run of one epoch; removed with the process."""
    folder = tempfile.TemporaryDirectory()
    with contextlib.redirect_stdout(io.StringIO()):
        assert main([*TRAINING, "--no-report", "--out", f"{folder.name}/run"]) == 0
    return folder


@contextlib.contextmanager
def SETTING():
    """A folder with a finished run "run", a file "file", a picture that is none; no MNIST, no network."""
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as scratch:
        shutil.copytree(Path(_finished().name) / "run", Path(scratch) / "run")
        for name in ("file", "text.png", "unfinished/config.json", "empty/nothing"):
            path = Path(scratch) / name
            path.parent.mkdir(exist_ok=True)
            path.write_text("")
        imsave(Path(scratch) / "image.png", np.eye(8), cmap="gray")
        os.chdir(scratch)
        try:
            with mock.patch.dict(os.environ, MINIGRAD_DATA=f"{scratch}/cache"):
                yield
        finally:
            os.chdir(before)


def _files():
    return {str(path): path.stat().st_mtime_ns for path in Path(".").rglob("*")}


def refused(*words):
    """Run the command, which must refuse; raises what it printed."""
    before, out, err = _files(), io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(list(words))
    lines = err.getvalue().splitlines()
    assert (status, len(lines), out.getvalue()) == (2, 1, ""), (status, lines, out.getvalue())
    assert lines[0].startswith("minigrad") and ": error: " in lines[0] and "Traceback" not in lines[0]
    assert _files() == before, "files changed"
    raise UsageError(lines[0])


DIGITS = "train --data digits --out new"

ROWS = """
train --epochs 0                     | --epochs: got 0, want an integer of at least 1
train --epochs 1.5                   | --epochs: got 1.5, want an integer
train --epochs                       | --epochs: expected one argument
train --batch-size 0                 | --batch-size: got 0, want an integer of at least 1
train --batch-size -8                | --batch-size: got -8, want an integer of at least 1
train --batch-size many              | --batch-size: got many, want an integer
train --lr 0                         | --lr: got 0, want a number above 0
train --lr nan                       | --lr: got nan, want a number above 0
train --lr inf                       | --lr: got inf, want a number above 0
train --lr=-0.1                      | --lr: got -0.1, want a number above 0
train --lr 0,1                       | --lr: got 0,1, want a number above 0
train --optimizer adamax             | --optimizer: invalid choice: 'adamax' \\(choose from .*adamw
train --schedule linear              | --schedule: invalid choice: 'linear' \\(choose from
train --weight-decay nan             | --weight-decay: got nan, want a number of at least 0
train --weight-decay=-1              | --weight-decay: got -1, want a number of at least 0
train --accumulate 0                 | --accumulate: got 0, want an integer of at least 1
train --clip 0                       | --clip: got 0, want a number above 0
train --clip nan                     | --clip: got nan, want a number above 0
train --precision float8             | --precision: invalid choice: 'float8'
train --limit 0                      | --limit: got 0, want an integer of at least 1
train --seed -1                      | --seed: got -1, want an integer from 0 to
train --seed 9223372036854775808     | --seed: got 9223372036854775808, want an integer from 0 to
train --shards 0                     | --shards: got 0, want an integer of at least 1
train --threads 0                    | --threads: got 0, want an integer of at least 1
train --save-every 0                 | --save-every: got 0, want an integer of at least 1
train --save-every soon              | --save-every: got soon, want an integer
train --augment=yes                  | --augment/--no-augment: ignored explicit argument 'yes'
train --eager=no                     | --eager/--no-eager: ignored explicit argument 'no'
train --zero=1                       | --zero/--no-zero: ignored explicit argument '1'
train --sync-batch-norm=1            | --sync-batch-norm/--no-sync-batch-norm: ignored explicit argument '1'
train --no-report=1                  | --no-report: ignored explicit argument '1'
train --tensorboard=1                | --tensorboard: ignored explicit argument '1'
train --continue=1                   | --continue: ignored explicit argument '1'
train --new-writers=1                | --new-writers/--no-new-writers: ignored explicit argument '1'
train --data svhn                    | --data: invalid choice: 'svhn'
train --bach-size 3                  | unrecognized arguments: --bach-size 3; did you mean --batch-size\\?
train --learning-rate 1              | unrecognized arguments: --learning-rate 1; .*--help
train digits                         | unrecognized arguments: digits
train --data digits --out new --model vgg              | --model: invalid choice: 'vgg' \\(choose from .*keras-cnn
train --data digits --out new --batch-size 2000        | batch_size is 2000, but the dataset has 1438 images
train --data digits --out new --limit 10               | batch_size is \\d+, but the dataset has 10 images
train --data digits --out new --data-dir nowhere       | --data-dir nowhere is not a folder
train --data digits --out new --data-dir file          | --data-dir file is not a folder
train --data digits --out new --device cuda:77         | device is 'cuda:77', but
train --data digits --out new --device toaster         | device is 'toaster', wanted 'cpu', 'cuda'
train --data digits --out new --threads 100000         | Numba allows 1 to
train --data digits --out file                         | --out file cannot be made: .*file is not a folder that can
train --data digits --out file/run                     | --out file/run cannot be made: .*file is not a folder that can
train --data digits --out run                          | run holds a run already; go on with it by --resume run or give
train --data digits --out unfinished                   | unfinished holds a run already; it is not complete, so remove
train --data digits --out new --sync-batch-norm --shards 2 --model resnet | --sync-batch-norm wants as many ranks
train --data cifar10 --out new --new-writers           | --new-writers wants --data digits
train --data digits --out run --continue --lr 0.5      | run holds a run with another --.*lr; leave that out or
train --resume nowhere               | nowhere holds no checkpoint 'last': there is no such folder
train --resume empty                 | empty holds no checkpoint 'last': it is not the folder of a run
train --resume file                  | file holds no checkpoint 'last': there is no such folder
train --resume run --epochs 3        | run holds a run with another --epochs; leave that out
train --resume run --lr 1 --clip 1   | run holds a run with another --clip, --lr
train --resume run --out new         | run holds a run with another --out; leave that out or
train --resume run --data-dir file   | --data-dir file is not a folder
train --resume run --device cuda:77  | device is 'cuda:77', but
evaluate                             | the following arguments are required: RUN
evaluate nowhere                     | nowhere holds no checkpoint 'last': there is no such folder
evaluate empty                       | empty holds no checkpoint 'last': it is not the folder of a run
evaluate run --checkpoint worst      | --checkpoint: invalid choice: 'worst' \\(choose from
evaluate run --precision half        | --precision: invalid choice: 'half'
evaluate run --device toaster        | device is 'toaster', wanted 'cpu', 'cuda'
evaluate run --threads none          | --threads: got none, want an integer of at least 1
evaluate run --data-dir nowhere      | --data-dir nowhere is not a folder
evaluate run --check best            | unrecognized arguments: --check best
report                               | the following arguments are required: RUN
report nowhere                       | nowhere holds no checkpoint 'last'
report run --threads 0               | --threads: got 0, want an integer of at least 1
report run --data-dir nowhere        | --data-dir nowhere is not a folder
report run --device cuda:77          | device is 'cuda:77', but
report run --checkpoint best         | unrecognized arguments: --checkpoint best
predict run                          | the following arguments are required: IMAGE.png
predict run absent.png               | absent.png cannot be read as a picture: .*No such file
predict run text.png                 | text.png cannot be read as a picture: cannot identify image file
predict run empty                    | empty cannot be read as a picture: .*Is a directory
predict nowhere image.png            | nowhere holds no checkpoint 'last'
predict run text.png --checkpoint x  | --checkpoint: invalid choice: 'x'
predict run text.png --precision x   | --precision: invalid choice: 'x'
predict run text.png --threads x     | --threads: got x, want an integer of at least 1
predict run image.png --device x     | device is 'x', wanted 'cpu', 'cuda'
export run                           | the following arguments are required: --onnx
export run --onnx nowhere/x.onnx     | --onnx nowhere/x.onnx cannot be written: want a file in
export run --onnx empty              | --onnx empty cannot be written: want a file in
export nowhere --onnx x.onnx         | nowhere holds no checkpoint 'last'
export run --onnx x.onnx --checkpoint x | --checkpoint: invalid choice: 'x'
math --pages                         | unrecognized arguments: --pages; did you mean --page\\?
math --page=1                        | --page: ignored explicit argument '1'
info run                             | unrecognized arguments: run
warmup --models vgg                  | --models: invalid choice: 'vgg' \\(choose from
warmup --models                      | --models: expected at least one argument
warmup --threads 0                   | --threads: got 0, want an integer of at least 1
kernels nothing_of_that_name         | nothing_of_that_name
kernels --arch sm_12                 | sm_12
kernels --arch                       | --arch: expected at least one argument
kernels --ladder=1                   | --ladder: ignored explicit argument '1'
kernels --write=1                    | --write: ignored explicit argument '1'
kernels --check=1                    | --check: ignored explicit argument '1'
profile vgg                          | invalid choice: 'vgg' \\(choose from
profile mlp --steps 0                | --steps: got 0, want an integer of at least 1
profile mlp --batch-size x           | --batch-size: got x, want an integer of at least 1
profile mlp --data svhn              | --data: invalid choice: 'svhn'
profile mlp --data-dir nowhere       | --data-dir nowhere is not a folder
profile mlp --data digits --device cuda:77    | device is 'cuda:77', but
profile mlp --data digits --threads 100000    | Numba allows 1 to
profile mlp --data digits --out file          | --out file cannot be made: .*file is not a folder that can
profile mlp --epochs 3               | unrecognized arguments: --epochs 3
math nothing                         | nothing
math --pages                         | unrecognized arguments: --pages; did you mean --page\\?
launch                               | launch: nothing to start; want a Python script
launch -n 0 minigrad train           | -n: got 0, want an integer of at least 1
launch -n two minigrad train         | -n: got two, want an integer
launch -n 2                          | launch: nothing to start; want a Python script, or minigrad and its arguments
launch -n 2 absent.py                | launch: absent.py is no file; want a Python script
launch -n 2 --max-restarts -1 minigrad train         | --max-restarts: got -1, want an integer of at least 0
launch -n 2 --min-ranks 3 minigrad train             | launch: --min-ranks is 3, want 1 to 2
launch -n 2 --timeout 0 minigrad train               | --timeout: got 0, want a number above 0
launch -n 2 --timeout nan minigrad train             | --timeout: got nan, want a number above 0
launch -n 2 --grace -1 minigrad train                | --grace: got -1, want seconds, at least 0
launch -n 2 --hosts a:0 minigrad train               | launch: --hosts has 'a:0', wanted NAME or NAME:RANKS
launch -n 2 --hosts a,a minigrad train               | launch: --hosts has 'a', wanted NAME or NAME:RANKS, each
launch -n 9 --hosts a:2 minigrad train               | launch: -n is 9, want at least 1, and at most .* room for: 2
launch -n 2 --timeout inf minigrad train             | --timeout: got inf, want a number above 0
launch -n 2 --logs file minigrad train               | launch: --logs file cannot be made: .*file is not a folder
trian                                | invalid choice: 'trian'
--version                            | .*
"""

EMPTY = ("train --out", "train --resume", "train --data-dir", "evaluate run --device",
         "profile mlp --out", "export run --onnx")  # fmt: skip


def rows():
    import shlex

    for row in filter(None, ROWS.splitlines()):
        words, _, pattern = row.partition("|")
        command = words.split()[0] if words.split()[0][0] != "-" else "minigrad"
        yield (
            f"{command}: {' '.join(words.split())}",
            partial(refused, *shlex.split(words)),
            ValueError,
            pattern.strip(),
        )
    for words in EMPTY:
        name = words.split()[-1]
        yield (
            f"{words.split()[0]}: {words} ''",
            partial(refused, *words.split(), ""),
            ValueError,
            f"{name}: got an empty",
        )


REFUSALS = list(rows())
