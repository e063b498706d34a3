# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 1. A tape in 60 lines
#
# **Goal** You can derive the gradient of a small network by hand, write the program that does it for any network
# (reverse mode on a tape), test it against finite differences, and differentiate gradients once more: Newton's method
# and Hessian-vector products.
#
# **You need** Python with NumPy, partial derivatives, and matrix products. No GPU.
#
# **Time** 45 minutes to read and try, an hour with the exercises.

# %%
import inspect
import itertools

import matplotlib.pyplot as plt
import numpy as np
from checks import check

import minigrad
from minigrad import GradcheckError, draw, gradcheck

BLUE, RED, GREEN, ORANGE = "#0072B2", "#D55E00", "#009E73", "#E69F00"  # told apart with any colour vision
minigrad.manual_seed(0)
random = np.random.default_rng(0)

# %% [markdown]
# ## One layer by hand
#
# A layer of three neurons turns an input $x$ into $h$, and a loss compares $h$ with a target $t$:
#
# $$a = W x + b \qquad h = \tanh a \qquad L = \tfrac12 \textstyle\sum_i (h_i - t_i)^2$$
#
# To train it we want to know how $L$ changes when an entry of $W$ changes. First the values, from left to right. We
# keep every intermediate result, because the derivatives will ask for them.

# %%
x = random.normal(size=(2, 1))
W = random.normal(size=(3, 2))
b = random.normal(size=(3, 1))
t = random.normal(size=(3, 1))

a = W @ x + b
h = np.tanh(a)
L = 0.5 * ((h - t) ** 2).sum()
print(f"L = {L:.6f}")

# %% [markdown]
# The chain rule takes the steps in the opposite order. Each line multiplies what is known already by the derivative of
# one single step:
#
# $$\frac{dL}{dh} = h - t \qquad
#   \frac{dL}{da} = \frac{dL}{dh}\,\frac{dh}{da} = (h - t)\,(1 - h^2) \qquad
#   \frac{dL}{dW} = \frac{dL}{da}\,\frac{da}{dW} = \frac{dL}{da}\; x^\top$$
#
# The middle one is taken element by element: $h_i$ depends on $a_i$ alone, and $\tanh' = 1 - \tanh^2$. The last one
# deserves a look: $a_i = \sum_j W_{ij} x_j + b_i$, so $W_{ij}$ moves only $a_i$, by $x_j$. Hence
# $dL/dW_{ij} = (dL/da_i)\, x_j$, which is the matrix $dL/da\; x^\top$. Likewise $b_i$ moves $a_i$ by 1, so
# $dL/db = dL/da$. And $x_j$ moves *every* $a_i$, by $W_{ij}$: contributions add up, $dL/dx = W^\top\, dL/da$.

# %%
dL_dh = h - t
dL_da = dL_dh * (1 - h**2)
dL_dW = dL_da @ x.T
dL_db = dL_da
dL_dx = W.T @ dL_da
print(dL_dW)

# %% [markdown]
# Is it right? A derivative is a quotient, so we can measure one: move one weight a little to both sides and see by how
# much $L$ moves,
#
# $$\frac{dL}{dW_{ij}} \approx \frac{L(W_{ij} + \varepsilon) - L(W_{ij} - \varepsilon)}{2 \varepsilon}.$$


# %%
def loss_at(weights):
    return 0.5 * ((np.tanh(weights @ x + b) - t) ** 2).sum()


def moved(weights, i, j, step):
    changed = weights.copy()
    changed[i, j] += step
    return changed


measured = (loss_at(moved(W, 0, 1, 1e-6)) - loss_at(moved(W, 0, 1, -1e-6))) / 2e-6
print(f"chain rule {dL_dW[0, 1]:.8f}   measured {measured:.8f}")
assert np.isclose(dL_dW[0, 1], measured)

