"""The benchmarks' networks in JAX: one jitted step, channels last, old parameters donated, Adam and SGD by hand."""

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
        parameters, running = initial(task.layers, np.random.default_rng(0))
        count = sum(leaf.size for leaf in jax.tree.leaves(parameters))
        moments = jax.tree.map(jnp.zeros_like, (parameters, parameters))
        state, train, numbers = [parameters, running, moments], jitted(task), itertools.count()

        def step(i):
            *state[:], loss = train(*state, images[i % BATCHES], labels[i % len(labels)], next(numbers))
            return jax.block_until_ready((loss, state))[0]

        return step, count


def initial(layers, random):
    """(parameters, running statistics), a list of each with an entry for each layer."""

    def uniform(fan_in, *shape):
        return jnp.asarray(random.uniform(-1, 1, shape).astype(np.float32) / np.float32(math.sqrt(fan_in)))

    def made(kind, *sizes):
        if kind == "block":
            pairs = [initial(part, random) for part in halves(*sizes)]
            return [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        if kind == "norm":
            return [jnp.ones(sizes[0]), jnp.zeros(sizes[0])], [jnp.zeros(sizes[0]), jnp.ones(sizes[0])]
        if kind == "conv":
            channels, filters, size, _, _, bias = sizes
            fan_in = channels * size * size
            found = [uniform(fan_in, size, size, channels, filters)]
            return found + ([uniform(fan_in, filters)] if bias else []), []
        if kind == "linear":
            return [uniform(sizes[0], *sizes), uniform(sizes[0], sizes[1])], []
        return [], []

    pairs = [made(*layer) for layer in layers]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def applied(layers, parameters, running, x, key):
    """(what the layers make of x, the new running statistics)."""
    after = []
    for number, ((kind, *sizes), own, kept) in enumerate(zip(layers, parameters, running, strict=True)):
        if kind == "block":
            (body, shortcut), key = halves(*sizes), jax.random.fold_in(key, number)
            out, one = applied(body, own[0], kept[0], x, key)
            same, other = applied(shortcut, own[1], kept[1], x, key)
            x, kept = jax.nn.relu(out + same), [one, other]
        elif kind == "norm":
            x, kept = _norm(x, own, kept)
        else:
            x = _plain(kind, sizes, own, x, jax.random.fold_in(key, number))
        after.append(kept)
    return x, after


def _norm(x, own, kept):
    mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2))
    count = x.size // x.shape[-1]
    news = mean, variance * count / (count - 1)
    kept = [old + MOMENTUM * (new - old) for old, new in zip(kept, news, strict=True)]
    return (x - mean) * (jax.lax.rsqrt(variance + EPSILON) * own[0]) + own[1], kept


def _plain(kind, sizes, own, x, key):
    if kind == "conv":
        stride, padding = sizes[3], sizes[4]
        around = ((padding, padding),) * 2
        x = jax.lax.conv_general_dilated(x, own[0], (stride, stride), around, dimension_numbers=LAYOUT)
        return x + own[1] if len(own) > 1 else x
    if kind == "linear":
        return x @ own[0] + own[1]
    if kind == "pool":
        window = (1, sizes[0], sizes[0], 1)
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, window, "VALID")
    if kind == "dropout":
        return jnp.where(jax.random.bernoulli(key, 1 - sizes[0], x.shape), x / (1 - sizes[0]), 0)
    if kind == "mean":
        return x.mean((1, 2), keepdims=True)
    return jax.nn.relu(x) if kind == "relu" else x.reshape(len(x), -1)


def jitted(task):
    """train(parameters, running, moments, images, labels, number of the step) -> the first three anew, and the loss."""
    layers, options = task.layers, task.options

    def loss_of(parameters, running, x, y, key):
        scores, running = applied(layers, parameters, running, x, key)
        return -jnp.take_along_axis(jax.nn.log_softmax(scores), y[:, None], 1).mean(), running

    def train(parameters, running, moments, x, y, i):
        key = jax.random.fold_in(jax.random.key(0), i)
        (loss, running), gradients = jax.value_and_grad(loss_of, has_aux=True)(parameters, running, x, y, key)
        update = _adam if task.optimizer == "Adam" else _sgd
        parameters, moments = update(parameters, gradients, moments, i, **options)
        return parameters, running, moments, loss

    return jax.jit(train, donate_argnums=(0, 1, 2))


def _adam(parameters, gradients, moments, i, lr):
    one = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, moments[0], gradients)
    two = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, moments[1], gradients)
    rate, scale = lr / (1 - 0.9 ** (i + 1)), 1 - 0.999 ** (i + 1)
    moved = lambda p, m, v: p - rate * m / (jnp.sqrt(v / scale) + 1e-8)
    return jax.tree.map(moved, parameters, one, two), (one, two)


def _sgd(parameters, gradients, moments, i, lr, momentum):
    buffers = jax.tree.map(lambda b, g: momentum * b + g, moments[0], gradients)
    return jax.tree.map(lambda p, b: p - lr * b, parameters, buffers), (buffers, moments[1])
