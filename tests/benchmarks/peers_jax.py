"""The benchmarks' networks in JAX: one jitted step, channels last, old parameters donated, Adam and SGD by hand.

A layer is (parameters, function), where function(parameters, x, key) gives its output. Batch norm keeps no running
statistics, which training does not need.
"""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
from tasks import BATCHES, data, halves

LAYOUT, EPSILON = ("NHWC", "HWIO", "NHWC"), 1e-5


class Jax:
    def training(self, task, size):
        images, labels = data(task.shape, size)
        images = [jnp.asarray(array.transpose(0, 2, 3, 1)) for array in images]
        labels = [jnp.asarray(array.astype(np.int32)) for array in labels]
        parameters, network = sequence(task.layers, np.random.default_rng(0))
        count = sum(leaf.size for leaf in jax.tree.leaves(parameters))
        moments = jax.tree.map(jnp.zeros_like, (parameters, parameters))
        state, train, numbers = [parameters, moments], jitted(network, task), itertools.count()

        def step(i):
            *state[:], loss = train(*state, images[i % BATCHES], labels[i % len(labels)], next(numbers))
            return jax.block_until_ready((loss, state))[0]

        return step, count


def sequence(layers, random):
    """Layers as one."""
    owns, functions = zip(*(layer(random, *sizes) for sizes in layers), strict=True) if layers else ((), ())

    def function(owns, x, key):
        for number, (own, function) in enumerate(zip(owns, functions, strict=True)):
            x = function(own, x, jax.random.fold_in(key, number))
        return x

    return list(owns), function


def layer(random, kind, *sizes):
    def uniform(fan_in, *shape):
        return jnp.asarray(random.uniform(-1, 1, shape).astype(np.float32) / np.float32(math.sqrt(fan_in)))

    if kind == "block":
        (body, f), (shortcut, g) = (sequence(part, random) for part in halves(*sizes))
        return [body, shortcut], lambda own, x, key: jax.nn.relu(f(own[0], x, key) + g(own[1], x, key))
    if kind == "conv":
        channels, filters, size, stride, padding, bias = sizes
        fan_in, around = channels * size * size, ((padding, padding),) * 2
        own = [uniform(fan_in, size, size, channels, filters), *([uniform(fan_in, filters)] if bias else [])]
        conv = lambda x, w: jax.lax.conv_general_dilated(x, w, (stride,) * 2, around, dimension_numbers=LAYOUT)
        return own, lambda own, x, key: conv(x, own[0]) + (own[1] if bias else 0)
    if kind == "linear":
        own = [uniform(sizes[0], *sizes), uniform(sizes[0], sizes[1])]
        return own, lambda own, x, key: x @ own[0] + own[1]
    if kind == "norm":
        return [jnp.ones(sizes[0]), jnp.zeros(sizes[0])], norm
    plain = {
        "relu": lambda x, key: jax.nn.relu(x),
        "flatten": lambda x, key: x.reshape(len(x), -1),
        "mean": lambda x, key: x.mean((1, 2), keepdims=True),
        "pool": lambda x, key: jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, *[(1, *sizes * 2, 1)] * 2, "VALID"),
        "dropout": lambda x, key: x * jax.random.bernoulli(key, 1 - sizes[0], x.shape) / (1 - sizes[0]),
    }[kind]
    return [], lambda own, x, key: plain(x, key)


def norm(own, x, key):
    return (x - x.mean((0, 1, 2))) * (jax.lax.rsqrt(x.var((0, 1, 2)) + EPSILON) * own[0]) + own[1]


def jitted(network, task):
    """train(parameters, moments, images, labels, number of the step) -> the first two anew, and the loss."""

    def loss_of(parameters, x, y, key):
        scores = jax.nn.log_softmax(network(parameters, x, key))
        return -jnp.take_along_axis(scores, y[:, None], 1).mean()

    def train(parameters, moments, x, y, i):
        loss, gradients = jax.value_and_grad(loss_of)(parameters, x, y, jax.random.fold_in(jax.random.key(0), i))
        update = adam if task.optimizer == "Adam" else sgd
        return *update(parameters, gradients, moments, i, **task.options), loss

    return jax.jit(train, donate_argnums=(0, 1))


def adam(parameters, gradients, moments, i, lr):
    one = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, moments[0], gradients)
    two = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, moments[1], gradients)
    rate, scale = lr / (1 - 0.9 ** (i + 1)), 1 - 0.999 ** (i + 1)
    moved = lambda p, m, v: p - rate * m / (jnp.sqrt(v / scale) + 1e-8)
    return jax.tree.map(moved, parameters, one, two), (one, two)


def sgd(parameters, gradients, moments, i, lr, momentum):
    buffers = jax.tree.map(lambda b, g: momentum * b + g, moments[0], gradients)
    return jax.tree.map(lambda p, b: p - lr * b, parameters, buffers), (buffers, moments[1])