# %% [markdown]
# ## Why backwards?
#
# Written as matrices, the gradient of a chain of steps is a product of Jacobians,
#
# $$\frac{dL}{dx} = \frac{dL}{dh}\;\frac{dh}{da}\;\frac{da}{dx}$$
#
# where $dL/dh$ is a row of $n$ numbers and the others are $n \times n$ matrices, if all layers have the width $n$.
# A product may be taken in any order, but not at the same price. From the left there is always one row: a row times a
# matrix, $n^2$ multiplications a step: **reverse mode**. From the right, **forward mode**, whole matrices meet: $n^3$ a
# step. There is one loss and there are millions of weights, so we start from the loss. Let us count.


# %%
def multiplications(shapes, reverse):
    """Of a product of matrices with these shapes, taken from the left (reverse mode) or from the right."""
    shapes, count = list(shapes), 0
    while len(shapes) > 1:
        at = 0 if reverse else len(shapes) - 2
        (rows, inner), (_, columns) = shapes[at : at + 2]
        count += rows * inner * columns
        shapes[at : at + 2] = [(rows, columns)]
    return count


widths, steps = [4, 16, 64, 256, 1024], 10
for reverse, label, style in ((True, "from the loss (reverse mode)", "o-"), (False, "from the input (forward)", "s--")):
    counts = [multiplications([(1, n)] + [(n, n)] * steps, reverse) for n in widths]
    plt.loglog(widths, counts, style, color=BLUE if reverse else RED, label=label)
plt.xlabel("width n of the 10 layers")
plt.ylabel("multiplications for one gradient")
plt.legend()
plt.grid(alpha=0.3)
plt.show()

# %% [markdown]
# ## A tape
#
# Doing this by hand for each network would be tedious and wrong sooner or later. But nothing above needed thought once
# the derivative of each *single* step was known. So the program may do it:
#
# 1. while computing values, write down each step, with its inputs and one rule per input that turns $dL/d\text{out}$
#    into $dL/d\text{input}$. This record is the **tape**;
# 2. read the tape from the end to the beginning, calling the rules.
#
# A `Value` is an array together with its line on the tape.

# %%
clock = itertools.count()


class Value:
    def __init__(self, data, op="leaf", parents=(), rules=()):
        self.data = np.asarray(data, float)
        self.op, self.parents, self.rules = op, parents, rules
        self.order = next(clock)  # later results have larger numbers

    def __add__(self, other):
        return add(self, other)

    def __sub__(self, other):
        return add(self, mul(other, Value(-np.ones_like(other.data))))

    def __mul__(self, other):
        return mul(self, other)

    def __matmul__(self, other):
        return matmul(self, other)


# %% [markdown]
# Now the steps. Each line states a value and, per argument, its derivative times the incoming gradient
# $g = dL/d\text{out}$:
#
# | step | value | rules |
# |---|---|---|
# | add | $x + y$ | $dx = g, \quad dy = g$ |
# | mul | $x y$ | $dx = g\, y, \quad dy = g\, x$ |
# | matmul | $X Y$ | $dX = g\, Y^\top, \quad dY = X^\top g$ |
# | tanh | $o = \tanh x$ | $dx = g\,(1 - o^2)$ |
# | total | $\sum_i x_i$ | $dx_i = g$ |
#
# The rules are written in `Value`s and not in arrays. That costs nothing now, and later it will give second
# derivatives for free: the gradients leave a tape of their own.


# %%
def add(x, y):
    return Value(x.data + y.data, "add", (x, y), (lambda g: g, lambda g: g))


def mul(x, y):
    return Value(x.data * y.data, "mul", (x, y), (lambda g: g * y, lambda g: g * x))


def matmul(x, y):
    return Value(x.data @ y.data, "matmul", (x, y), (lambda g: g @ turned(y), lambda g: turned(x) @ g))


def turned(x):
    return Value(x.data.T, "transpose", (x,), (turned,))


