"""What the tape itself costs: python tests/benchmarks/tape.py

A chain of 12 operations whose forward and rules do no arithmetic at all, each with a parameter that needs a gradient
beside the chain; so all the time is the tape's: arguments, nodes, 24 rules, hooks of 12 leaves.
"""

import statistics
import time

import numpy as np

from minigrad import Tensor, primitive

OPS, STEPS = 12, 2000
array = np.zeros((4, 4), np.float32)


@primitive
def nothing(x, weight):
    return array


nothing.grads(x=lambda g, weight: Tensor.made(array), weight=lambda g, x: Tensor.made(array))


def main():
    x, seed = Tensor(array), Tensor(array)
    weights = [Tensor(array, requires_grad=True) for _ in range(OPS)]
    seconds = []
    for _ in range(STEPS):
        for weight in weights:
            weight.grad = None
        start = time.perf_counter()
        out = x
        for weight in weights:
            out = nothing(out, weight)
        out.backward(seed)
        seconds.append(time.perf_counter() - start)
    print(f"{OPS} operations, forward and backward: median {1e6 * statistics.median(seconds):.0f} us a step")


if __name__ == "__main__":
    main()
