"""The exercises of the notebooks: what answers are tried on, what is wanted, and a hint.

check(answer) finds the exercise by the name of the function. Numbers are random; wanted results are the library's, or
follow from a property that the answer must have.
"""

from collections import Counter

import checks  # type: ignore[import-not-found]  # beside this file
import numpy as np

import minigrad
from minigrad import optim, tensor
from minigrad.nn import functional as F

__all__ = ["check"]

EXERCISES: dict = {}  # by name: what makes the cases, the hint, what turns the answer into what is compared, tolerance
random = np.random.default_rng(0)


def exercise(hint, turned=lambda answer: answer, tolerance=1e-5):
    """Enter a function that makes the cases, pairs (arguments, wanted), under its own name."""

    def enter(cases):
        EXERCISES[cases.__name__] = cases, hint, turned, tolerance
        return cases

    return enter


def check(answer):
    """Print one line on the answer to an exercise: right, wrong with what came out, or not yet."""
    cases, hint, turned, tolerance = EXERCISES[answer.__name__]
    tried = turned(answer)
    tried.__name__ = answer.__name__
    checks.check(tried, cases(), hint, tolerance)


def leaf(array):
    return tensor(array, requires_grad=True)


# ---- 1. A tape -------------------------------------------------------------------------------------------------------


@exercise("b is added to every row of the batch, so it has N uses, and contributions add up")
def linear_rules():
    X, W, b, g = (random.normal(size=shape) for shape in ((5, 3), (2, 3), (2,), (5, 2)))
    leaves = [leaf(one) for one in (X, W, b)]
    wanted = minigrad.grad(F.linear(*leaves), leaves, tensor(g))
    return [((g, X, W), tuple(one.numpy() for one in wanted))]


@exercise("sum over axes that b lacks, and over those where it has size 1 (keepdims=True)")
def fit():
    cases = []
    for large, small in (((5, 3), (3,)), ((5, 3), (5, 1)), ((4, 5, 3), (5, 1)), ((2, 3), ()), ((5, 3), (5, 3))):
        g, b = random.normal(size=large), leaf(np.zeros(small))
        (wanted,) = minigrad.grad(b + minigrad.zeros(large, dtype="float64"), b, tensor(g))
        cases.append(((g, small), wanted.numpy()))
    return cases


@exercise("the first gradient with create_graph=True, its product with v summed to one number, and grad of that")
def hessian_vector_product():
    cases = []
    for n in (2, 5):
        root, v, start = random.normal(size=(n, n)), random.normal(size=n), random.normal(size=n)
        H = tensor(root + root.T)
        cases.append(((lambda w, H=H: 0.5 * (w * (H @ w)).sum(), leaf(start), tensor(v)), (root + root.T) @ v))
    return cases


# ---- 2. The matrix product on a GPU ----------------------------------------------------------------------------------