def tanh(x):
    out = Value(np.tanh(x.data), "tanh", (x,))
    out.rules = (lambda g: g * (Value(np.ones_like(out.data)) - out * out),)
    return out


def total(x):
    return Value(x.data.sum(), "total", (x,), (lambda g: spread(g, x.data.shape),))


def spread(x, shape):
    return Value(np.broadcast_to(x.data, shape), "spread", (x,), (total,))


# %% [markdown]
# And the walk backward. Two things need care.
#
# - **Order.** A result may be used several times, and its gradient is complete only when *all* its uses have been
#   visited. Uses are made later than what they use, so visiting in reverse order of making is always safe.
# - **Sums.** If $x$ has several uses, $\dfrac{dL}{dx} = \sum_{\text{uses } y} \dfrac{dL}{dy}\dfrac{dy}{dx}$:
#   contributions add up. Forgetting the sum is the classic mistake; $x \cdot x$ shows it at once.


# %%
def below(output):
    """Every Value that the output was made from, itself included."""
    found, stack = {output}, [output]
    while stack:
        fresh = [parent for parent in stack.pop().parents if parent not in found]
        found.update(fresh)
        stack += fresh
    return found


def gradients(output, inputs):
    """d output / d input for each input, as Values."""
    arrived = {output: Value(np.ones_like(output.data))}
    for value in sorted(below(output), key=lambda value: value.order, reverse=True):
        for parent, rule in zip(value.parents, value.rules, strict=True):
            part = rule(arrived[value])
            arrived[parent] = arrived[parent] + part if parent in arrived else part
    return [arrived[one] for one in inputs]


# %% [markdown]
# That is all of it. The same layer again; nobody derives anything now.

# %%
weight, bias, image, target = Value(W), Value(b), Value(x), Value(t)
difference = tanh(weight @ image + bias) - target
loss = total(difference * difference) * Value(0.5)

found = gradients(loss, [weight, bias, image])
for name, value, by_hand in zip(("dW", "db", "dx"), found, (dL_dW, dL_db, dL_dx), strict=True):
    print(name, "agrees with the chain rule by hand:", np.allclose(value.data, by_hand))
    assert np.allclose(value.data, by_hand)

three = Value(3.0)
assert gradients(three * three, [three])[0].data == 6  # two uses, two contributions: 3 + 3

# %%
parts = [add, mul, matmul, turned, tanh, total, spread, below, gradients, *vars(Value).values()]
lines = sum(len(inspect.getsource(part).splitlines()) for part in parts if inspect.isfunction(part))
print(f"the tape has {lines} lines")
assert lines <= 60

# %% [markdown]
# This is what the walk sees: the tape from its end to its beginning, and the gradient that has arrived at each line.

# %%
on_tape = sorted(below(loss), key=lambda value: value.order, reverse=True)
for value, gradient in zip(on_tape, gradients(loss, on_tape), strict=True):
    norm = np.linalg.norm(gradient.data)
    print(f"{value.op:8} {str(value.data.shape):8} |gradient| = {norm:.4f}")

# %% [markdown]
# ## The engine
#
# `minigrad` is this tape with what daily use needs: broadcasting, element types, kernels for convolutions, gradients
# that free what they no longer need, errors that say what is wrong. A `Tensor` that requires a gradient is a leaf of
# the tape, and `backward()` adds to `.grad`, as in PyTorch.

# %%
weight = minigrad.tensor(W, requires_grad=True)
bias = minigrad.tensor(b, requires_grad=True)
difference = minigrad.tanh(weight @ minigrad.tensor(x) + bias) - minigrad.tensor(t)
loss = 0.5 * (difference * difference).sum()
loss.backward()

print("engine and hand agree:", np.allclose(weight.grad, dL_dW) and np.allclose(bias.grad, dL_db))
assert np.allclose(weight.grad, dL_dW) and np.allclose(bias.grad, dL_db)

