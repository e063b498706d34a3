"""minigrad scale."""

import re

import pytest

from minigrad.cli.arguments import Parser
from minigrad.cli.scaling import add_scale
from minigrad.cli.settings import UsageError
from minigrad.parallel import scaling
from minigrad.parallel.scaling import Plan


def scale(*arguments):
    parser = Parser(prog="minigrad scale")
    add_scale(parser)
    options = parser.parse_args(arguments)
    return options.action(options)


def rows(text, name):
    """The cells of the lines that begin with a name."""
    return [re.split(r"\s{2,}", line.strip())[1:] for line in text.splitlines() if line.strip().startswith(name)]


def test_says_that_it_is_a_model_and_where_its_constants_come_from(capsys):
    assert scale("resnet-50", "vgg-16") == 0
    text = capsys.readouterr().out
    assert text.startswith("PREDICTION: a model, not a measurement")
    assert "NCCL's tuning table" in text and "90 % of the wire" in text and "assumed" in text
    for name in ("resnet-50", "vgg-16"):
        assert f"\n{name}: " in text
    for fabric in scaling.FABRICS.values():
        assert len(rows(text, fabric.title)) == 2


def test_prints_the_figures_of_the_model(capsys):
    scale("resnet-50", "--gpus", "1", "8", "64", "--fabric", "pcie-1x100", "--step-ms", "45", "--batch", "32",
          "--memory-gb", "24", "--optimizer", "sgd", "--wire", "bfloat16")  # fmt: skip
    text = capsys.readouterr().out
    fabric, plan = scaling.fabric("pcie-1x100"), Plan(wire="bfloat16")
    network = scaling.network("resnet-50")
    steps = [scaling.predicted(network, gpus, fabric, plan, 0.045) for gpus in (1, 8, 64)]
    (cells,) = rows(text, fabric.title)
    assert cells[:3] == [f"{100 * step.efficiency:.1f} ({1000 * step.exposed:.3g})" for step in steps]
    assert cells[0] == "100.0 (0)" and cells[3].endswith("MB")
    assert "45 ms for 32 images (as --step-ms says)" in text
    memory = [scaling.memory_of(network, gpus, fabric, plan, "sgd") for gpus in (1, 8, 64)]
    assert rows(text, "largest batch in 24 GB") == [[f"{one.largest_batch(24e9):,}" for one in memory]]
    assert rows(text, "parameters") == [["102.2"] * 3]
    assert rows(text, "state of sgd, ZeRO-1")[0] == ["102.2", "12.8", "1.6"]


def test_options_change_the_plan(capsys):
    found = {}
    for options in ((), ("--no-overlap",), ("--zero",), ("--bucket-mb", "100", "--first-mb", "30")):
        scale("resnet-50", "--gpus", "32", "--fabric", "tcp-25", *options)
        found[options] = capsys.readouterr().out
    assert "all-reduce as float32, beside backward" in found[()]
    assert "all-reduce as float32, after backward" in found["--no-overlap",]
    assert "reduce-scatter and all-gather (ZeRO-1)" in found["--zero",] and "sum with ZeRO-1" in found["--zero",]
    bounds = Plan(first=30e6, bucket=100e6).bounds(scaling.network("resnet-50"))
    assert f"MB of the {len(bounds)} buckets" in found["--bucket-mb", "100", "--first-mb", "30"]
    assert len(bounds) == 3
    efficiencies = {options: rows(text, "1 GPU a machine")[0][0] for options, text in found.items()}
    assert len(set(efficiencies.values())) == len(found)


def test_a_step_of_another_batch_takes_its_share(capsys):
    scale("vgg-16", "--batch", "32", "--gpus", "1")
    text = capsys.readouterr().out
    assert "60 ms for 32 images (assumed" in text and "best bucket at 1" in text


def test_measures_our_own_networks_on_the_cpu(capsys):
    scale("lenet", "--measure", "--batch", "8", "--gpus", "1", "8")
    text = capsys.readouterr().out
    (milliseconds,) = re.findall(r"step on one GPU: (\S+) ms for 8 images \(measured here, on the CPU\)", text)
    assert float(milliseconds) > 0
    assert "61,706 parameters" in text and "1 bucket:" in text


@pytest.mark.parametrize(
    "arguments, says",
    [
        (["alexnet"], "network is 'alexnet', want one of keras-cnn"),
        (["--fabric", "string"], "fabric is 'string', want one of"),
        (["--gpus", "8", "0"], "--gpus is 0, want at least 1"),
        (["--gpus", "-3"], "--gpus is -3, want at least 1"),
        (["--step-ms", "-1"], "--step-ms is -1, want a number above 0"),
        (["--step-ms", "nan"], "--step-ms is nan, want a number above 0"),
        (["--batch", "0"], "--batch is 0, want"),
        (["--bucket-mb", "0"], "--bucket-mb is 0, want"),
        (["--first-mb", "-2"], "--first-mb is -2, want"),
        (["--memory-gb", "inf"], "--memory-gb is inf, want"),
        (["--wire", "int8"], "wire is 'int8', want one of float32, bfloat16"),
        (["vgg-16", "--optimizer", "lion"], "optimizer is 'lion', want one of adam, sgd"),
        (["vgg-16", "--measure"], "--measure runs our own networks alone"),
        (["lenet", "--measure", "--step-ms", "3"], "--measure and --step-ms both"),
    ],
)
def test_refuses_in_one_line_before_it_prints(arguments, says, capsys):
    with pytest.raises(UsageError) as refusal:
        scale(*arguments)
    assert says in str(refusal.value) and "\n" not in str(refusal.value)
    assert capsys.readouterr().out == ""


def test_text_where_a_number_belongs_is_refused_in_one_line(capsys):
    with pytest.raises(SystemExit) as left:
        scale("--gpus", "many")
    assert left.value.code == 2
    text = capsys.readouterr()
    assert text.out == "" and text.err.count("\n") == 1 and "--gpus" in text.err
