"""A network of two layers trained by kernels alone, on any device: every gradient is written down by hand.

hidden = relu(x W1 + b1)        logits = hidden W2 + b2        loss = cross entropy, averaged over the batch
dlogits = (softmax(logits) - one_hot) / N
dW2 = hidden^T dlogits          db2 = sums of the columns of dlogits
dhidden = dlogits W2^T          dpre = dhidden where hidden > 0          dW1 = x^T dpre          db1 = its sums
"""

import numpy as np

from minigrad_kernels import bias, matmul, optimizer, softmax
from minigrad_kernels.optimizer import Adam

from .kernel_runs import moved, on_host

__all__ = ["Network"]

IGNORED = -100


class Network:
    """Parameters, their gradients and Adam's state on a device, from a fixed seed."""

    def __init__(self, inputs, hidden, classes, device, dtype=np.float32, rate=3e-3):
        random = np.random.default_rng(0)
        shapes = {"w1": (inputs, hidden), "b1": (hidden,), "w2": (hidden, classes), "b2": (classes,)}
        self.device, self.dtype, self.step, self.rate = device, dtype, 0, rate
        self.parameters = {
            name: self.there(random.uniform(-1, 1, shape) / np.sqrt(shapes["w" + name[1]][0]))
            for name, shape in shapes.items()
        }
        self.gradients, self.mean, self.square = (
            {name: self.there(np.zeros(shape)) for name, shape in shapes.items()} for _ in range(3)
        )

    def there(self, array):
        """A copy on the device, in the type of the network."""
        return moved(np.array(array, self.dtype), self.device)

    def bytes_there(self, count):
        return moved(np.empty(count, np.uint8), self.device)

    def product(self, a, b, row=None, relu=False, out=None):
        """relu(a b + row)"""
        if out is None:
            out = self.there(np.full(matmul.output_shape(a.shape, b.shape), np.nan))
        matmul.forward(a, b, row, relu, out, self.bytes_there(matmul.workspace(a, b)))
        return out

    def forward(self, x):
        """(hidden, logits)"""
        p = self.parameters
        hidden = self.product(x, p["w1"], p["b1"], relu=True)
        return hidden, self.product(hidden, p["w2"], p["b2"])

    def train(self, images, labels):
        """One step on a batch of NumPy arrays; the loss before it."""
        x, target = self.there(images), moved(np.array(labels, np.int64), self.device)
        hidden, logits = self.forward(x)
        loss, divisor, sums, dlogits = (
            self.there(np.full(shape, np.nan)) for shape in ((), (), len(images), logits.shape)
        )
        space = self.bytes_there(softmax.workspace(len(images)))
        softmax.cross_entropy_total(logits, target, IGNORED, True, loss, divisor, sums, space)
        one = self.there(np.ones(()))
        softmax.cross_entropy_grad(one, logits, target, IGNORED, sums, divisor, dlogits)
        self.backward(x, hidden, dlogits)
        self.update()
        return float(on_host(loss))

    def backward(self, x, hidden, dlogits):
        g = self.gradients
        self.product(hidden.T, dlogits, out=g["w2"])
        bias.column_sums(dlogits, g["b2"], self.bytes_there(bias.workspace(dlogits.shape)))
        dhidden = self.product(dlogits, self.parameters["w2"].T)
        dpre = self.there(np.full(hidden.shape, np.nan))
        bias.bias_relu_grad(dhidden, hidden, dpre, g["b1"], self.bytes_there(bias.workspace(hidden.shape)))
        self.product(x.T, dpre, out=g["w1"])

    def update(self):
        self.step += 1
        hyper = np.zeros(len(Adam))
        settings = {Adam.RATE: self.rate, Adam.BETA1: 0.9, Adam.BETA2: 0.999, Adam.EPS: 1e-8, Adam.STEP: self.step}
        for name, value in settings.items():
            hyper[name] = value
        lists = [list(part.values()) for part in (self.parameters, self.gradients, self.mean, self.square)]
        optimizer.adam(*lists, None, hyper)

    def accuracy(self, images, labels):
        _, logits = self.forward(self.there(images))
        return float((on_host(logits).argmax(1) == labels).mean())