# %% [markdown]
# The tape can be looked at. We compute the loss once more, because `backward()` has let go of the values of the first
# one, and draw what was recorded: arrows lead from each value to the step that uses it, and backward goes against them.

# %%
image = minigrad.tensor(x)
difference = minigrad.tanh(weight @ image + bias) - minigrad.tensor(t)
loss = 0.5 * (difference * difference).sum()
draw.graph(loss, names={weight: "W", bias: "b", image: "x"})

# %% [markdown]
# $x$ needs no gradient, but it is kept: $dW = g\, x^\top$ asks for it. The target $t$ is not in the picture. The rules
# of a difference ask for nothing but $g$, so the tape has no use for $t$ and does not hold it.
#
# How does the engine know what to keep? A rule says so by the names of its parameters: the rule of `softsign` below
# asks for `out`, so the engine keeps the result and lets the input go. Had it asked for `input`, it would be the other
# way round. This is the whole definition of a new step:


# %%
@minigrad.primitive
def softsign(input):
    return input / (1 + abs(input))


softsign.grads(input=lambda g, out: g * (1 - abs(out)) * (1 - abs(out)))

# %% [markdown]
# ## gradcheck: is the rule right?
#
# $f(x) = \dfrac{x}{1 + |x|}$ has $f'(x) = \dfrac{1}{(1 + |x|)^2}$, and $1 - |f| = \dfrac{1}{1 + |x|}$, so the rule
# above should hold. But derivations contain mistakes. `gradcheck` measures: it makes a number $F$ of the results,
# weighting them at random, moves the input along a random direction $v$ and compares
#
# $$\frac{F(x + \varepsilon v) - F(x - \varepsilon v)}{2 \varepsilon} \quad\text{with}\quad \nabla F(x) \cdot v.$$

# %%
points = minigrad.randn(5, dtype="float64", requires_grad=True)
print("right rule:", gradcheck(softsign, [points]))


@minigrad.primitive
def careless(input):
    return input / (1 + abs(input))


careless.grads(input=lambda g, out: g * (1 - abs(out)))  # the square is missing

try:
    gradcheck(careless, [points])
    caught = False
except GradcheckError as error:
    caught = True
    print("wrong rule:", error)
assert caught

# %% [markdown]
# Why does `gradcheck` insist on float64, and why is $\varepsilon$ one millionth? Two errors pull in opposite
# directions. The quotient is exact only in the limit: its error falls as $\varepsilon^2$. But the two values agree in
# nearly all digits when $\varepsilon$ is small, and their difference loses these digits: this error grows as
# $u / \varepsilon$ with the rounding unit $u$ of the type. Measure both, on $\tanh$ at 0.7:


# %%
def difference_error(step, dtype):
    at, step = dtype(0.7), dtype(step)
    quotient = (np.tanh(at + step) - np.tanh(at - step)) / (2 * step)
    return abs(float(quotient) - (1 - np.tanh(0.7) ** 2))


sizes = np.logspace(-12, 0, 49)
errors = {dtype: np.array([difference_error(s, dtype) for s in sizes]) for dtype in (np.float32, np.float64)}
for dtype, style, color in ((np.float32, "s--", RED), (np.float64, "o-", BLUE)):
    plt.loglog(sizes, errors[dtype] + 1e-17, style, color=color, markersize=3, label=dtype.__name__)
plt.axvline(1e-6, color="black", linewidth=1, linestyle=":", label="step of gradcheck")
plt.xlabel("step ε")
plt.ylabel("error of the difference quotient")
plt.legend()
plt.grid(alpha=0.3)
plt.show()
assert errors[np.float64].min() < 1e-9 < 1e-6 < errors[np.float32].min() < 1e-3

