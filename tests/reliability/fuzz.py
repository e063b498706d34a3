"""Damaged and hostile files for every reader, guided by what of the reader each input reaches (atheris, libFuzzer).

    python tests/reliability/fuzz.py [TARGET...] [--seconds 20] [--write]

Each target of tests/reliability/fuzzing runs in a process of its own for so many seconds, on inputs made from valid
files. It fails if another error leaves the reader than the documented ones, if an input takes more than 10 seconds, or
more memory than 2 GiB. Every kind of failure is shown once, with the input in the form of a row for
tests/reliability/test_fuzzing.py. Needs the extra `fuzz`.
"""

import argparse
import json
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:1] = [str(ROOT), str(ROOT / "kernels")]

from tests.reliability.fuzzing.target import to_row  # noqa: E402

INSTRUMENTED = [f"minigrad.{part}" for part in ("checkpoint", "cli", "data", "export", "nn", "optim", "train")]
INSTRUMENTED += ["gzip", "numpy.lib", "tarfile", "zipfile"]
INPUT_SECONDS, MEMORY, LONGEST = 10, 2048, 1 << 16  # of one input: time, MiB, bytes
GRACE = 120  # seconds for starting and for the last input
QUICK = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # files in memory, a thousand times as fast


def main():
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("targets", nargs="*", metavar="TARGET", help="default: all")
    words.add_argument("--seconds", type=int, default=20, help="for each target (default 20)")
    words.add_argument("--write", action="store_true", help="keep the figures")
    words.add_argument("--child", help=argparse.SUPPRESS)
    options = words.parse_args()
    if options.child:
        return child(options.child, options.seconds)
    from tests.reliability.fuzzing import TARGETS

    unknown = set(options.targets) - set(TARGETS)
    if unknown:
        words.error(f"no target {', '.join(sorted(unknown))}; there are {', '.join(TARGETS)}")
    found = {name: tried(name, options.seconds) for name in options.targets or TARGETS}
    if options.write:
        keep(found)
    return int(any(one["failures"] for one in found.values()))


def tried(name, seconds):
    """Run a target; returns its figures."""
    print(f"{name}: {seconds} s ...", flush=True)
    with tempfile.TemporaryDirectory(dir=QUICK) as folder:
        command = [sys.executable, __file__, "--child", name, "--seconds", str(seconds)]
        # Hashing decides the order of sets, and with it what counts as reached.
        environment = os.environ | {"PYTHONHASHSEED": "0", "MINIGRAD_FUZZ_FOLDER": folder}
        ran = finished(command, environment, folder, seconds + GRACE)
        failures = sorted(path.read_text() for path in Path(folder).glob("failure-*"))
        failures += [f"{path.name} {to_row(path.read_bytes())}" for path in Path(folder).glob("stopped-*")]
    said = {key: re.search(rf"stat::{key}:\s+(\d+)", ran.stderr) for key in ("number_of_executed_units", "peak_rss_mb")}
    if ran.returncode or not all(said.values()):
        failures = failures or [ran.stderr[-3000:]]
    runs, memory = (int(match[1]) if match else 0 for match in said.values())
    print(f"{name}: {runs:,} inputs, {memory} MiB at most, {len(failures)} failures", *failures, sep="\n", flush=True)
    return {"seconds": seconds, "inputs": runs, "mebibytes": memory, "failures": len(failures)}


def finished(command, environment, folder, limit):
    """The process when it has ended; it is ended after so many seconds."""
    said = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "errors": "replace"}
    with subprocess.Popen(command, env=environment, cwd=folder, **said) as process:
        try:
            _, errors = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            process.kill()
            _, errors = process.communicate()
            errors += f"did not end within {limit} s"
    return subprocess.CompletedProcess(command, process.returncode, "", errors)


def keep(found):
    """Store the figures; those of targets that did not run stay."""
    from tests.reliability.results import RESULTS, store

    file = RESULTS / "fuzz.json"
    kept = json.loads(file.read_text())["targets"] if file.exists() else {}
    stamp = {"date": time.strftime("%Y-%m-%d")}
    targets = kept | {name: one | stamp for name, one in found.items()}
    inputs, minutes = (sum(one[key] for one in targets.values()) for key in ("inputs", "seconds"))
    failures, times = sum(one["failures"] for one in targets.values()), [one["seconds"] for one in targets.values()]
    store(
        "fuzz",
        f"{len(targets)} readers of files on {inputs / 1e6:.1f} million damaged inputs, guided by coverage",
        f"{failures} errors other than the documented ones in {minutes / 60:.0f} minutes, "
        f"{min(times)} to {max(times)} s a reader",
        "python tests/reliability/fuzz.py --seconds N --write",
        targets=targets,
    )


# ---- the process of a target -----------------------------------------------------------------------------------------


def child(name, seconds):
    import atheris

    with atheris.instrument_imports(include=INSTRUMENTED):
        from tests.reliability.fuzzing import TARGETS
    target, folder = TARGETS[name], Path(os.environ["MINIGRAD_FUZZ_FOLDER"])
    work, corpus = folder / "work", folder / "corpus"
    work.mkdir()
    corpus.mkdir()
    seeds, read = target.prepare(work)
    for number, seed in enumerate(seeds):
        (corpus / f"seed-{number}").write_bytes(seed)
    known = set()

    def one(data):
        try:
            read(data)
        except target.errors:
            return
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            if (kind := (type(error), place.filename, place.lineno)) not in known:
                known.add(kind)
                text = "".join(traceback.format_exception(error)[-6:])
                (folder / f"failure-{len(known)}").write_text(f"{text}input {to_row(data)}\n", errors="replace")

    def mutated(data, longest, seed):
        return target.mutate(data, random.Random(seed), lambda part: atheris.Mutate(part, LONGEST))[:longest]

    limit = 2 * MEMORY * (1 << 20) + (8 << 30)  # addresses; threads and compilers ask for many that they do not use
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    words = [
        f"-max_total_time={seconds}",
        f"-timeout={INPUT_SECONDS}",
        f"-rss_limit_mb={MEMORY}",
        f"-max_len={LONGEST}",
    ]
    words += ["-print_final_stats=1", "-verbosity=1", f"-artifact_prefix={folder}/stopped-", "-seed=1"]
    atheris.Setup([sys.argv[0], *words, str(corpus)], one, custom_mutator=mutated)
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
