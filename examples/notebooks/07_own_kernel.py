# %% [markdown]
# # 7. Write your own kernel
#
# **Goal** You can take a formula of your own and make it an op: with gradients to any order, a CUDA kernel of about
# ten lines, checks that find your mistakes, and a row in the test tables.
#
# **You need** [Notebook 1](01_tape.ipynb) for gradients; [notebook 2](02_matmul_gpu.ipynb) for threads and blocks. No
# GPU. The compiler comes with `pip install -e ".[notebook]"`; where it cannot be installed, as on macOS, set
# `MINIGRAD_PTX` to a wheel of minigrad that holds compiled kernels, those of this page among them.
#
# **Time** 35 minutes with the exercises.

# %%
import sys

import matplotlib.pyplot as plt
import numpy as np
from exercises import check

import minigrad
from minigrad import GradcheckError, Tensor, data, device, gradcheck, gradgradcheck, nn, optim, primitive, profile
from minigrad_kernels import interpreter
from minigrad_kernels.interpreter import interpret
from minigrad_kernels.toolchain.cuda import cuda, f32, kernel

minigrad.manual_seed(0)
THREADS = 256  # of a block

# %% [markdown]
# ## The formula
#
# Our op is a bump, an activation that answers to values near zero and forgets what is far away:
#
# $$y = f(x) = \frac{1}{1 + x^2}$$
#
# Its derivative needs no second division, because the square of the output is at hand:
#
# $$f'(x) = \frac{-2x}{(1 + x^2)^2} = -2\,x\,y^2, \qquad
#   \frac{\partial L}{\partial x} = g \cdot (-2\,x\,y^2) \quad\text{with } g = \frac{\partial L}{\partial y}$$
#
# ## The op
#
# A primitive is a function on *arrays*. Below it stands one gradient rule for each argument, written in *Tensors*. The
# names of its parameters say what must stay alive until backward: `g` comes in, `x` is the argument, `out` the result.


# %%
@primitive
def bump_by_formula(x):
    return 1 / (1 + x * x)


bump_by_formula.grads(x=lambda g, x, out: g * (-2 * x * out * out))

x = Tensor([0.0, 1.0, -2.0], requires_grad=True)
y = bump_by_formula(x)
y.sum().backward()
print(y.tolist(), x.grad.tolist())
assert np.allclose(x.grad.numpy(), [0, -0.5, 0.16])

# %% [markdown]
# That was the whole op. Because the rule is made of differentiable ops, it can be differentiated itself, and so on:

# %%
x = minigrad.linspace(-4, 4, 201, requires_grad=True)
curves = {"f": bump_by_formula(x)}
for name, before in (("f'", "f"), ("f''", "f'"), ("f'''", "f''")):
    (curves[name],) = minigrad.grad(curves[before].sum(), x, create_graph=True)

figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
styles = zip(curves.items(), ("#0072B2", "#D55E00", "#009E73", "#CC79A7"), ("-", "--", "-.", ":"), strict=True)
for (name, curve), color, dashes in styles:
    axes.plot(x.detach().numpy(), curve.detach().numpy(), color=color, linestyle=dashes, label=name)
axes.set(xlabel="x", ylabel="value")
axes.grid(alpha=0.3)
axes.legend()
plt.show()
assert np.allclose(curves["f''"].detach().numpy()[100], -2, atol=1e-5)  # f''(0) = -2

# %% [markdown]
# ## Is the rule right?
#
# `gradcheck` compares it with differences in float64. It draws a direction $u$ to move $x$ in, and weights $v$ for the
# outputs. With $J$ the matrix of all derivatives, backward computes $J^\top v$ from $g = v$, so
#
# $$\frac{\langle v,\, f(x + \epsilon u) - f(x - \epsilon u) \rangle}{2 \epsilon}
#   \approx \langle J^\top v,\, u \rangle$$
#
# It costs nothing to write, and it finds what eyes do not. Here is the mistake everybody makes once: `out` instead of
# `out * out`.

# %%
points = minigrad.randn(3, 5, dtype="float64", requires_grad=True)
assert gradcheck(bump_by_formula, [points]) and gradgradcheck(bump_by_formula, [points])


@primitive
def bump_with_mistake(x):
    return 1 / (1 + x * x)


bump_with_mistake.grads(x=lambda g, x, out: g * (-2 * x * out))
try:
    gradcheck(bump_with_mistake, [points])
    raise AssertionError("the mistake was not found")