# %% [markdown]
# The best that float32 can do is a few digits: too few to tell a wrong rule from rounding. In float64 there is a wide
# valley, and $10^{-6}$ lies in it.
#
# ## Second order: Newton's method on a curve
#
# Gradient descent knows the slope at a point and must guess how far to go. With the curvature there is no guess. Near
# $x$ a curve looks like a parabola,
#
# $$f(x + s) \approx f(x) + f'(x)\, s + \tfrac12 f''(x)\, s^2, \quad\text{lowest at}\quad s = -\frac{f'(x)}{f''(x)}$$
#
# if it opens upwards, $f''(x) > 0$, as here. Newton's method jumps there, and repeats. `create_graph=True` asks the
# engine to record the backward pass itself, so that the gradient is a Tensor with a history, which `grad` can
# differentiate again.


# %%
def curve(x):
    return (0.25 * x).exp() + 0.1 * x * x - minigrad.sin(x)


def derivatives(x):
    """f, f' and f'' at x, as numbers."""
    at = minigrad.tensor(float(x), dtype="float64", requires_grad=True)
    value = curve(at)
    (slope,) = minigrad.grad(value, at, create_graph=True)
    (curvature,) = minigrad.grad(slope, at)
    return value.item(), slope.item(), curvature.item()


newton = [2.4]
for _ in range(6):
    _, slope, curvature = derivatives(newton[-1])
    newton.append(newton[-1] - slope / curvature)

descent = [2.4]
for _ in range(20):
    descent.append(descent[-1] - 0.2 * derivatives(descent[-1])[1])

# %% [markdown]
# On the left the parabolas of the first two steps, each lowest where the next point lies. On the right the distance to
# the minimum. Gradient descent gains a fixed number of digits per step, a straight line on this scale; Newton's method
# about doubles the number of right digits, until float64 has no more.

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
grid = np.linspace(-0.5, 3, 200)
left.plot(grid, [derivatives(x)[0] for x in grid], color="black", label="f")
for number, (start, color) in enumerate(zip(newton[:2], (BLUE, RED), strict=True), 1):
    value, slope, curvature = derivatives(start)
    parabola = value + slope * (grid - start) + 0.5 * curvature * (grid - start) ** 2
    left.plot(grid, parabola, "--", color=color, label=f"parabola of step {number}")
    left.plot(start, value, "o", color=color)
left.plot(newton[-1], derivatives(newton[-1])[0], "*", color=GREEN, markersize=14, label="minimum")
left.set(xlabel="x", ylabel="f(x)", ylim=(0.2, 2.6))
left.legend()

best = newton[-1]
for path, style, color, label in ((newton[:-1], "o-", BLUE, "Newton"), (descent, "s--", RED, "gradient descent")):
    right.semilogy([max(abs(x - best), 1e-17) for x in path], style, color=color, markersize=4, label=label)
right.set(xlabel="step", ylabel="distance to the minimum", xticks=range(0, 21, 2))
right.legend()
right.grid(alpha=0.3)
plt.show()
gaps = [abs(x - best) for x in newton]
assert gaps[3] < gaps[2] ** 1.5 and gaps[4] < gaps[3] ** 1.5
assert abs(derivatives(best)[1]) < 1e-12 < 1e-3 < abs(descent[6] - best)

# %% [markdown]
# What did `create_graph` record? The gradient is a Tensor with a history like any other, so it can be drawn too. Here
# is $\frac{d}{dx} \tfrac12 \tanh^2 x$: first the steps of the value, and from there on those that the rules made when
# backward asked them. The grey box is the constant one half, which both need.

# %%
at = minigrad.tensor(0.7, dtype="float64", requires_grad=True)
value = minigrad.tanh(at)
(slope,) = minigrad.grad(0.5 * value * value, at, create_graph=True)
draw.graph(slope, names={at: "x"})

# %% [markdown]
# ## A Hessian-vector product
#
# With $n$ weights the curvature is a matrix $H_{ij} = \partial^2 L / \partial w_i \partial w_j$ with $n^2$ entries: for
# a million weights nobody can store it. But most methods only want $H v$ for some direction $v$, and
#
# $$H v = \nabla_w \big( \nabla_w L \cdot v \big)$$
#
# is the gradient of a *number*. One more backward pass gives it, whatever $n$ is.