@exercise("A is read once for each column of tiles, B once for each row of tiles; count whole tiles")
def traffic():
    cases = []
    for m, n, k, rows, columns in ((256, 256, 64, 32, 32), (100, 70, 30, 128, 16), (33, 65, 8, 32, 32)):
        cases.append(((m, n, k, rows, columns), 4 * (m * k * -(-n // columns) + k * n * -(-m // rows))))
    return cases


@exercise("count the different words in each bank; the fullest bank decides")
def wavefronts():
    strides = {1: 1, 32: 32, 33: 1, 2: 2, 0: 1, 12: 4}  # of the words of a warp: passes
    cases = [(([stride * lane for lane in range(32)],), passes) for stride, passes in strides.items()]
    return [*cases, (([0, 32] * 16,), 2), (([*range(30), 32, 64],), 3)]


def _properties(answer):
    passes = lambda words: max(Counter(word % 32 for word in set(words)).values())

    def properties():
        if answer(0, 0) in (None, ...):
            return None
        words = np.array([[answer(row, column) for column in range(32)] for row in range(32)])
        return {
            "words": len(set(words.ravel().tolist())),
            "first and last": (int(words.min()), int(words.max())),
            "row": max(passes(row) for row in words.tolist()),
            "column": max(passes(column) for column in words.T.tolist()),
        }

    return properties


@exercise(
    "words: how many different ones; row, column: wavefronts of the worst; shift each row in its own way", _properties
)
def place():
    return [((), {"words": 1024, "first and last": (0, 1023), "row": 1, "column": 1})]


# ---- 3. Convolution --------------------------------------------------------------------------------------------------


@exercise("the last place begins at H + 2 padding - P; how many steps of the stride fit before it?")
def output_size():
    sizes = ((28, 3, 1, 0), (28, 3, 1, 1), (28, 5, 1, 2), (9, 3, 2, 0), (10, 3, 2, 1), (7, 2, 3, 1))
    made = lambda H, P, s, pad: F.conv2d(minigrad.zeros(1, 1, H, H), minigrad.zeros(1, 1, P, P), stride=s, padding=pad)
    return [(size, made(*size).shape[2]) for size in sizes]


@exercise("a row for each (i, j), j running fastest; a column for each (p, q), q running fastest")
def patches_of():
    cases = []
    for shape, P, stride in (((5, 5), 3, 1), ((6, 8), 2, 2), ((7, 9), 3, 2)):
        x = random.normal(size=shape)
        places = [(i, j) for i in range(0, shape[0] - P + 1, stride) for j in range(0, shape[1] - P + 1, stride)]
        cases.append(((x, P, stride), np.array([x[i : i + P, j : j + P].ravel() for i, j in places])))
    return cases


@exercise("pad g by P - 1 and Q - 1 on both sides, and turn the filter by 180 degrees")
def image_gradient():
    cases = []
    for P, Q in ((3, 3), (2, 4)):
        g, w = random.normal(size=(5, 6)), random.normal(size=(P, Q))
        wanted = F.conv2d_input_grad(tensor(g[None, None]), tensor(w[None, None]), (1, 1, 4 + P, 5 + Q))
        cases.append(((g, w), wanted.numpy()[0, 0]))
    return cases


@exercise("rows of X are (n, i, j), so bring g into that order first; then dW = g^T X")
def weight_gradient():
    x, g = random.normal(size=(3, 2, 7, 6)), random.normal(size=(3, 4, 5, 5))
    return [((g, x, 3, 2), F.conv2d_weight_grad(tensor(g), tensor(x), (4, 2, 3, 2)).numpy())]


# ---- 4. Training -----------------------------------------------------------------------------------------------------


@exercise("p - [k = t] for each image, divided by N; subtract the maximum before exp")
def scores_gradient():
    cases = []
    for scale in (1, 1000):
        z, labels = scale * random.normal(size=(4, 3)), random.integers(0, 3, 4)
        scores = leaf(z)
        (wanted,) = minigrad.grad(F.cross_entropy(scores, tensor(labels)), scores)
        cases.append(((z, labels), wanted.numpy()))
    return cases


@exercise("use the new b in the step, and add the gradient once more")
def nesterov():
    w, first, second = random.normal(size=(3, 5))
    weights, cases = leaf(w), []
    optimizer = optim.SGD([weights], lr=0.1, momentum=0.8, nesterov=True)
    for g, b in ((first, np.zeros(5)), (second, first)):
        start = weights.detach().numpy().copy()
        weights.grad = tensor(g)
        optimizer.step()
        cases.append(((start, g, b, 0.1, 0.8), (weights.detach().numpy().copy(), 0.8 * b + g)))
    return cases


@exercise("one norm over all arrays, one factor for all, never above 1")
def clip_together():
    cases = []
    for largest in (1.0, 100.0):
        gradients = [random.normal(size=shape) for shape in ((3, 2), (4,), (2, 2, 2))]
        leaves = [leaf(np.zeros(one.shape)) for one in gradients]
        for one, gradient in zip(leaves, gradients, strict=True):
            one.grad = tensor(gradient.copy())
        optim.clip_grad_norm_(leaves, largest)
        cases.append(((gradients, largest), tuple(one.grad.numpy() for one in leaves)))
    return cases


# ---- 5. Many workers -------------------------------------------------------------------------------------------------


@exercise("each image counts the same, so a shard with more images counts for more")
def average():
    cases = []
    for sizes in ([4, 4], [3, 1], [5, 2, 9]):
        parts = [random.standard_normal((2, 3)) for _ in sizes]
        wanted = sum(size * part for size, part in zip(sizes, parts, strict=True)) / sum(sizes)
        cases.append(((parts, sizes), wanted))
    return cases


@exercise("the order is not the same; with 5: ((0 + 1) + (2 + 3)) + 4", tolerance=0)
def pairwise_sum():
    from minigrad.parallel.collectives import pairwise

    cases = []
    for count in (1, 2, 8, 5, 7):
        parts = [random.standard_normal(50).astype(np.float32) for _ in range(count)]
        cases.append(((parts,), pairwise(parts)))
    return cases


@exercise("a bucket begins when it is ready AND the one before has ended; less than nothing is 0")
def exposed_seconds():
    cases = [(([1.0, 2.0], [0.5, 0.5], 3.0), 0.0), (([1.0, 2.0, 3.0], [2.0, 0.1, 0.1], 3.0), 0.2)]
    for _ in range(20):
        ready, exchange, end = np.sort(random.random(5)), 0.3 * random.random(5), 0.0
        for begin, seconds in zip(ready, exchange, strict=True):
            end = max(end, begin) + seconds
        cases.append(((ready.tolist(), exchange.tolist(), 1.0), max(0.0, end - 1.0)))
    return cases


# ---- 6. Fewer bits ---------------------------------------------------------------------------------------------------


@exercise("when do neighbours lie 2 apart? Remember the leading 1, which is not stored")
def whole_numbers():
    cases = [((4, 3), 16), ((8, 10), 2048)]  # no type of NumPy has these
    for bits, kind in (((5, 10), np.float16), ((8, 23), np.float32)):
        n = np.arange(2 ** bits[1], 2 ** (bits[1] + 1) + 2) if bits[1] < 20 else np.arange(2**24 - 9, 2**24 + 2)
        cases.append((bits, int(n[n.astype(kind).astype(np.int64) != n][0] - 1)))
    return cases


@exercise("add 0x7FFF, and 1 more if the last bit that stays is 1; then clear the lower half", tolerance=0)
def to_bfloat16():
    ties = (random.integers(0x3F00, 0x4100, 200, dtype=np.uint32) << 16 | 0x8000).view(np.float32)
    arrays = [np.float32([1, 1.5, -2]), ties, random.standard_normal(500).astype(np.float32)]
    return [((x,), tensor(x).to("bfloat16").to("float32").numpy()) for x in arrays]


@exercise("parameters, gradients and two averages take 16 bytes a parameter; a part of an image is none")
def largest_microbatch():
    cases = [((1000, 100, 15_000), 0), ((1000, 100, 16_000), 0), ((1000, 100, 16_199), 1)]
    for _ in range(10):
        parameters, activations, images = (int(n) for n in random.integers(1, 10_000, 3))
        memory = 16 * parameters + activations * images + int(random.integers(activations))
        cases.append(((parameters, activations, memory), images))
    return cases


# ---- 7. Your own kernel ----------------------------------------------------------------------------------------------


@exercise("a block that is only partly used must be there too, and none where there is nothing to do")
def blocks_for():
    return [((1000, 256), 4), ((1024, 256), 4), ((1025, 256), 5), ((1, 32), 1), ((0, 32), 0), ((7, 8), 1)]


@exercise("the chain rule: the derivative of the exponent, times the result, times what comes in")
def gauss_rule():
    cases = []
    for _ in range(3):
        g, x = random.standard_normal((2, 6))
        slope = (np.exp(-((x + 1e-6) ** 2) / 2) - np.exp(-((x - 1e-6) ** 2) / 2)) / 2e-6  # by differences
        cases.append(((g, x, np.exp(-(x**2) / 2)), g * slope))
    return cases


def _gradients_are_right(answer):
    def gradients_are_right():
        first = answer(1.0, 3.0, 4.0, 5.0)
        if first is None or first is ...:
            return None
        if not isinstance(first, tuple | list) or len(first) != 2:
            return "no pair of gradients"

        @minigrad.primitive
        def length(a, b):
            return np.sqrt(a * a + b * b)

        length.grads(a=lambda g, a, b, out: answer(g, a, b, out)[0], b=lambda g, a, b, out: answer(g, a, b, out)[1])
        a, b = (minigrad.randn(4, dtype="float64", requires_grad=True) for _ in range(2))
        return minigrad.gradcheck(length, [a, b]) and minigrad.gradgradcheck(length, [a, b])

    return gradients_are_right


@exercise("the larger a is beside y, the more of g goes to a: a / y of it", _gradients_are_right)
def length_rules():
    return [((), True)]


@exercise("begin at block * threads + thread; the whole grid has blocks * threads threads")
def elements_of():
    cases = []
    for blocks, threads, n in ((2, 4, 20), (3, 2, 5), (1, 8, 30)):
        owner = np.arange(n) % (blocks * threads)
        for block, thread in ((0, 0), (blocks - 1, 1), (0, threads - 1)):
            mine = np.flatnonzero(owner == block * threads + thread).tolist()
            cases.append(((block, thread, blocks, threads, n), mine))
    return cases


# ---- 8. A small GPT --------------------------------------------------------------------------------------------------


@exercise("place i may see itself and the width - 1 places before it; True where it may not look")
def window_mask():
    cases = []
    for n, width in ((4, 4), (5, 2), (6, 3), (3, 1)):
        before = np.arange(n)[:, None] - np.arange(n)
        cases.append(((n, width), (before < 0) | (before >= width)))
    return cases


@exercise("divide the scores by the temperature before softmax; subtract the maximum, so that exp stays finite")
def probabilities():
    cases = []
    for temperature in (0.1, 1.0, 3.0):
        scores = 100 * random.standard_normal(6)
        cases.append(((scores, temperature), F.softmax(tensor(scores / temperature), 0).numpy()))
    return cases


@exercise("out = A V is a matrix product: its two rules are those of notebook 1")
def attention_rules():
    A, V, g = (random.standard_normal(shape) for shape in ((4, 5), (5, 3), (4, 3)))
    leaves = leaf(A), leaf(V)
    wanted = minigrad.grad(leaves[0] @ leaves[1], leaves, tensor(g))
    return [((g, A, V), tuple(one.numpy() for one in wanted))]