except GradcheckError as error:
    print(error)


# %% [markdown]
# ## The kernel
#
# NumPy computes `x * x`, then `1 + ...`, then `1 / ...`: three passes over memory, and two arrays that nobody wants. A
# kernel does it in one: each thread reads one element, computes, and writes one.


# %%
@kernel("f32[:] x, f32[:] out", threads=THREADS)
def bump_f32(x, out):
    i = cuda.grid(1)  # which element is mine
    if i < x.size:  # the last block may have threads to spare
        out[i] = f32(1) / (f32(1) + x[i] * x[i])


x = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
out = np.empty_like(x)
report = interpret(bump_f32, grid=(4,), block=(256,), arguments=(x, out))
print(report.counts)
assert np.allclose(out, 1 / (1 + x * x), rtol=1e-6) and not report.faults
assert report.counts.bytes_loaded["x"] == report.counts.bytes_stored["out"] == x.nbytes  # each element once

# %% [markdown]
# The body is that of a kernel of `numba.cuda`. In any other project that uses Numba you write `@cuda.jit` above it and
# start it by `bump_f32[4, 256](x, out)`. Our `kernel` adds a signature: `f32[:]` is an array of one axis. `f32` is
# `numba.float32`. A bare `1` would be a whole number of 64 bits, and Numba would compute the sum in float64.
#
# `interpret` ran the compiled code for 4 blocks of 256 threads. On a GPU the same kernel is started by
# `bump_f32((4,), (256,), (x, out))` with CuPy's arrays.
#
# Forget the guard, and 24 threads of the last block write behind the array. A GPU may do that without a word.


# %%
@kernel("f32[:] x, f32[:] out", threads=THREADS)
def unguarded(x, out):
    i = cuda.grid(1)
    out[i] = f32(1) / (f32(1) + x[i] * x[i])


faults = interpret(unguarded, (4,), (256,), (x, out)).faults
for fault in faults:
    print(fault, "\n")
assert faults and all("out of bounds" in fault.kind for fault in faults)

# %% [markdown]
# ## Both together
#
# The op asks where its array lies. On the CPU it is NumPy's and the formula will do; elsewhere it is CuPy's or, for the
# interpreter, of a class of its own, and the kernel is started. The rule stays as it is: it knows nothing of kernels.