# %%
def hessian_vector_product(loss, weights, v):
    (gradient,) = minigrad.grad(loss(weights), weights, create_graph=True)
    (product,) = minigrad.grad((gradient * v).sum(), weights)
    return product


# %% [markdown]
# Take a tiny network: 8 points of a sine, 4 hidden neurons, all 13 weights in one vector. It is small enough to ask
# for $H e_1, H e_2, \dots$ and see the whole matrix.

# %%
inputs = minigrad.linspace(-2, 2, 8, dtype="float64").reshape(8, 1)
wanted = minigrad.sin(2 * inputs)


def network_loss(w):
    hidden = minigrad.tanh(inputs @ w[0:4].reshape(1, 4) + w[4:8])
    outputs = hidden @ w[8:12].reshape(4, 1) + w[12]
    return ((outputs - wanted) ** 2).mean()


w = minigrad.tensor(random.normal(size=13), requires_grad=True)
units = minigrad.eye(13, dtype="float64")
H = np.stack([hessian_vector_product(network_loss, w, units[i]).numpy() for i in range(13)])
assert np.allclose(H, H.T)  # second derivatives may be taken in either order

# %%
names = [f"{kind}{i}" for kind in ("w", "b", "v") for i in range(1, 5)] + ["c"]
limit = abs(H).max()
figure, axes = plt.subplots(figsize=(6, 5), layout="constrained")
picture = axes.imshow(H, cmap="PuOr", vmin=-limit, vmax=limit)
axes.set_xticks(range(13), names, rotation=90)
axes.set_yticks(range(13), names)
axes.set(xlabel="weight j", ylabel="weight i", title="the Hessian, column by column")
figure.colorbar(picture, label="d²L / dwᵢ dwⱼ")
plt.show()

# %% [markdown]
# The picture says things that a gradient cannot: the bias $c$ of the output has the same curvature 2 whatever the
# weights are, because $L$ is a parabola in $c$; and some rows are nearly empty, directions in which the loss is flat
# and gradient descent will be slow. Does it agree with a difference quotient of the gradient?

# %%
v = minigrad.tensor(random.normal(size=13))
product = hessian_vector_product(network_loss, w, v).numpy()


def gradient_at(values):
    at = minigrad.tensor(values, requires_grad=True)
    return minigrad.grad(network_loss(at), at)[0].numpy()


step = 1e-6 * v.numpy()
quotient = (gradient_at(w.detach().numpy() + step) - gradient_at(w.detach().numpy() - step)) / 2e-6
print(f"largest difference to a quotient of gradients: {abs(product - quotient).max():.1e}")
assert np.allclose(product, quotient, atol=1e-6) and np.allclose(product, H @ v.numpy()) and np.isclose(H[12, 12], 2)
lengths = np.linalg.norm(H, axis=1)
assert lengths.min() < 0.3 * lengths.max()

# %% [markdown]
# ## In the library
#
# | here | there |
# |---|---|
# | `Value` | [`minigrad/core/tensor.py`](../../minigrad/core/tensor.py) |
# | a step with its rules | [`minigrad/core/primitive.py`](../../minigrad/core/primitive.py) |
# | `add`, `mul`, ... | the families of [`minigrad/ops/`](../../minigrad/ops) |
# | a line of the tape | [`minigrad/core/tape.py`](../../minigrad/core/tape.py) |
# | `below`, `gradients` | `_reachable`, `_walk` and `_visit` in [`core/tape.py`](../../minigrad/core/tape.py) |
# | difference quotients | [`minigrad/gradcheck.py`](../../minigrad/gradcheck.py) |
#
# Read `tape.py` next. It is this notebook, and what is new in it has a reason that you can now guess: it walks
# without recursion, frees nodes as it goes, and knows the moment at which the gradient of a leaf is final.

