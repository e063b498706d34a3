# %% [markdown]
# # 1. A tape in 60 lines
#
# **Goal** You can derive the gradient of a small network by hand, write the program that does it for any network
# (reverse mode on a tape), test it against finite differences, and differentiate gradients once more, for Newton's
# method.
#
# **You need** Python with NumPy, partial derivatives, and matrix products. No GPU.
#
# **Time** 45 minutes to read and try, half an hour for the exercises.

# %%
import inspect
import itertools

import matplotlib.pyplot as plt
import numpy as np
from exercises import check

import minigrad
from minigrad import GradcheckError, draw, gradcheck

BLUE, RED, GREEN = "#0072B2", "#D55E00", "#009E73"  # told apart with any colour vision
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


step = np.zeros_like(W)
step[0, 1] = 1e-6
measured = (loss_at(W + step) - loss_at(W - step)) / 2e-6
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


for n in (4, 16, 64, 256, 1024):
    counts = [multiplications([(1, n)] + [(n, n)] * 10, reverse) for reverse in (True, False)]
    print(f"10 layers of width {n:4}: {counts[0]:>12,} from the loss, {counts[1]:>14,} from the input")

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
    """The output and every Value that it was made from."""
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
assert all(np.allclose(value.data, hand) for value, hand in zip(found, (dL_dW, dL_db, dL_dx), strict=True))
print("dW, db and dx agree with the chain rule by hand")

three = Value(3.0)
assert gradients(three * three, [three])[0].data == 6  # two uses, two contributions: 3 + 3

# %%
parts = [add, mul, matmul, turned, tanh, total, spread, below, gradients, *vars(Value).values()]
lines = sum(len(inspect.getsource(part).splitlines()) for part in parts if inspect.isfunction(part))
print(f"the tape has {lines} lines")
assert lines <= 60

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

assert np.allclose(weight.grad, dL_dW) and np.allclose(bias.grad, dL_db)
print("engine and hand agree")

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
# `gradcheck` wants float64 and takes $\varepsilon = 10^{-6}$. Two errors pull in opposite directions. The quotient is
# exact only in the limit: its error falls as $\varepsilon^2$. But for a small $\varepsilon$ the two values agree in
# nearly all digits, and their difference loses these digits: this error grows as $1 / \varepsilon$. In float64 a
# millionth is a good choice between the two. In float32 no choice leaves enough digits to tell a wrong rule from
# rounding.
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
# Read `tape.py` next. It is this notebook with three ideas more: it walks without recursion, frees nodes on the way,
# and knows the moment at which the gradient of a leaf is final.

# %% [markdown]
# ## Exercises
#
# Write your answer in place of `...` and run the cell. It says right or wrong. Solutions stand at the end.
#
# ### Exercise 1: the rules of a linear layer
#
# A linear layer takes a batch of $N$ rows: $Y = X W^\top + \mathbf{1} b^\top$ with $X$ of shape $(N, C)$, $W$ of
# shape $(O, C)$ and $b$ of shape $(O,)$. Given $g = dL/dY$, return the tuple $(dL/dX,\ dL/dW,\ dL/db)$. Let the shapes
# guide you.


# %%
def linear_rules(g, X, W): ...  # your answer


check(linear_rules)

# %% [markdown]
# ### Exercise 2: undo broadcasting
#
# NumPy *broadcasts*: in `x + b` with shapes $(5, 3)$ and $(3,)$ or $(5, 1)$, `b` is repeated until it fits.
# Repeating is using several times, so its gradient is a sum. Write what the engine does after every rule: given a
# gradient $g$ of the large shape, return the one of the given smaller shape. The smaller shape may have fewer axes, and
# axes of size 1.


# %%
def fit(g, shape): ...  # your answer


check(fit)

# %% [markdown]
# ### Exercise 3: a Hessian-vector product
#
# With $n$ weights the curvature is a matrix $H_{ij} = \partial^2 L / \partial w_i \partial w_j$ with $n^2$ entries. For
# a million weights nobody can store it. Most methods want only $H v$ for some direction $v$, and that is the gradient
# of a *number*, whatever $n$ is:
#
# $$H v = \nabla_w \big( \nabla_w L \cdot v \big)$$
#
# `loss` is a function of a Tensor, `w` requires a gradient, and `v` is a Tensor. Return $H v$.


# %%
def hessian_vector_product(loss, w, v): ...  # your answer


check(hessian_vector_product)

# %% [markdown]
# ## Solutions
#
# **Exercise 1.** $Y_{no} = \sum_c X_{nc} W_{oc} + b_o$. The entry $W_{oc}$ meets $X_{nc}$ for every $n$, hence
# $dW_{oc} = \sum_n g_{no} X_{nc}$, the product $g^\top X$. The bias has a use in every row.


# %%
def linear_rules(g, X, W):
    return g @ W, g.T @ X, g.sum(axis=0)


check(linear_rules)

# %% [markdown]
# **Exercise 2.** Axes are aligned from the right. The engine does it in `_fit` of `minigrad/core/tape.py`.


# %%
def fit(g, shape):
    extra = g.ndim - len(shape)
    g = g.sum(axis=tuple(range(extra)))
    repeated = tuple(i for i, size in enumerate(shape) if size == 1)
    return g.sum(axis=repeated, keepdims=True)


check(fit)

# %% [markdown]
# **Exercise 3.** `create_graph` gives the first gradient a history, so that `grad` can go through it again.


# %%
def hessian_vector_product(loss, w, v):
    (gradient,) = minigrad.grad(loss(w), w, create_graph=True)
    (product,) = minigrad.grad((gradient * v).sum(), w)
    return product


check(hessian_vector_product)
