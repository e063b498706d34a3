"""report.html: every figure and picture of a run on one page that needs nothing else."""
# ruff: noqa: F811  (a fixture has the name of the argument that asks for it)

import base64
import io
import json
import math
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.image import imread

from minigrad import data, nn, optim
from minigrad.cli import main
from minigrad.models import BasicBlock, digits_cnn
from minigrad.profile import measure_step
from minigrad.report import SECTIONS, Report
from minigrad.train import Histograms, History, fit, predict
from tests.cli.cli_runs import QUICK, elsewhere, lines_of  # noqa: F401
from tests.cli.test_resume import interrupted_after
from tests.device.stand_in_gpus import gpus
from tests.train.small_training import images, network

CONVOLUTION = ["train", "--data", "digits", "--model", "digits-cnn", "--limit", "200", "--batch-size", "50"]
HEADINGS = [heading for _, heading, *_ in SECTIONS if heading]
LOADS = {"src", "srcset", "href", "data", "poster", "action", "background"}  # attributes by which a page fetches


class Page:
    """What is in a page, which is checked to be well formed, to load nothing and to run nothing.

    headings    {level: texts}; tables: rows of cells; images: (kind, bytes); figures: {dt: dd} of all lists
    """

    def __init__(self, html):
        self.html = html
        root = ElementTree.fromstring(re.sub(r"<(meta|link|img)\b([^>]*)>", r"<\1\2/>", html.split("\n", 1)[1]))
        text_of, nodes = lambda node: "".join(node.itertext()).strip(), [*root.iter()]
        assert not {node.tag for node in nodes} & {"script", "iframe", "object", "embed"}
        for name, value in [pair for node in nodes for pair in node.items()]:
            assert not name.startswith("on") and (name not in LOADS or value.startswith(("data:", "#"))), value[:60]
        assert not re.search(r"url\(|@import", html), "the style loads nothing"
        self.anchors = {node.get("id") for node in nodes}
        self.headings = {tag: [text_of(node) for node in root.iter(tag)] for tag in ("h1", "h2", "h3")}
        rows_of = lambda table: [[text_of(cell) for cell in row] for row in table.iter("tr")]
        self.tables = [rows_of(table) for table in root.iter("table")]
        self.figures = {text_of(dt): text_of(dd) for dt, dd in zip(root.iter("dt"), root.iter("dd"), strict=True)}
        sources = [node.get("src").removeprefix("data:").split(";base64,") for node in root.iter("img")]
        self.images = [(kind, base64.b64decode(text, validate=True)) for kind, text in sources]

    def table(self, first):
        """The rows below the head of the table whose first column has this name, as {name: cell}."""
        (found,) = [table for table in self.tables if table[0][0] == first]
        return [dict(zip(found[0], row, strict=True)) for row in found[1:]]

    def kinds(self):
        """The kinds of the pictures, each of which decodes and has something on it."""
        for kind, content in self.images:
            if kind == "image/png":
                pixels = imread(io.BytesIO(content), format="png")
                assert min(pixels.shape[:2]) > 100 and pixels.std() > 0.01
            else:
                assert kind == "image/svg+xml" and len([*ElementTree.fromstring(content).iter()]) > 20
        return [kind for kind, _ in self.images]


def reported(folder):
    """The page that `minigrad report` writes."""
    assert main(["report", str(folder)]) == 0
    page = Page((Path(folder) / "report.html").read_text())
    assert page.headings["h2"] == HEADINGS
    return page


def figure(text):
    return float(text.replace(",", "").removesuffix(" %"))


# ---- the page of a run -----------------------------------------------------------------------------------------------


def test_the_page_says_what_the_files_and_the_network_say(capsys):
    run = Path("run <b>")
    assert main([*CONVOLUTION, "--epochs", "2", "--out", str(run)]) == 0
    page = Page((run / "report.html").read_text())
    assert page.headings["h1"] == ["digits-cnn on digits"] and page.headings["h2"] == HEADINGS
    assert page.anchors >= {anchor for anchor, *_ in SECTIONS}
    kinds, layers = page.kinds(), 4  # three convolutions and a dense layer, weights and gradients of each
    assert kinds.count("image/svg+xml") == 2 + 1 + 1 and kinds.count("image/png") == 1 + 1 + 2 * layers
    assert len(page.html) < 2_000_000 and "could not be" not in page.html and "Done: 2 of 2 epochs." in page.html

    rows = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
    result, config = (json.loads((run / name).read_text()) for name in ("result.json", "config.json"))
    assert page.figures["test accuracy"] == f"{100 * rows[-1]['test_accuracy']:.2f} %"
    assert page.figures["training loss"] == f"{rows[-1]['loss']:.4f}" and page.figures["epochs"] == "2"
    for shown, row in zip(page.table("epoch"), rows, strict=True):
        for name, value in row.items():
            assert shown[name.replace("_", " ")] == (f"{value:.3g}" if value < 100 else f"{value:,.0f}")
    classes = [(figure(row["test images"]), row["found (recall)"]) for row in page.table("class")]
    right = sum(total * figure(found) / 100 for total, found in classes if total)
    assert sum(total for total, _ in classes) == 200 and right / 200 == pytest.approx(result["test_accuracy"], abs=1e-4)

    model = nn.summary(digits_cnn(), (1, 1, 8, 8))
    tables = [table for table in page.tables if table[0][:2] == ["layer", "type"]]
    costs, sizes = ([dict(zip(table[0], row, strict=True)) for row in table[1:]] for table in tables)
    assert figure(sizes[-1]["parameters"]) == model.parameters == figure(page.figures["parameters"])
    assert figure(sizes[-1]["multiply-adds"]) == model.macs
    took = float(re.search(r"It took ([\d.]+) ms", page.html)[1])
    own = [sum(figure(row[name]) for name in ("forward, ms", "backward, ms") if row[name]) for row in costs]
    shares = [figure(row["share"]) for row in costs]  # of the step without what the profile took to look at memory
    whole = 100 * sum(own) / sum(shares)
    assert 0 < sum(shares) <= 101 and whole <= 1.01 * took
    assert shares == pytest.approx([100 * one / whole for one in own], abs=0.3)
    first = next(row for row in costs if row["layer"].startswith("0"))
    assert figure(first["forward, ms"]) > 0 and figure(first["backward, ms"]) > 0

    assert page.figures["command"] == f"minigrad {' '.join(CONVOLUTION)} --epochs 2 --out '{run}'"
    assert page.figures["weights"] == result["weights"]
    for name, value in (config["settings"] | config["versions"]).items():
        assert name in ("epochs", "model") or page.figures[name] == str(value), name

    run.rename("moved")
    again = reported("moved")
    assert lines_of(capsys)[-1].startswith("report: moved/report.html (")
    assert again.figures == page.figures and again.table("class") == page.table("class")


