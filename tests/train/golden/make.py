"""Ten steps of LeNet by definition: writes lenet_ten_steps.json beside this file.

Run it as `python tests/train/golden/make.py`. The forward pass, the gradients and the update are written out here over
the reference functions of the kernels, in NumPy's float64: neither the tape nor a compiled kernel takes part. Data and
first weights come from the raw words of Philox, which NumPy keeps the same for ever, unlike its distributions.
"""

import json
from pathlib import Path

import numpy as np

from minigrad_kernels.conv2d import reference as conv2d
from minigrad_kernels.matmul import reference as matmul
from minigrad_kernels.optimizer import SGD
from minigrad_kernels.optimizer import reference as optimizer
from minigrad_kernels.pool2d import reference as pool2d
from minigrad_kernels.softmax import reference as softmax

FILE = Path(__file__).with_name("lenet_ten_steps.json")
GEOMETRY = ((1, 1), (0, 0), (1, 1), 1)  # stride, padding, dilation, groups
POOL = ((2, 2), (2, 2), (0, 0), (1, 1))  # kernel_size, stride, padding, dilation


# ---- data and weights ------------------------------------------------------------------------------------------------

RATE, MOMENTUM, STEPS, BATCH, CLASSES = 0.05, 0.9, 10, 16, 10

SHAPES = {
    "0.weight": (6, 1, 5, 5),
    "0.bias": (6,),
    "3.weight": (16, 6, 5, 5),
    "3.bias": (16,),
    "7.weight": (120, 400),
    "7.bias": (120,),
    "9.weight": (84, 120),
    "9.bias": (84,),
    "11.weight": (10, 84),
    "11.bias": (10,),
}


def even(key, shape):
    """Numbers spread evenly over [-1, 1), exact in float32."""
    words = np.random.Philox(key=key).random_raw(int(np.prod(shape)))
    return ((words >> np.uint64(41)).astype(np.float64) * 2.0**-22 - 1).reshape(shape)


def weights():
    """{name: array}: evenly in +-2^k, the power of two below 2.4 / sqrt(fan_in)."""
    state = {}
    for key, (name, shape) in enumerate(SHAPES.items()):
        fan_in = np.prod(SHAPES[name.replace("bias", "weight")][1:])
        state[name] = even(key, shape) * 2.0 ** np.floor(np.log2(2.4 / np.sqrt(fan_in)))
    return state


def batch():
    """(images, classes): each class is a pattern, each image its pattern and noise."""
    patterns, noise = even(100, (CLASSES, 1, 32, 32)), even(101, (BATCH, 1, 32, 32))
    classes = np.arange(BATCH) * 7 % CLASSES
    return patterns[classes] + noise * 0.5, classes


# ---- the network -----------------------------------------------------------------------------------------------------


def convolution(x, w, bias):
    """(pooled ReLU of the convolution, what the way back needs)."""
    rectified = np.maximum(conv2d.forward(x, w, bias, False, *GEOMETRY), 0)
    half = tuple(size // 2 for size in rectified.shape[2:])
    out, positions = pool2d.max_forward(rectified, *POOL, half)
    return out, (x, w, rectified, positions)


def convolution_back(g, kept):
    """(gradient of the input, of the weight, of the bias)."""
    x, w, rectified, positions = kept
    g = pool2d.max_input_grad(g, positions, *POOL, rectified.shape[2:]) * (rectified > 0)
    dx = conv2d.input_grad(g, w, *GEOMETRY, x.shape[2:])
    return dx, conv2d.weight_grad(g, x, *GEOMETRY, w.shape[2:]), g.sum((0, 2, 3))


def loss_and_gradients(state, images, classes):
    gradients = {}
    hidden, kept = images, {}
    for layer in ("0", "3"):
        hidden, kept[layer] = convolution(hidden, state[f"{layer}.weight"], state[f"{layer}.bias"])
    pooled, hidden = hidden, hidden.reshape(BATCH, -1)
    for layer in ("7", "9", "11"):
        kept[layer] = hidden
        hidden = matmul.forward(hidden, state[f"{layer}.weight"].T, state[f"{layer}.bias"])
        hidden = hidden if layer == "11" else np.maximum(hidden, 0)
    losses, logsumexp = softmax.cross_entropy(hidden, classes, -100)
    g = softmax.cross_entropy_grad(np.full(BATCH, 1 / BATCH), hidden, classes, -100, logsumexp, None)
    for layer in ("11", "9", "7"):
        gradients[f"{layer}.weight"] = matmul.forward(g.T, kept[layer])
        gradients[f"{layer}.bias"] = g.sum(0)
        g = matmul.forward(g, state[f"{layer}.weight"])
        g = g if layer == "7" else g * (kept[layer] > 0)
    g = g.reshape(pooled.shape)
    for layer in ("3", "0"):
        g, gradients[f"{layer}.weight"], gradients[f"{layer}.bias"] = convolution_back(g, kept[layer])
    return losses.mean(), gradients


def trajectory():
    """The losses before each step and after the last."""
    state, (images, classes) = weights(), batch()
    buffers, losses = dict.fromkeys(state, 0.0), []
    hyper = np.zeros(len(SGD))
    hyper[SGD.RATE], hyper[SGD.MOMENTUM] = RATE, MOMENTUM
    for step in range(STEPS):
        loss, gradients = loss_and_gradients(state, images, classes)
        losses.append(float(loss))
        hyper[SGD.FIRST] = step == 0
        for name in state:
            state[name], buffers[name] = optimizer.sgd(state[name], gradients[name], buffers[name], hyper)
    return [*losses, float(loss_and_gradients(state, images, classes)[0])]


def main():
    # The longest sum is the gradient of the first filters: one term per image and pixel of the output. Errors of K
    # roundings add up like sqrt(K), and each of the steps passes on those of the steps before it.
    longest = BATCH * 28 * 28
    tolerance = {kind: float(np.finfo(kind).eps * np.sqrt(longest) * STEPS) for kind in ("float32", "float64")}
    why = "eps * sqrt(terms of the longest sum) * steps, relative to the first loss"
    record = {"losses": trajectory(), "tolerance": tolerance, "tolerance_is": why, "longest_sum": longest}
    FILE.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
