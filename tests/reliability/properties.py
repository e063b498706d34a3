"""Random calls of every op beside its definition in NumPy: values, gradients, types, layouts, refusals.

    python tests/reliability/properties.py [--examples 200] [--op NAME ...] [--seed N] [--write]

The rules are those of tests/properties, of which the tests run 25 calls for each op. Every op starts from the seed that
is printed, a new one unless it is given. Each failure is shown once, with the smallest call that was found to show it.
"""

import argparse
import random
import sys
import time
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:1] = [str(ROOT), str(ROOT / "kernels")]

from hypothesis import HealthCheck, Phase, given, seed, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from tqdm import tqdm  # noqa: E402

from tests.properties import rules  # noqa: E402
from tests.properties.checks import check  # noqa: E402
from tests.reliability.results import store  # noqa: E402

PHASES = [Phase.generate, Phase.shrink]


def main():
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("--examples", type=int, default=200, help="calls of each op (default 200)")
    words.add_argument("--op", nargs="*", metavar="NAME", help="default: all")
    words.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    words.add_argument("--write", action="store_true", help="keep the figures")
    options = words.parse_args()
    known = rules()
    if unknown := set(options.op or ()) - known.keys():
        words.error(f"no op {', '.join(sorted(unknown))}")
    if options.write and options.op:
        words.error("--write keeps the figures of all ops; leave out --op")
    print(f"seed {options.seed}", flush=True)
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", ".* they broadcast to", UserWarning)  # losses, as in PyTorch
    begin, calls, failures = time.perf_counter(), 0, 0
    for name in tqdm(options.op or known, unit=" ops", disable=None):
        count, errors = tried(known[name], options)
        calls, failures = calls + count, failures + len(errors)
        for error in errors:
            notes = "\n".join(getattr(error, "__notes__", []))
            tqdm.write(f"{name}: {type(error).__name__}: {error}\n{notes}\n")
    seconds = time.perf_counter() - begin
    print(f"{calls:,} calls, {failures} failures, {seconds:.0f} s")
    if options.write:
        keep(len(known), options, calls, failures, seconds)
    return int(failures > 0)


def tried(rule, options):
    """(calls, the errors that they brought out) of an op."""
    counted = []

    @seed(options.seed)
    @settings(
        max_examples=options.examples,
        database=None,
        deadline=None,
        phases=PHASES,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def run(data):
        counted.append(1)
        check(rule, data.draw)

    try:
        run()
    except BaseExceptionGroup as group:
        return len(counted), list(group.exceptions)
    except Exception as error:
        return len(counted), [error]
    return len(counted), []


def keep(ops, options, calls, failures, seconds):
    store(
        "properties",
        f"{ops} ops on {options.examples:,} random calls each, beside their definitions in NumPy",
        f"{failures} failures in {calls:,} calls",
        f"python tests/reliability/properties.py --examples {options.examples} --write",
        ops=ops,
        examples=options.examples,
        calls=calls,
        failures=failures,
        seed=options.seed,
        seconds=round(seconds),
    )


if __name__ == "__main__":
    sys.exit(main())
