"""A network and pictures of one's own on the command line, and printed digits for one that learned handwriting."""

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from minigrad.cli import main
from tests.cli.printed_digits import right

NETWORK = """
from minigrad import nn

class Net(nn.Module):
    def __init__(self):
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 2))

    def forward(self, x):
        return self.layers(x)

def make(shape, classes):
    assert (shape, classes) == ((3, 8, 8), 2)
    return Net()
"""


@pytest.mark.parametrize("name", ["Net", "make"])
def test_a_folder_of_pictures_and_a_network_in_a_file(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "network.py").write_text(NETWORK)
    for channel, colour in ((0, "red"), (2, "blue")):
        (tmp_path / "pictures" / colour).mkdir(parents=True)
        for k in range(10):
            pixels = np.random.default_rng(k).integers(0, 99, (9, 12, 3)).astype(np.uint8)
            pixels[..., channel] += 120
            Image.fromarray(pixels).save(f"pictures/{colour}/{k}.jpg")
    options = ["--data", "pictures", "--size", "8", "--model", f"network.py:{name}", "--no-report", "--out", "run"]
    assert main(["train", *options, "--epochs", "4", "--batch-size", "8"]) == 0
    assert "model: " in capsys.readouterr().out
    monkeypatch.chdir("pictures")  # the folder and the file are found from anywhere
    assert main(["predict", "../run", "blue/3.jpg"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[0] == "blue"
    with Image.open("../run/seen.png") as seen:
        assert seen.size == (224, 224)
    for wrong in (["--data", "nowhere"], ["--model", "absent.py:make"], ["--data", "digits", "--size", "8"]):
        with pytest.raises(SystemExit) as caught:
            raise SystemExit(main(["train", *wrong]))
        assert caught.value.code == 2 and capsys.readouterr().err


SPOILT = {  # what makes NETWORK wrong for digits: (what is in its place, the error)
    "return Net()": ("Net()", r"build: the result of .*network.py:make is None, wanted an instance of Module"),
    "nn.Flatten(), ": ("", "linear: "),
}


@pytest.mark.parametrize("text", SPOILT)
def test_a_network_that_is_none_or_does_not_fit_its_data_leaves_no_run(text, tmp_path, monkeypatch, capsys):
    """So the same command trains once the network is mended. What others put into the folder stays."""
    monkeypatch.chdir(tmp_path)
    spoilt, message = SPOILT[text]
    good = NETWORK.replace("3 * 8 * 8, 2", "8 * 8, 10").replace("((3, 8, 8), 2)", "((1, 8, 8), 10)")
    words = "train --data digits --model network.py:make --limit 64 --epochs 1 --no-report --out".split()
    Path("network.py").write_text(good.replace(text, spoilt))
    Path("used").mkdir()
    Path("used/notes.txt").write_text("of another")
    for folder in ("run", "used"):
        assert main([*words, folder]) == 2
        assert re.search(message, capsys.readouterr().err)
    assert not Path("run").exists() and Path("used/notes.txt").exists()
    Path("network.py").write_text(good)
    assert main([*words, "run"]) == 0 and Path("run/result.json").exists()


@pytest.mark.deep
def test_the_first_command_reads_printed_digits_too(tmp_path, capsys):
    run = tmp_path / "run"
    assert main(["train", "--data", "digits", "--no-report", "--out", str(run)]) == 0
    accuracy = float(capsys.readouterr().out.split("test accuracy ")[-1].split(" %")[0])
    assert accuracy >= 99 and sum(map(len, right(run, tmp_path).values())) >= 27
