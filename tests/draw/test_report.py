"""report.html: every figure and picture of a run on one page that needs nothing else."""
# ruff: noqa: F811  (a fixture has the name of the argument that asks for it)

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest

from minigrad import data, nn, optim
from minigrad.cli import main
from minigrad.core.errors import OutOfMemory
from minigrad.models import BasicBlock, digits_cnn
from minigrad.profile import measure_step
from minigrad.report import SECTIONS, Report
from minigrad.train import Histograms, History, fit, predict
from tests.cli.cli_runs import QUICK, elsewhere, lines_of  # noqa: F401
from tests.cli.test_resume import interrupted_after
from tests.device.stand_in_gpus import gpus
from tests.draw.report_pages import Page
from tests.train.checkpoint_parts import state_of
from tests.train.small_training import images, network

REPORTED = [word for word in QUICK if word != "--no-report"]
CONVOLUTION = ["--data", "digits", "--model", "digits-cnn", "--limit", "200", "--batch-size", "50"]
HEADINGS = [heading for _, heading, *_ in SECTIONS if heading]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a run of two epochs with a convolution, and what was printed last."""
    folder = tmp_path_factory.mktemp("reported") / "run <b>"
    assert main(["train", *CONVOLUTION, "--epochs", "2", "--out", str(folder)]) == 0
    return folder


@pytest.fixture(scope="module")
def page(run):
    return Page((run / "report.html").read_text())


def figure(text):
    return float(text.replace(",", "").removesuffix(" %"))


# ---- the page of a run -----------------------------------------------------------------------------------------------


def test_the_page_says_what_the_files_and_the_network_say(page, run):
    assert page.headings["h1"] == ["digits-cnn on digits"] and page.headings["h2"] == HEADINGS
    assert page.anchors >= {anchor for anchor, *_ in SECTIONS}
    kinds = page.check_images()
    layers = 4  # three convolutions and a dense layer, weights and gradients of each
    assert kinds.count("image/svg+xml") == 2 + 1 + 1 and kinds.count("image/png") == 1 + 1 + 2 * layers
    assert (run / "report.html").stat().st_size < 2_000_000 and "could not be drawn" not in page.html

    rows = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
    assert page.figures["test accuracy"] == f"{100 * rows[-1]['test_accuracy']:.2f} %"
    assert page.figures["training loss"] == f"{rows[-1]['loss']:.4f}"
    assert page.figures["updates"] == str(rows[-1]["step"]) and page.figures["epochs"] == "2"
    speeds = [row["images_per_second"] for row in rows]
    assert figure(page.figures["images/s (median)"]) == pytest.approx(np.mean(speeds), abs=1)
    for shown, row in zip(page.table("epoch"), rows, strict=True):
        for name, value in row.items():
            assert figure(shown[name.replace("_", " ")]) == pytest.approx(value, rel=1e-4)

    classes = [(figure(row["test images"]), row["found (recall)"]) for row in page.table("class")]
    right = sum(total * figure(found) / 100 for total, found in classes if total)
    result, config = (json.loads((run / name).read_text()) for name in ("result.json", "config.json"))
    assert sum(total for total, _ in classes) == 200 and right / 200 == pytest.approx(result["test_accuracy"], abs=1e-4)
    assert f"{round(right)} of 200 test images are right" in page.html

    model = nn.summary(digits_cnn(), (1, 1, 8, 8))
    tables = [table for table in page.tables if table[0][:2] == ["layer", "type"]]
    costs, sizes = ([dict(zip(table[0], row, strict=True)) for row in table[1:]] for table in tables)
    assert figure(sizes[-1]["parameters"]) == model.parameters == figure(page.figures["parameters"])
    assert figure(sizes[-1]["multiply-adds"]) == model.macs
    shares = [figure(row["share"]) for row in costs]
    assert all(share >= 0 for share in shares) and 50 < sum(shares) <= 100.1
    first = next(row for row in costs if row["layer"].startswith("0"))
    assert figure(first["forward, ms"]) > 0 and figure(first["backward, ms"]) > 0
    assert figure(first["parameters, KiB"]) == pytest.approx(160 * 4 / 1024, abs=0.05)

    assert page.figures["command"] == f"minigrad train {' '.join(CONVOLUTION)} --epochs 2 --out '{run}'"
    assert page.figures["weights, SHA-256"] == result["weights"]
    assert page.figures["processor"] == config["machine"]["processor"]
    for name, value in (config["settings"] | config["versions"]).items():
        assert name in ("epochs", "model") or page.figures[name] == str(value), name


def reported(folder):
    """The page that `minigrad report` writes."""
    assert main(["report", str(folder)]) == 0
    page = Page((Path(folder) / "report.html").read_text())
    assert page.headings["h2"] == HEADINGS
    return page


def test_report_writes_it_again_and_what_fails_costs_its_section_alone(run, page, monkeypatch, capsys):
    from minigrad.cli import trained

    assert main(["report", "."]) == 2 and "holds no checkpoint" in capsys.readouterr().err
    shutil.copytree(run, "copy")
    again = reported("copy")
    assert lines_of(capsys)[-1].startswith("report: copy/report.html (")
    assert again.figures | {"run folder": ""} == page.figures | {"run folder": ""}
    assert again.table("class") == page.table("class") and len(again.images) == len(page.images)

    def full(*arguments):
        raise OutOfMemory("conv2d: no memory")

    monkeypatch.setattr(trained, "measure_step", full)
    rest = reported("copy")
    assert rest.html.count("This could not be measured: conv2d: no memory") == 1 and rest.table("class")
    config = json.loads(Path("copy/config.json").read_text())
    config["settings"]["data"] = "mnist"  # whose images are not here
    Path("copy/config.json").write_text(json.dumps(config))
    rest = reported("copy")
    assert rest.html.count("This could not be measured: mnist: ") == 2
    assert [kind for kind in rest.check_images() if kind == "image/svg+xml"] == ["image/svg+xml"] * 2


def test_interrupted_in_the_first_epoch_then_resumed(monkeypatch):
    with monkeypatch.context() as patch:
        interrupted_after(patch, 2)
        assert main(["train", *CONVOLUTION, "--epochs", "2", "--out", "run"]) == 130
    assert not Path("run/report.html").exists()
    half = reported("run")
    assert "No epoch is done yet." in half.html and "They were not counted." in half.html
    assert "Interrupted in epoch 1 of 2, after update 2; minigrad train --resume run goes on." in half.html
    assert "test accuracy" not in half.figures and "of 200 test images are right" in half.html
    assert main(["train", "--resume", "run"]) == 0
    whole = Page(Path("run/report.html").read_text())
    assert "Done: 2 of 2 epochs." in whole.html and len(whole.check_images()) > len(half.check_images())
    assert [row[0] for row in state_of(Path("run/last"))["histograms"]["0.weight"]] == [1, 2]


def test_a_report_that_cannot_be_written_comes_after_the_result(tmp_path, monkeypatch, capsys):
    def full(self, path):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Report, "save", full)
    assert main(["train", *REPORTED, "--epochs", "1", "--out", "run"]) == 1
    assert capsys.readouterr().err == "minigrad train: error: [Errno 28] No space left on device\n"
    assert json.loads(Path("run/result.json").read_text())["epoch"] == 1


def test_no_report_leaves_it_out_and_tensorboard_adds_to_it(tmp_path, capsys):
    pytest.importorskip("tensorboardX")
    assert main(["train", *QUICK, "--epochs", "1", "--out", "run", "--tensorboard"]) == 0
    names = {path.name for path in Path("run").iterdir()}
    assert "tensorboard" in names and "report.html" not in names
    (events,) = Path("run/tensorboard").iterdir()
    assert b"loss/test" in events.read_bytes() and not any(line.startswith("report") for line in lines_of(capsys))


def test_tensorboard_alone_is_refused_where_it_is_not_installed_before_any_work(tmp_path, monkeypatch, capsys):
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "tensorboardX" else find(name))
    assert main(["train", *QUICK, "--out", "run", "--tensorboard"]) == 2
    assert 'pip install -e ".[tensorboard]"' in capsys.readouterr().err and not Path("run").exists()
    assert main(["train", *QUICK, "--epochs", "1", "--out", "run"]) == 0, "without the option nobody asks for it"


PLACES = [pytest.param(f"--device {name} --model mlp", marks=pytest.mark.deep) for name in ("cuda", "interpreter")]


@pytest.mark.parametrize("options", ["--shards 4", *PLACES])
def test_shards_and_devices(options):
    few = [*CONVOLUTION, "--limit", "16", "--batch-size", "8", "--epochs", "1"]
    with gpus(1):
        assert main(["train", *few, *options.split(), "--out", "run"]) == 0
    page = Page(Path("run/report.html").read_text())
    assert page.headings["h2"] == HEADINGS and "could not be drawn" not in page.html
    assert ("No step was measured." in page.html) == ("interpreter" in options)


def test_colour_images_and_residual_blocks(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (40, 3, 8, 8), dtype=np.uint8)
    noise = data.Dataset(pixels, np.arange(40) % 4, ("a", "b", "c", "d"))
    blocks = BasicBlock(4, 8, 2), BasicBlock(8, 8, 1)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))
    optimizer = optim.SGD(model.parameters(), 0.01)
    histograms, loader = Histograms(model), data.Loader(noise, 20)
    history = fit(model, loader, optimizer, 1, callbacks=[histograms])
    profile = measure_step(model, nn.functional.cross_entropy, next(iter(loader)), optimizer)
    parts = {"test": noise, "predictions": predict(model, loader), "records": histograms.records, "profile": profile}
    Report("noise", history, model, (3, 8, 8), noise.classes, **parts).save(tmp_path / "page.html")
    page = Page((tmp_path / "page.html").read_text())
    assert page.check_images().count("image/png") == 2 + 2 * 4 and "4 of 7 layers are shown" in page.html
    assert {row[0] for row in page.tables[2]} >= {"1.conv1", "1.shortcut.0"}


# ---- the page by itself ----------------------------------------------------------------------------------------------

HOSTILE = '<script>alert("x")</script> & $x_1$ "quoted" \'too\''


def test_hostile_names_are_text(tmp_path):
    dataset = data.Dataset(images().images, images().labels, (HOSTILE, "</table>", "$"))
    model = network()
    history = fit(model, data.Loader(dataset, 11), optim.SGD(model.parameters(), 0.1), 1)
    parts = {"test": dataset, "predictions": predict(model, data.Loader(dataset, 11)), "lacking": {"cost": HOSTILE}}
    parts |= {"state": HOSTILE, "figures": {HOSTILE: HOSTILE}, "origin": {HOSTILE: {HOSTILE: HOSTILE}}}
    page = Page(Report(HOSTILE, history, model, (1, 6, 6), dataset.classes, **parts).html())
    assert page.headings["h1"] == [HOSTILE] and page.figures[HOSTILE] == HOSTILE and HOSTILE in page.headings["h3"]
    assert {row["class"] for row in page.table("class")} == {HOSTILE, "</table>", "$"}
    page.check_images()


def test_a_section_with_nothing_to_show_says_so():
    page = Page(Report("bare", History(), nn.Sequential(nn.Flatten()), (1, 2, 2), ("a",)).html())
    for sentence in ("No epoch is done", "were not looked at", "were not counted", "No step", "Nothing was noted"):
        assert sentence in page.html
    assert not page.images and page.headings["h2"] == HEADINGS

    model, right = network(), (np.eye(3, dtype=np.float32)[images().labels], images().labels)
    page = Page(Report("right", History(), model, (1, 6, 6), "abc", test=images(), predictions=right).html())
    assert "44 of 44 test images are right: 100.00 %" in page.html and len(page.check_images()) == 2

    model[0].weight.array[...] = math.nan
    page = Page(Report("nan", History([{"epoch": 1, "loss": 1.0, "accuracy": 0.5}]), model, (1, 6, 6), "abc").html())
    assert "This could not be drawn: filters: weight has elements that are not finite" in page.html
    assert page.headings["h2"] == HEADINGS and len(page.images) == 2
