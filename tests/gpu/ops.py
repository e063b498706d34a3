"""Every op of the engine on the device, beside the CPU; moving, and what the device reports."""

from .correctness import run_tests

FILES = ("ops/test_ops.py", "device/test_devices.py")


def run(found):
    run_tests(found, FILES, "-k", "cuda")  # of the second file, what is not about the stand-in
