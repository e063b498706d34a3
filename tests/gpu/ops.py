"""Every op of the engine on the device, beside the CPU; moving, and what the device reports."""

from .correctness import OPS, run_tests


def run(found):
    run_tests(found, OPS, "-k", "cuda")  # of the second file, what is not about the stand-in
