"""The benchmarks' networks in JAX: one jitted step, channels last, old parameters donated, Adam and SGD by hand.

A layer is (parameters, running statistics, function), where function(parameters, statistics, x, key) gives its output
and the statistics anew.
"""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
from tasks import BATCHES, data, halves

LAYOUT = ("NHWC", "HWIO", "NHWC")
MOMENTUM, EPSILON = 0.1, 1e-5  # of batch norm


class Jax:
    def training(self, task, size):
        images, labels = data(task.shape, size)
        images = [jnp.asarray(array.transpose(0, 2, 3, 1)) for array in images]
        labels = [jnp.asarray(array.astype(np.int32)) for array in labels]
        parameters, running, network = sequence(task.layers, np.random.default_rng(0))
        count = sum(leaf.size for leaf in jax.tree.leaves(parameters))
        moments = jax.tree.map(jnp.zeros_like, (parameters, parameters))
        state, train, numbers = [parameters, running, moments], jitted(network, task), itertools.count()

        def step(i):
            *state[:], loss = train(*state, images[i % BATCHES], labels[i % len(labels)], next(numbers))
            return jax.block_until_ready((loss, state))[0]

        return step, count


def sequence(layers, random):
    """Layers as one."""
    made = [layer(random, *sizes) for sizes in layers]

    def function(own, kept, x, key):
        after = []
        for number, (_, _, function) in enumerate(made):
            x, new = function(own[number], kept[number], x, jax.random.fold_in(key, number))
            after.append(new)
        return x, after

    return [own for own, _, _ in made], [kept for _, kept, _ in made], function


def layer(random, kind, *sizes):
    def uniform(fan_in, *shape):
        return jnp.asarray(random.uniform(-1, 1, shape).astype(np.float32) / np.float32(math.sqrt(fan_in)))

    if kind == "block":
        owns, kepts, functions = zip(*(sequence(part, random) for part in halves(*sizes)), strict=True)

        def block(own, kept, x, key):
            outs, kept = zip(*(f(own[i], kept[i], x, key) for i, f in enumerate(functions)), strict=True)
            return jax.nn.relu(outs[0] + outs[1]), list(kept)

        return list(owns), list(kepts), block
    if kind == "conv":
        channels, filters, size, stride, padding, bias = sizes
        fan_in, around = channels * size * size, ((padding, padding),) * 2
        own = [uniform(fan_in, size, size, channels, filters), *([uniform(fan_in, filters)] if bias else [])]
        conv = lambda x, w: jax.lax.conv_general_dilated(x, w, (stride,) * 2, around, dimension_numbers=LAYOUT)
        return own, [], lambda own, kept, x, key: (conv(x, own[0]) + (own[1] if bias else 0), kept)
    if kind == "linear":
        own = [uniform(sizes[0], *sizes), uniform(sizes[0], sizes[1])]
        return own, [], lambda own, kept, x, key: (x @ own[0] + own[1], kept)
    if kind == "norm":
        ones, zeros = (lambda: jnp.ones(sizes[0])), (lambda: jnp.zeros(sizes[0]))
        return [ones(), zeros()], [zeros(), ones()], norm
    plain = {
        "relu": lambda x, key: jax.nn.relu(x),
        "flatten": lambda x, key: x.reshape(len(x), -1),
        "mean": lambda x, key: x.mean((1, 2), keepdims=True),
        "pool": lambda x, key: jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, *[(1, *sizes * 2, 1)] * 2, "VALID"),
        "dropout": lambda x, key: x * jax.random.bernoulli(key, 1 - sizes[0], x.shape) / (1 - sizes[0]),
    }[kind]
    return [], [], lambda own, kept, x, key: (plain(x, key), kept)


def norm(own, kept, x, key):
    mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2))
    count = x.size // x.shape[-1]
    news = mean, variance * count / (count - 1)
    kept = [old + MOMENTUM * (new - old) for old, new in zip(kept, news, strict=True)]
    return (x - mean) * (jax.lax.rsqrt(variance + EPSILON) * own[0]) + own[1], kept


def jitted(network, task):
    """train(parameters, running, moments, images, labels, number of the step) -> the first three anew, and the loss."""

    def loss_of(parameters, running, x, y, key):
        scores, running = network(parameters, running, x, key)
        return -jnp.take_along_axis(jax.nn.log_softmax(scores), y[:, None], 1).mean(), running

    def train(parameters, running, moments, x, y, i):
        key = jax.random.fold_in(jax.random.key(0), i)
        (loss, running), gradients = jax.value_and_grad(loss_of, has_aux=True)(parameters, running, x, y, key)
        update = adam if task.optimizer == "Adam" else sgd
        parameters, moments = update(parameters, gradients, moments, i, **task.options)
        return parameters, running, moments, loss

    return jax.jit(train, donate_argnums=(0, 1, 2))


def adam(parameters, gradients, moments, i, lr):
    one = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, moments[0], gradients)
    two = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, moments[1], gradients)
    rate, scale = lr / (1 - 0.9 ** (i + 1)), 1 - 0.999 ** (i + 1)
    moved = lambda p, m, v: p - rate * m / (jnp.sqrt(v / scale) + 1e-8)
    return jax.tree.map(moved, parameters, one, two), (one, two)


def sgd(parameters, gradients, moments, i, lr, momentum):
    buffers = jax.tree.map(lambda b, g: momentum * b + g, moments[0], gradients)
    return jax.tree.map(lambda p, b: p - lr * b, parameters, buffers), (buffers, moments[1])