# %% [markdown]
# ## Exercises
#
# Write your answer in place of `...`, run the cell and the one below it, which says right or wrong. Solutions stand at
# the end.
#
# ### Exercise 1: the rule of the logistic function
#
# The logistic function $o = \dfrac{1}{1 + e^{-x}}$ has the derivative $o\,(1 - o)$. Write its rule: given the
# incoming gradient $g$ and the result $o$, return $dL/dx$. All are arrays.


# %%
def sigmoid_rule(g, out): ...  # your answer


# %%
def sigmoid_cases(random=random):
    x, g = random.normal(size=(2, 3, 4))
    out = 1 / (1 + np.exp(-x))
    return [((g, out), g * np.exp(-x) * out**2)]


check(sigmoid_rule, sigmoid_cases(), "the derivative times the incoming gradient")

# %% [markdown]
# ### Exercise 2: the rules of a linear layer
#
# A linear layer takes a batch of $N$ rows: $Y = X W^\top + \mathbf{1} b^\top$ with $X$ of shape $(N, C)$, $W$ of
# shape $(O, C)$ and $b$ of shape $(O,)$. Given $g = dL/dY$, return the tuple $(dL/dX,\ dL/dW,\ dL/db)$. Let the shapes
# guide you.


# %%
def linear_rules(g, X, W): ...  # your answer


# %%
def linear_cases(random=random):
    X, W, b, g = (random.normal(size=shape) for shape in ((5, 3), (2, 3), (2,), (5, 2)))
    leaves = [minigrad.tensor(one, requires_grad=True) for one in (X, W, b)]
    wanted = minigrad.grad(minigrad.nn.functional.linear(*leaves), leaves, minigrad.tensor(g))
    return [((g, X, W), tuple(one.numpy() for one in wanted))]


check(linear_rules, linear_cases(), "b is added to every row of the batch, so it has N uses, and contributions add up")

# %% [markdown]
# ### Exercise 3: undo broadcasting
#
# NumPy *broadcasts*: in `x + b` with shapes $(5, 3)$ and $(3,)$ or $(5, 1)$, `b` is repeated until it fits.
# Repeating is using several times, so its gradient is a sum. Write what the engine does after every rule: given a
# gradient $g$ of the large shape, return the one of the given smaller shape. The smaller shape may have fewer axes, and
# axes of size 1.


# %%
def fit(g, shape): ...  # your answer


# %%
def fit_cases(random=random):
    cases = []
    for large, small in (((5, 3), (3,)), ((5, 3), (5, 1)), ((4, 5, 3), (5, 1)), ((2, 3), ()), ((5, 3), (5, 3))):
        g = random.normal(size=large)
        b = minigrad.zeros(small, dtype="float64", requires_grad=True)
        (wanted,) = minigrad.grad(b + minigrad.zeros(large, dtype="float64"), b, minigrad.tensor(g))
        cases.append(((g, small), wanted.numpy()))
    return cases


check(fit, fit_cases(), "sum over axes that b lacks, and over those where it has size 1 (keepdims=True)")

# %% [markdown]
# ### Exercise 4: find a zero
#
# Newton's method also finds *zeros*: where a curve crosses 0, its tangent does nearly there too. Given a function
# of a Tensor and a start, make one step $x - f(x) / f'(x)$ with the engine and return a number. (How many derivatives
# do you need? And `create_graph`?)


# %%
def newton_root_step(f, start): ...  # your answer


# %%
def root_cases(random=random):
    cases = []
    for a, b in random.uniform(1, 2, size=(3, 2)):
        start = random.uniform(1, 2)
        wanted = start - (a * start**3 - b) / (3 * a * start**2)
        cases.append(((lambda x, a=a, b=b: a * x * x * x - b, start), wanted))
    return cases


