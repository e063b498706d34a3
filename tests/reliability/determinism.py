"""Same seed, same bits: python tests/reliability/determinism.py [--types ...] [--write]

Every row of the ops' tables with its gradients, by the fast functions and by the rules, and every optimiser, on 1, 2, 4
and once more 4 threads in one process; trainings with dropout, batch norm, augmentation and a loader's thread, each in
processes of their own on 1, 2 and 4 threads. The exit status is 1 if any bit differs. --write stores the figures in
results/determinism.json.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from tqdm import tqdm

ROOT = Path(__file__).parents[2]
sys.path[:1] = [str(ROOT), str(ROOT / "kernels")]

from tests.reliability.results import store  # noqa: E402

THREADS = [1, 2, 4, 4]


def same_bits(parts, threads, types, seed=0):
    """What tests/core/same_bits.py says of these parts, in a process of its own."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.core.same_bits", "--parts", *parts, "--types", *types]
    command += ["--threads", *map(str, threads)]
    settings = {"NUMBA_NUM_THREADS": str(max(threads)), "PYTHONHASHSEED": str(seed), "OMP_WAIT_POLICY": "PASSIVE"}
    settings["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "kernels")])
    return json.loads(subprocess.run(command, env=os.environ | settings, stdout=subprocess.PIPE, check=True).stdout)


def compared(types):
    """({part: how many results}, [what differs], how many trainings were compared)."""
    counts, different = {}, []
    jobs = [(part, kind) for part in ("ops", "rules", "optimisers") for kind in types]
    for part, kind in tqdm(jobs, "ops", unit="table"):
        found = same_bits([part], THREADS, [kind])[part]
        counts[part] = counts.get(part, 0) + found["compared"]
        different += found["different"]
    runs = [
        same_bits(["trainings"], [count], types, seed)["trainings"]
        for seed, count in enumerate(tqdm([1, 2, 4, 4], "trainings", unit="process"))
    ]
    if len({run["hash"] for run in runs}) > 1:
        different.append("trainings in other processes")
    return counts, different, sum(run["compared"] for run in runs)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--types", nargs="+", default=["float32", "float64"], help="element types of the tables")
    parser.add_argument("--write", action="store_true", help="store the figures")
    arguments = parser.parse_args()
    counts, different, trainings = compared(arguments.types)
    results = sum(counts.values())
    print(f"{results} results of ops and optimisers {counts}, {trainings} trainings; different: {different or 'none'}")
    if arguments.write:
        store(
            "determinism",
            f"bits of {results:,} values with gradients of every op, and updates of every optimiser, on 1, 2 and 4 "
            f"threads; {trainings} trainings in processes of their own",
            f"{len(different)} differ",
            "python tests/reliability/determinism.py --write",
            threads=sorted({*THREADS}),
            types=arguments.types,
            results=counts,
            trainings=trainings,
            different=different,
        )
    sys.exit(bool(different))


if __name__ == "__main__":
    main()