# %%
@primitive
def bump(x):
    if type(x) is np.ndarray:
        return 1 / (1 + x * x)
    x = device.contiguous(x)  # elements side by side, so that all of them are one axis
    out = device.empty_like(x)
    if x.size:  # a grid has at least one block
        bump_f32((-(-x.size // THREADS),), (THREADS,), (x.reshape(-1), out.reshape(-1)))
    return out


bump.grads(x=lambda g, x, out: g * (-2 * x * out * out))

results = []
for place in ("cpu", "interpreter"):  # "interpreter": a GPU's code on any machine; "cuda": a GPU
    points = minigrad.linspace(-3, 3, 1000).to(place).requires_grad_()
    y = bump(points)
    y.sum().backward()
    results.append((y.detach().numpy(), points.grad.numpy()))
for name, here, there in zip(("values", "gradients"), *results, strict=True):
    print(f"{name}: largest difference between CPU and kernel {np.abs(here - there).max():.1e}")
    assert np.allclose(here, there, atol=1e-6)


# %% [markdown]
# ## A faster backward
#
# The rule $g \cdot (-2\,x\,y^2)$ is four products, each a pass over memory. The profiler sees them:

# %%
N = 1024
points = minigrad.linspace(-3, 3, N).to("interpreter").requires_grad_()
total = bump(points).sum()
with profile.Profile() as seen:
    total.backward()
by_rule = points.grad.numpy()
products = [span for span in seen.spans if span.parent is not None and span.parent.name == "bump.backward"]
written = sum(span.nbytes for span in products)
print([span.name for span in products], "write", written, "bytes:", written // (4 * N), "arrays")
assert [span.name for span in products] == ["mul"] * 4 and written == 4 * 4 * N
rule_bytes = (1 + 2 + 2 + 2) * 4 * N + written  # -2 * x reads one array, the others read two

# %% [markdown]
# Where nobody asks for a second derivative, one kernel can do it in one pass. `fast_grads` states it beside the rule.
# The rule remains the definition: it is what second derivatives use, and what the fast way is compared with.


# %%
@kernel("f32[:] g, f32[:] x, f32[:] out, f32[:] dx", threads=THREADS)
def bump_grad_f32(g, x, out, dx):
    i = cuda.grid(1)
    if i < x.size:
        dx[i] = g[i] * (f32(-2) * x[i] * out[i] * out[i])


@bump.fast_grads
def bump_at_once(g, x, out):
    if type(x) is np.ndarray:
        return {"x": g * (-2 * x * out * out)}
    g, x, out = (device.contiguous(array) for array in (g, x, out))
    dx = device.empty_like(x)
    if x.size:
        arrays = [array.reshape(-1) for array in (g, x, out, dx)]
        bump_grad_f32((-(-x.size // THREADS),), (THREADS,), arrays)
    return {"x": dx}


# %%
points = minigrad.linspace(-3, 3, N).to("interpreter").requires_grad_()
total = bump(points).sum()
with interpreter.recording() as launches:
    total.backward()
((_, report),) = launches
kernel_bytes = sum((report.counts.bytes_loaded + report.counts.bytes_stored).values())
print(f"the rule moves {rule_bytes // N} bytes for each element, the kernel {kernel_bytes // N}")
assert np.allclose(by_rule, points.grad.numpy(), atol=1e-6) and kernel_bytes == 4 * 4 * N < rule_bytes

figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
axes.barh(["four products", "one kernel"], [rule_bytes / N, kernel_bytes / N], color=["#0072B2", "#009E73"])
axes.invert_yaxis()
axes.set(xlabel="bytes read and written for each element", title="the gradient of bump")
plt.show()

# %% [markdown]
# ## Its place in the test tables
#
# What nobody tests is wrong. In this library nobody writes tests for a new op: one adds *rows*. A row of
# `tests/ops/cases` says how to call it, and the tables of tests do the rest: first and second gradients, other layouts,
# empty arrays, float32 beside float64, what must be refused.

# %%
sys.path.insert(0, "../..")  # the tests lie beside the package, not in it
from tests.ops.cases import Op, real, refusal, sample

row = Op(
    "bump",
    samples=(sample(real(3, 4)), sample(real(5)), sample(real(0, 2))),
    refusals=(refusal(TypeError, "bump", "no tensor"),),
)
for one in row.samples:
    (drawn,), _ = one.draw(lambda array, grad: Tensor(array, requires_grad=grad))
    assert gradcheck(bump, [drawn]) and gradgradcheck(bump, [drawn])
    print(f"{row.name}{one}: gradients to second order are right")


# %% [markdown]
# A row of `tests/kernels/cases` is for the kernel: the shapes to try, and how many roundings lie between input and
# result. The same row tests the CPU's kernel, the CUDA kernel in the interpreter and on a GPU. Each is
# compared with the *reference*: the formula in float64, as simple as possible. Sizes near the edge of a block find most
# mistakes.

# %%
from tests.kernels.cases import KernelCase, Output


def reference(x):
    return 1 / (1 + x.astype(np.float64) ** 2)


CASES = [
    KernelCase(family="bump", function="bump", shapes=((n,),), params={}, outputs=(Output((n,)),), terms=3, exact=False)
    for n in (1, 255, 256, 257, 1000)
]
for case in CASES:
    x = np.random.default_rng(1).standard_normal(case.shapes[0]).astype(np.float32)
    out = np.full_like(x, np.nan)
    found = interpret(bump_f32, (-(-x.size // THREADS),), (THREADS,), (x, out))
    (wanted,), (bound,) = case.references(reference, [x]), case.bounds(reference, [x], np.finfo(np.float32).eps)
    assert not found.faults and (np.abs(out - wanted) <= bound).all()
    print(f"{case}: within {case.terms} roundings")


# %% [markdown]
# ## In a network
#
# A hidden layer of bumps instead of ReLU learns digits too:


# %%
class Bump(nn.Module):
    def forward(self, x):
        return bump(x)


train, test = data.digits()
transform = data.Normalize(train.mean, train.std)
losses = {}
for name, activation in (("ReLU", nn.ReLU), ("Bump", Bump)):
    minigrad.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), activation(), nn.Linear(64, 10))
    optimizer = optim.Adam(model.parameters(), lr=3e-3)
    losses[name] = []
    for _ in range(8):
        for images, labels in data.Loader(train, batch_size=64, shuffle=True, transform=transform):
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses[name].append(loss.item())
    images, labels = next(iter(data.Loader(test, batch_size=len(test), transform=transform)))
    accuracy = (model(images).detach().numpy().argmax(1) == labels.numpy()).mean()
    print(f"{name}: test accuracy {100 * accuracy:.1f} %")
    assert accuracy > 0.8


# %%
figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
for (name, values), color, dashes in zip(losses.items(), ("#0072B2", "#D55E00"), ("-", "--"), strict=True):
    axes.plot(np.convolve(values, np.ones(10) / 10, "valid"), color=color, linestyle=dashes, label=name)
axes.set(yscale="log", xlabel="step", ylabel="training loss, mean of 10 steps")
axes.legend()
plt.show()

# %% [markdown]
# ## In the library
#
# - [`minigrad/core/primitive.py`](../../minigrad/core/primitive.py): what `primitive`, `grads` and `fast_grads` do
# - [`minigrad/ops/elementwise/activations.py`](../../minigrad/ops/elementwise/activations.py): ops like ours
# - [`minigrad/gradcheck.py`](../../minigrad/gradcheck.py): `gradcheck`
# - [`kernels/minigrad_kernels/bias/`](../../kernels/minigrad_kernels/bias): a small family of kernels: the launcher,
#   `reference.py`, `cpu.py`, `cuda.py`
# - [`tests/ops/cases/`](../../tests/ops/cases) and [`tests/kernels/cases/`](../../tests/kernels/cases): the tables;
#   [`tests/ops/test_ops.py`](../../tests/ops/test_ops.py) and
#   [`tests/kernels/test_kernels.py`](../../tests/kernels/test_kernels.py) run them
# - [How kernels are written, compiled and checked](../docs/gpu-kernels.md)

# %% [markdown]
# ## Exercises
#
# ### Exercise 1: how many blocks
#
# A kernel has one thread for each of `n` elements, in blocks of `threads`. How many blocks does the grid need?


# %%
def blocks_for(n, threads): ...  # your answer


check(blocks_for)

# %% [markdown]
# ### Exercise 2: a gradient rule
#
# The op is $y = e^{-x^2/2}$. Write the gradient with respect to $x$ from the incoming gradient `g`, the argument `x`
# and the result `out`, without another exponential.


# %%
def gauss_rule(g, x, out): ...  # your answer


check(gauss_rule)

# %% [markdown]
# ### Exercise 3: two arguments
#
# The op is $y = \sqrt{a^2 + b^2}$. Return the pair of gradients with respect to `a` and `b`. The check makes it an op
# and runs `gradcheck` and `gradgradcheck` on it, so write it in operations that Tensors have.


# %%
def length_rules(g, a, b, out): ...  # your answer


check(length_rules)

# %% [markdown]
# ### Exercise 4: fewer threads than elements
#
# A *grid-stride loop* lets a grid of any size do any number of elements: a thread does its own one, then the one that
# lies a whole grid further, and so on. Which elements does thread `thread` of block `block` do? Return a list, in
# order.


# %%
def elements_of(block, thread, blocks, threads, n): ...  # your answer


check(elements_of)

# %% [markdown]
# ## Solutions
#
# **1.** Divide and round up; in whole numbers, so that nothing is lost for large `n`.


# %%
def blocks_for(n, threads):
    return -(-n // threads)


check(blocks_for)

# %% [markdown]
# **2.** $\frac{d}{dx} e^{-x^2/2} = -x\, e^{-x^2/2} = -x\,y$.


# %%
def gauss_rule(g, x, out):
    return -g * x * out


check(gauss_rule)

# %% [markdown]
# **3.** $\partial y / \partial a = 2a / (2y) = a / y$, and the same for $b$. Each gradient is differentiable again,
# since `out` in the rule is the op's own result, on the tape.


# %%
def length_rules(g, a, b, out):
    return g * a / out, g * b / out


check(length_rules)

# %% [markdown]
# **4.** As Python's `range` says it. As a kernel it compiles and runs as it stands, below with 2 blocks for 1000
# elements.


# %%
def elements_of(block, thread, blocks, threads, n):
    return list(range(block * threads + thread, n, blocks * threads))


check(elements_of)


# %%
@kernel("f32[:] x, f32[:] out", threads=THREADS)
def bump_strided(x, out):
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        out[i] = f32(1) / (f32(1) + x[i] * x[i])


x = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
out = np.full_like(x, np.nan)
report = interpret(bump_strided, (2,), (256,), (x, out))
assert not report.faults and np.allclose(out, 1 / (1 + x * x), rtol=1e-6)
