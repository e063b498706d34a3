"""The page about scaling shows the stored figures and the model; the script that measures says what it wants."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks import scaling as script
from tests.cli_runs import environment

RESULTS = json.loads(script.RESULTS.read_text())
TEXT = script.PAGE.read_text()


def run(*arguments, **variables):
    line = [sys.executable, str(Path(script.__file__)), *arguments]
    return subprocess.run(line, capture_output=True, text=True, env=environment() | variables, timeout=100)


def test_tables_are_those_of_the_files():
    assert script.page(RESULTS, TEXT) == TEXT, "run tests/benchmarks/scaling.py --page"
    done = run("--check")
    assert done.returncode == 0, done.stderr


def test_another_figure_is_noticed():
    changed = json.loads(script.RESULTS.read_text())
    changed["steps"][0]["measured_ms"] += 1
    assert script.page(changed, TEXT) != TEXT
    assert script.page(RESULTS, TEXT.replace("PREDICTION", "MEASURED")) == TEXT


def test_stored_figures_are_complete_and_within_the_bound():
    assert {(row["mbit"], row["ranks"]) for row in RESULTS["steps"]} == set(script.LINKS)
    assert {row["overlap"] for row in RESULTS["steps"]} == {True, False}
    for row in RESULTS["steps"]:
        error = 100 * (row["predicted_ms"] / row["measured_ms"] - 1)
        assert row["error_percent"] == pytest.approx(error, abs=0.1)
        assert abs(row["error_percent"]) <= script.ALLOWED
    assert RESULTS["commit"] and RESULTS["date"] and RESULTS["numpy"] and RESULTS["python"]


def test_the_page_says_what_is_measured_and_what_is_predicted():
    measured, predicted = TEXT.split("<!-- prediction -->")
    assert "PREDICTION by the model, not a measurement" in predicted and "PREDICTION" not in measured
    assert "It is a model, not a measurement" in measured and "NCCL's tuning table" in measured
    assert "90 % of the wire" in measured


def test_latency_and_bandwidth_of_two_exchanges():
    less, more = script.FITTED
    latency, per_byte = script.fitted(0.001 + 2e-9 * less, 0.001 + 2e-9 * more)
    assert latency == pytest.approx(0.001) and per_byte == pytest.approx(2e-9)
    assert script.fitted(0.0, 1.0) == (0.0, 1 / more)


def test_the_measurement_says_what_is_missing():
    done = run(PATH="")
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("scaling: wants ") and done.stderr.count("\n") == 1
