"""The tables of the CPU benchmark say what is absent, and how far single sets of processes lie apart."""

from . import precision, tables

MACHINE = {"cpu": "Some CPU", "cores": 2, "python": "3.11.7", "jax": "0.10.2", "date": "2026-11-22", "commit": "abc"}


def row(**more):
    ms = {"minigrad": 5.25, "torch": 19.5, "torch nchw": 14.0, "torch nhwc": 12.04, "jax": 136.4}
    counted = {"best": "torch nhwc", "ratio": 3.71, "ratio_best": 2.29, "not_run": {"tinygrad": "not installed"}}
    return {"model": "lenet", "batch_size": 64, "threads": 2, "ms": ms} | counted | more


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


def test_accuracies_by_precision():
    def summary(*values):
        return precision.summary(list(values), [98.0, 99.0])

    row = {"job": "MNIST", "command": "minigrad train", "seeds": 2}
    row["precisions"] = {
        "float32": summary(98.0, 99.0),
        "bfloat16": summary(98.5, 99.5),
        "float16": summary(98.2, 98.0),
    }
    text = "\n".join(tables.precision_table(MACHINE | {"jobs": [row]}))
    assert "| MNIST | 2 | 98.50 | 99.00 (+0.50 ± 0.00) | 98.10 (-0.40 ± 0.60) |" in text
    assert "`minigrad train --precision P`" in text
    assert precision.apart(row) == ["bfloat16"], "beyond 0.2 points by more than twice the standard error"
