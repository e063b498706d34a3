"""What is refused: runs every row of tests/refusals and counts them.

    python tests/reliability/refusals.py            # run all rows
    python tests/reliability/refusals.py --write    # and keep the counts in results/refusals.json

A row that is not refused as it says, or whose inputs were changed, is printed, and the exit status is 1.
"""

import argparse
import sys
from pathlib import Path

from tqdm import tqdm

ROOT = Path(__file__).parents[2]
sys.path[:1] = [str(ROOT), str(ROOT / "kernels")]

from tests.refusals import check, families, setting  # noqa: E402
from tests.reliability.results import store  # noqa: E402


def run(family, rows):
    """The counts of a family (rows, rows of which inputs were seen, inputs) and what failed."""
    inputs, failed = [], []
    for row in tqdm(rows, family, disable=None):
        try:
            with setting(family):
                inputs.append(check(row))
        except Exception as error:
            failed.append(f"{family}: {row[0]}: {type(error).__name__}: {error}")
    return {"refused": len(inputs), "with inputs unchanged": sum(map(bool, inputs)), "inputs": sum(inputs)}, failed


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--write", action="store_true", help="keep the counts in results/refusals.json")
    options = parser.parse_args()
    found, failed = {}, []
    for family, rows in families().items():
        found[family], wrong = run(family, rows)
        failed += wrong
        print(f"{family:16}", *(f"{name} {count:6,}" for name, count in found[family].items()))
    print(*failed, sep="\n")
    total, unchanged = (sum(row[key] for row in found.values()) for key in ("refused", "with inputs unchanged"))
    checked = f"{total + len(failed):,} calls that must be refused, in {len(found)} families"
    text = f"{total:,} refused in the words of their rows; inputs looked at for {unchanged:,}, all unchanged"
    print(f"{checked}: {text}; {len(failed)} failed")
    if options.write and not failed:
        store("refusals", checked, text, "python tests/reliability/refusals.py", families=found)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