check(newton_root_step, root_cases(), "x - f / f', and not f' / f''; use a float64 tensor that requires a gradient")

# %% [markdown]
# ### Exercise 5: the largest curvature
#
# Gradient descent on a loss with the Hessian $H$ diverges when the rate exceeds $2 / \lambda$, where $\lambda$
# is the largest eigenvalue. Find $\lambda$ without ever forming $H$: multiply any vector again and again by $H$ and
# scale it to length 1; it turns towards the eigenvector, and then $v \cdot H v = \lambda$. Use
# `hessian_vector_product(loss, w, v)` from above. `w` is a float64 Tensor that requires a gradient; return a number,
# good to 5 digits.


# %%
def largest_curvature(loss, w): ...  # your answer


# %%
def curvature_cases(random=random):
    cases = []
    for n in (3, 6):
        turn, _ = np.linalg.qr(random.normal(size=(n, n)))
        matrix = turn @ np.diag(random.uniform(0.1, 1, n) + 2 * (np.arange(n) == 0)) @ turn.T
        M = minigrad.tensor(matrix)
        at = minigrad.tensor(random.normal(size=n), requires_grad=True)
        cases.append(((lambda w, M=M: 0.5 * (w * (M @ w)).sum(), at), np.linalg.eigvalsh(matrix)[-1]))
    return cases


check(largest_curvature, curvature_cases(), "start from a random vector, scale after every product, 50 rounds do")

# %% [markdown]
# ## Solutions
#
# **Exercise 1.** The rule asks for `out` and not for $x$: the result has all it needs, as with `tanh`.


# %%
def sigmoid_rule(g, out):
    return g * out * (1 - out)


check(sigmoid_rule, sigmoid_cases())

# %% [markdown]
# **Exercise 2.** $Y_{no} = \sum_c X_{nc} W_{oc} + b_o$. The entry $W_{oc}$ meets $X_{nc}$ for every $n$, hence
# $dW_{oc} = \sum_n g_{no} X_{nc}$, the product $g^\top X$. The bias has a use in every row.


# %%
def linear_rules(g, X, W):
    return g @ W, g.T @ X, g.sum(axis=0)


check(linear_rules, linear_cases())

# %% [markdown]
# **Exercise 3.** Axes are aligned from the right. The engine does it in `_fit` of `minigrad/core/tape.py`.


# %%
def fit(g, shape):
    extra = g.ndim - len(shape)
    g = g.sum(axis=tuple(range(extra)))
    repeated = tuple(i for i, size in enumerate(shape) if size == 1)
    return g.sum(axis=repeated, keepdims=True)


check(fit, fit_cases())

# %% [markdown]
# **Exercise 4.** One derivative is enough, so nothing needs to be recorded about the backward pass. Minimising is
# finding a zero of $f'$: that is why it needed $f''$.


# %%
def newton_root_step(f, start):
    x = minigrad.tensor(start, dtype="float64", requires_grad=True)
    value = f(x)
    (slope,) = minigrad.grad(value, x)
    return (x - value / slope).item()


check(newton_root_step, root_cases())

# %% [markdown]
# **Exercise 5.** Every product makes the part along the eigenvector of $\lambda$ grow faster than all others, by the
# ratio to the next eigenvalue. A random start has some part along it; a unit vector might have none.


# %%
def largest_curvature(loss, w):
    v = minigrad.randn(w.numel(), dtype="float64")
    for _ in range(100):
        product = hessian_vector_product(loss, w, v)
        v = product / float((product * product).sum()) ** 0.5
    return float((v * hessian_vector_product(loss, w, v)).sum())


check(largest_curvature, curvature_cases())
rate = 2 / largest_curvature(network_loss, w)
assert np.isclose(2 / rate, np.linalg.eigvalsh(H)[-1])
print(f"near these weights, gradient descent on the small network needs a rate below {rate:.3f}")
