"""A differentiable op with a CUDA kernel of one's own, in about ten lines.

python examples/custom_kernel.py [--device cuda]

The op is squareplus, out = (x + sqrt(x^2 + 4)) / 2, a smooth relu. The kernel is the formula; the rule of the gradient
is the derivative, out / sqrt(x^2 + 4), written in differentiable operations, so that every further derivative comes
free. On the device "interpreter" the compiled kernel runs in NumPy, on any machine; with --device cuda on a GPU.
The kernel is compiled when it is first started, with `pip install -e ".[compile]"`, which needs no GPU
(examples/docs/gpu-kernels.md).

Expect equal numbers on the CPU and on the device, gradients that agree with differences, and a network that learns.
"""

import argparse
import math

import numpy as np

import minigrad
from minigrad import device, gradcheck, gradgradcheck, nn, optim, primitive
from minigrad_kernels.toolchain.cuda import cuda, f32, kernel

THREADS = 256


@kernel("f32[:] x, f32[:] out", threads=THREADS)
def squareplus_f32(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = (x[i] + math.sqrt(x[i] * x[i] + f32(4))) / f32(2)


@primitive
def squareplus(input):
    if type(input) is np.ndarray:  # on the CPU
        return (input + np.sqrt(input * input + 4)) / 2
    x = device.contiguous(input)
    out = device.empty_like(x)
    if x.size:
        squareplus_f32((-(-x.size // THREADS),), (THREADS,), (x.reshape(-1), out.reshape(-1)))
    return out


squareplus.grads(input=lambda g, input, out: g * out / (2 * out - input))  # 2 out - x = sqrt(x^2 + 4)


class Squareplus(nn.Module):
    def forward(self, input):
        return squareplus(input)


def main(device="interpreter"):
    """The largest difference between the CPU and the device, and the losses of a small training there."""
    minigrad.manual_seed(0)
    x = minigrad.randn(3, 5, dtype="float64", requires_grad=True)
    assert gradcheck(squareplus, [x]) and gradgradcheck(squareplus, [x])
    print("first and second gradient agree with differences")

    found = []
    for place in ("cpu", device):
        x = (minigrad.arange(1000, dtype="float32") / 100 - 5).to(place).detach().requires_grad_()
        out = squareplus(x)
        out.sum().backward()
        found.append((out.detach().numpy(), x.grad.numpy()))
    difference = max(float(abs(here - there).max()) for here, there in zip(*found, strict=True))
    print(f"largest difference between cpu and {device}: {difference:.1e}")

    model = nn.Sequential(nn.Linear(1, 8), Squareplus(), nn.Linear(8, 1)).to(device)
    optimizer = optim.Adam(model.parameters(), lr=0.1)
    points = minigrad.linspace(-2, 2, 32).reshape(32, 1)
    targets, points = points.sin().to(device), points.to(device)
    losses = []
    for _ in range(20):
        loss = nn.functional.mse_loss(model(points), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print(f"fit to a sine on {device}: loss {losses[0]:.4f}, after {len(losses)} steps {losses[-1]:.4f}")
    return difference, losses


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A differentiable op with a CUDA kernel of one's own.")
    parser.add_argument("--device", default="interpreter", help="interpreter or cuda")
    main(**vars(parser.parse_args()))
