"""The tables of the CPU benchmark show what its results files hold, and say what is absent."""

from . import cpu_tables as tables
from . import precision, precision_tables

MACHINE = {"cpu": "Some CPU", "cores": 2, "python": "3.11.7", "jax": "0.10.2", "date": "2026-11-22", "commit": "abc"}


def row(**more):
    ms = {"minigrad": 5.25, "torch": 19.5, "torch nchw": 14.0, "torch nhwc": 12.04, "jax": 136.4}
    counted = {"best": "torch nhwc", "ratio": 3.71, "ratio_best": 2.29, "not_run": {"tinygrad": "not installed"}}
    return {"model": "lenet", "batch_size": 64, "threads": 2, "ms": ms} | counted | more


def test_steps():
    text = "\n".join(tables.cpu_tables({"steps": {"machine": MACHINE, "rows": [row()]}}))
    assert "| lenet | 64 | 2 | 5.25 | 19.5 | 12.0 | 136 | 3.71 | 2.29 |" in text
    assert "JAX" in text and "python 3.11.7, jax 0.10.2; 2026-11-22, commit abc" in text
    assert "tinygrad was not run: not installed." in text


def test_the_ratios_of_single_sets_stand_in_brackets():
    part = {"machine": MACHINE, "rows": [row(ratio_sets=[3.9, 3.1, 3.71], ratio_best_sets=[2.3, 2.2, 2.4])]}
    text = "\n".join(tables.step_table(part))
    assert "| 3.71 (3.1 to 3.9) | 2.29 (2.2 to 2.4) |" in text and "in brackets those of single sets" in text
    alone = "\n".join(tables.step_table({"machine": MACHINE, "rows": [row(ratio_sets=[3.71])]}))
    assert "| 3.71 | 2.29 |" in alone and "brackets" not in alone


def test_where_a_peer_did_not_run():
    rows = [row(), row(model="resnet", not_run={}), row(threads=1)]
    found = tables.reasons(rows)
    assert found == [
        "",
        "tinygrad was not run on lenet (batch 64, threads 2), lenet (batch 64, threads 1): not installed.",
    ]


def test_what_was_not_measured_is_a_dash():
    rows = [row(), row(ms={"minigrad": 1.0, "torch": 2.0}, best=None, ratio_best=None)]
    text = "\n".join(tables.step_table({"machine": MACHINE, "rows": rows}))
    assert "| lenet | 64 | 2 | 1.00 | 2.00 | - | - | 3.71 | - |" in text


def test_random_networks_are_described():
    layers = [["conv", 3, 40, 5, 2, 2, False], ["norm", 40], ["relu"], ["pool", 2], ["conv", 40, 9, 3, 1, 0, True]]
    drawn = row(shape=[3, 28, 31], optimizer="Adam", layers=[*layers, ["relu"], ["dropout", 0.25], ["flatten"]])
    text = "\n".join(tables.cpu_tables({"random": {"machine": MACHINE, "seed": 77, "rows": [drawn]}}))
    assert "seed 77" in text
    assert "| 3x28x31; conv 40, 5x5, stride 2, norm, pool; conv 9, 3x3, dropout; Adam | 64 | 2 | 5.25 |" in text


def test_an_epoch_takes_the_faster_loader():
    ms = {"minigrad": 1000, "torch, 0 loading": 3000, "torch, 2 loading": 3500, "torch nhwc, 2 loading": 2500}
    part = {"machine": MACHINE, "images": 10000, "data": "random", "rows": [row(ms=ms, ratio=3.0, ratio_best=2.5)]}
    text = "\n".join(tables.cpu_tables({"epoch": part}))
    assert "| 1.00 | 3.00 | 2.50 | 3.0 | 2.5 |" in text and "10,000 images of random data" in text


def test_memory():
    names = {"first_step_s": 0.52, "peak_mb": 201.7, "grown_mb": 80.2}
    values = {key: {"minigrad": value, "torch": 2 * value} for key, value in names.items()}
    text = "\n".join(tables.cpu_tables({"memory": {"machine": MACHINE, "rows": [row(**values, empty_cache_s=6.25)]}}))
    assert "| network | minigrad, nothing compiled, s | minigrad, s | PyTorch, s | minigrad, MB | PyTorch, MB |" in text
    assert "| lenet | 6.25 | 0.52 | 1.04 | 202 (80) | 403 (160) |" in text


def test_operations():
    def entry(op, what, ratio, threads=2):
        return dict(op=op, what=what, threads=threads, minigrad_us=10.0, torch_us=10 * ratio, ratio=ratio)

    ops = [entry("relu", "forward", 9.0, 1), entry("relu", "forward", 2.0), entry("relu", "both", 0.5)]
    results = MACHINE | {"ops": [*ops, entry("Adam", "step", 3.0)]}
    text = "\n".join(tables.ops_table(results))
    assert "| relu | 10.0 | 20.0 | 2.0 | 10.0 | 5.0 | 0.5 |" in text
    assert "| Adam | - | - | - | 10.0 | 30.0 | 3.0 |" in text
    summary = "\n".join(tables.ops_summary(results))
    assert "2 of 3 figures are at least as fast, the median is 2.0 times as fast." in summary


def test_accuracies_by_precision():
    def summary(*values):
        return precision.summary(list(values), [98.0, 99.0])

    row = {"job": "MNIST", "command": "minigrad train", "seeds": 2}
    row["precisions"] = {
        "float32": summary(98.0, 99.0),
        "bfloat16": summary(98.5, 99.5),
        "float16": summary(98.2, 98.0),
    }
    text = "\n".join(precision_tables.precision_table(MACHINE | {"jobs": [row]}))
    assert "| MNIST | 2 | 98.50 | 99.00 (+0.50 ± 0.00) | 98.10 (-0.40 ± 0.60) |" in text
    assert "`minigrad train --precision P`" in text
    assert precision.apart(row) == ["bfloat16"], "beyond 0.2 points by more than twice the standard error"


def test_the_table_of_types_is_that_of_autocast():
    text = "\n".join(precision_tables.table_of_types())
    assert "`conv2d`" in text.splitlines()[2] and "in float32 | `binary_cross_entropy`" in text