def test_a_run_that_was_interrupted_in_its_first_epoch(monkeypatch):
    with monkeypatch.context() as patch:
        interrupted_after(patch, 2)
        assert main([*CONVOLUTION, "--epochs", "2", "--out", "run"]) == 130 and not Path("run/report.html").exists()
    half = reported("run")
    assert "No epoch is done yet." in half.html and "They were not counted." in half.html
    assert "Interrupted in epoch 1 of 2, after update 2; minigrad train --resume run goes on." in half.html
    assert "test accuracy" not in half.figures and "of 200 test images are right" in half.html


def test_a_report_that_cannot_be_written_comes_after_the_result(monkeypatch, capsys):
    def full(self, path):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Report, "save", full)
    assert main([*CONVOLUTION, "--limit", "50", "--epochs", "1", "--out", "run"]) == 1
    assert capsys.readouterr().err == "minigrad train: error: [Errno 28] No space left on device\n"
    assert json.loads(Path("run/result.json").read_text())["epoch"] == 1


def test_no_report_leaves_it_out(capsys):
    assert main(["train", *QUICK, "--epochs", "1", "--out", "run"]) == 0
    assert not Path("run/report.html").exists() and not any(line.startswith("report") for line in lines_of(capsys))


@pytest.mark.deep
@pytest.mark.parametrize("options", ["--shards 4", "--device cuda --model mlp"])
def test_shards_and_devices(options):
    with gpus(1):
        few = ["--limit", "16", "--batch-size", "8", "--epochs", "1"]
        assert main([*CONVOLUTION, *few, *options.split(), "--out", "run"]) == 0
    page = Page(Path("run/report.html").read_text())
    assert "could not be" not in page.html and ("device, ms" in page.html) == ("cuda" in options)


# ---- the page by itself ----------------------------------------------------------------------------------------------

HOSTILE = '<script>alert("x")</script> & $x_1$ "quoted" \'too\''


def test_colour_images_residual_blocks_and_hostile_names(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (40, 3, 8, 8), dtype=np.uint8)
    noise = data.Dataset(pixels, np.arange(40) % 3, (HOSTILE, "</table>", "$"))
    blocks = BasicBlock(4, 8, 2), BasicBlock(8, 8, 1)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3))
    optimizer, histograms, loader = optim.SGD(model.parameters(), 0.01), Histograms(model), data.Loader(noise, 20)
    history = fit(model, loader, optimizer, 1, callbacks=[histograms])
    profile = measure_step(model, nn.functional.cross_entropy, next(iter(loader)), optimizer)
    parts = {"test": noise, "predictions": predict(model, loader), "records": histograms.records, "profile": profile}
    parts |= {"state": HOSTILE, "origin": {HOSTILE: {HOSTILE: HOSTILE}}}
    Report(HOSTILE, history, model, (3, 8, 8), noise.classes, **parts).save(tmp_path / "page.html")
    page = Page((tmp_path / "page.html").read_text())
    assert page.kinds().count("image/png") == 2 + 2 * 4 and "4 of 7 layers are shown" in page.html
    assert {row[0] for row in page.tables[2]} >= {"1.conv1", "1.shortcut.0"}
    assert page.headings["h1"] == [HOSTILE] and page.figures[HOSTILE] == HOSTILE and HOSTILE in page.headings["h3"]
    assert {row["class"] for row in page.table("class")} == {HOSTILE, "</table>", "$"}


def test_a_section_with_nothing_to_show_says_so():
    page = Page(Report("bare", History(), nn.Sequential(nn.Flatten()), (1, 2, 2), ("a",)).html())
    for sentence in ("No epoch is done", "were not looked at", "were not counted", "No step", "Nothing was noted"):
        assert sentence in page.html
    assert not page.images and page.headings["h2"] == HEADINGS

    model, right = network(), (np.eye(3, dtype=np.float32)[images().labels], images().labels)
    model[0].weight.array[...] = math.nan
    history = History([{"epoch": 1, "loss": 1.0, "accuracy": 0.5}])
    page = Page(Report("nan", history, model, (1, 6, 6), "abc", test=images(), predictions=right).html())
    assert "44 of 44 test images are right: 100.00 %" in page.html and len(page.kinds()) == 3
    assert "This could not be drawn: filters: weight has elements that are not finite" in page.html
