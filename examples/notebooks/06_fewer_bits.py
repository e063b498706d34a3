# %% [markdown]
# # 6. Fewer bits, less memory
#
# **Goal** You can say what a float of 16 bits can and cannot hold, why gradients vanish in it and how loss scaling
# saves them, what the memory of a training step is made of, and how accumulation and recomputation trade time for it.
#
# **You need** [Notebook 4](04_training.ipynb): a training loop. Powers of two.
#
# **Time** 45 minutes with the exercises.

# %%
import matplotlib.pyplot as plt
import numpy as np
from exercises import check

import minigrad.draw
from minigrad import Tensor, data, nn, no_grad, optim, primitive, profile

minigrad.manual_seed(0)
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")

# %% [markdown]
# ## What a float is
#
# A float has a sign bit $s$, $e$ exponent bits and $f$ fraction bits. Read the exponent bits as a whole number $E$, the
# fraction bits as a whole number $F$. With bias $b = 2^{e-1} - 1$ the float means
#
# $$x = (-1)^{s}\; 2^{E - b}\; \Bigl(1 + \frac{F}{2^{f}}\Bigr), \qquad 0 < E < 2^{e} - 1$$
#
# and, where $E = 0$, the **subnormal** numbers $(-1)^s\, 2^{1-b}\, F / 2^{f}$, which fill the gap down to zero; the
# largest $E$, $2^e - 1$, is for infinity and NaN. Exponent bits buy *range*, fraction bits buy *precision*. Four
# formats, four bargains:

# %%
FORMATS = {"float32": (8, 23), "tf32": (8, 10), "float16": (5, 10), "bfloat16": (8, 7)}  # exponent, fraction bits


def limits(exponent_bits, fraction_bits):
    """(smallest subnormal, smallest normal, largest finite number)"""
    bias = 2 ** (exponent_bits - 1) - 1
    smallest = 2.0 ** (1 - bias)
    return smallest * 2.0**-fraction_bits, smallest, 2.0**bias * (2 - 2.0**-fraction_bits)


for name, bits in FORMATS.items():
    tiny, normal, largest = limits(*bits)
    print(f"{name:<9}{1 + sum(bits):>3} bits: {tiny:.1e} to {largest:.2e}, next after 1: 1 + 1/{2 ** bits[1]}")
assert limits(*FORMATS["float16"])[2] == np.finfo(np.float16).max
assert limits(*FORMATS["float32"])[:2] == (np.finfo(np.float32).smallest_subnormal, np.finfo(np.float32).tiny)

# %% [markdown]
# *Tensor cores* are a GPU's units for matrix products. They can round float32 inputs to `tf32`. In memory it takes 32
# bits.
#
# ## Rounding
#
# Between two neighbours a result is **rounded to nearest**, and a tie goes to the even fraction. The neighbours of $x$
# lie $2^{\lfloor \log_2 |x| \rfloor - f}$ apart; below the smallest normal number they lie evenly.


# %%
def rounded(x, exponent_bits, fraction_bits):
    """x as the nearest number of that format."""
    bias = 2 ** (exponent_bits - 1) - 1
    exponent = np.frexp(np.asarray(x, np.float64))[1] - 1  # floor(log2 |x|)
    step = np.exp2(np.maximum(exponent, 1 - bias) - fraction_bits)
    result = np.round(x / step) * step  # NumPy rounds ties to even
    return np.where(np.abs(result) > limits(exponent_bits, fraction_bits)[2], np.copysign(np.inf, x), result)


rng = np.random.default_rng(0)
samples = (rng.standard_normal(100_000) * 10.0 ** rng.uniform(-10, 6, 100_000)).astype(np.float32)
with np.errstate(over="ignore"):
    assert (rounded(samples, 5, 10) == samples.astype(np.float16)).all()
brain = Tensor(samples).to("bfloat16").to("float32").numpy()
assert (rounded(samples, 8, 7) == brain).all()
print("1/3 becomes", {name: float(rounded(1 / 3, *bits)) for name, bits in FORMATS.items()})

# %% [markdown]
# A sum that grows loses what is added to it. In float16 the neighbours of 2048 lie 2 apart, so adding 1 to 2048 changes
# nothing. Therefore mixed precision has tensor cores multiply numbers of 16 bits and **add in 32**.

# %%
half = np.float16(0)
for _ in range(4096):
    half = np.float16(half + np.float16(1))
print(f"4096 ones added in float16: {half:.0f}; in float32: {np.ones(4096, np.float32).sum():.0f}")
assert half == 2048

# %% [markdown]
# The same happens to weights: an update $w \leftarrow w - \eta g$ smaller than half the distance to the next number
# changes nothing. So **master weights** stay in float32, and only copies of them have 16 bits.
#
# ## Gradients that vanish
#
# Now a network whose layers compute in fewer bits. `cast` is an op whose forward rounds, and whose gradient rounds too:
# that is what mixed precision does on the way forward and backward. Three lines with `primitive`:


# %%
def make_cast(exponent_bits, fraction_bits):
    @primitive
    def cast(x):
        """x rounded. Math: out = round(x), and the gradient is rounded as it passes: dx = round(g)"""
        return rounded(x, exponent_bits, fraction_bits).astype(x.dtype)

    cast.grads(x=lambda g: cast(g))
    return cast


casts = {name: make_cast(*bits) for name, bits in FORMATS.items()}
x = Tensor([1 / 3, 1e-9, 70000.0], requires_grad=True)
to_half = casts["float16"]
out = to_half(x)
out.backward(Tensor([1e-9, 1.0, 1.0]))
print("values", out.tolist(), "gradients", x.grad.tolist())
assert x.grad.tolist()[0] == 0  # too small for float16

# %%
train, test = data.digits()
transform = data.Normalize(train.mean, train.std)


class Mixed(nn.Module):
    """Three layers; inputs, weights and results are rounded, and so are all gradients on their way back."""

    def __init__(self, cast):
        self.first, self.second, self.third = nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 10)
        self.cast = cast

    def layer(self, x, linear):
        return self.cast(self.cast(x) @ self.cast(linear.weight).T + linear.bias)

    def forward(self, images):
        x = nn.functional.flatten(images, 1)
        x = nn.functional.relu(self.layer(x, self.first))
        x = nn.functional.relu(self.layer(x, self.second))
        return self.layer(x, self.third)


# %% [markdown]
# The gradient that enters backward is $\partial L / \partial z = (p - y) / B$: predicted probabilities less the labels,
# over the batch. Once the network is sure, $p - y$ is tiny. Train in float32 for a while, then look at it.


# %%
def train_model(cast, epochs, scale=1.0):
    """Train Mixed; the loss is multiplied by `scale`, the gradients divided by it. Gives the model and its losses."""
    minigrad.manual_seed(0)
    model, losses = Mixed(cast), []
    optimizer = optim.Adam(model.parameters(), lr=4e-3)
    for _ in range(epochs):
        for images, labels in data.Loader(train, batch_size=64, shuffle=True, transform=transform):
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            (loss * scale).backward()
            for parameter in model.parameters():
                parameter.grad = parameter.grad * (1 / scale)
            optimizer.step()
            losses.append(loss.item())
    return model, losses


def logit_gradient(model):
    """The gradient that enters backward, of 256 images."""
    images, labels = next(iter(data.Loader(train, batch_size=256, transform=transform)))
    logits = model(images)
    (g,) = minigrad.grad(nn.functional.cross_entropy(logits, labels), logits)
    return np.abs(g.numpy())


model, losses = train_model(casts["float32"], epochs=10)
gradient = logit_gradient(model)
gradient = gradient[gradient > 0]
lost = (rounded(gradient, *FORMATS["float16"]) == 0).mean()
print(f"loss {np.mean(losses[-20:]):.3f}; {100 * lost:.0f} % of these gradients are 0 in float16")
assert lost > 0.3

# %% [markdown]
# **Loss scaling** moves them. Backward is linear in what enters it, so with a loss that is $S$ times as large every
# gradient is $S$ times as large, and dividing by $S$ in float32 in the end gives the gradient back:
#
# $$\frac{\partial (S L)}{\partial w} = S\, \frac{\partial L}{\partial w}$$
#
# Too small an $S$ leaves gradients below the smallest number, too large an $S$ pushes others above the largest.

# %%
tiny, normal, largest = limits(*FORMATS["float16"])
scales = 2.0 ** np.arange(0, 41)
vanished = np.array([(rounded(gradient * s, 5, 10) == 0).mean() for s in scales])
infinite = np.array([np.isinf(rounded(gradient * s, 5, 10)).mean() for s in scales])
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.8), layout="constrained")
left.hist(np.log2(gradient), bins=60, color=COLORS[0], label="gradients")
for at, text, style in ((tiny, "smallest", "--"), (normal, "smallest normal", ":")):
    left.axvline(np.log2(at), color=COLORS[1], linestyle=style, label=f"{text} of float16")
left.set(xlabel="magnitude, power of two", ylabel="how many", title="gradient that enters backward")
left.legend(loc="upper left")
right.plot(np.log2(scales), 100 * vanished, color=COLORS[0], label="become 0")
right.plot(np.log2(scales), 100 * infinite, color=COLORS[1], linestyle="--", label="become infinite")
right.set(xlabel="loss scale S, power of two", ylabel="% of gradients", title="in float16")
right.legend()
plt.show()
assert vanished[0] > 2 * vanished[20] and infinite[20] == 0 and infinite[-1] > 0

# %% [markdown]
# In between lies a wide window. It moves as training goes on, so nobody picks $S$ by hand. **Dynamic loss scaling**
# tries: when a gradient is infinite, the step is left out and $S$ is halved. After many good steps in a row $S$ is
# doubled. `minigrad.amp.GradScaler` does that.
#
# Training itself, from the same start. On digits so many gradients survive that float16 learns without a scale. But
# where a loss is a mean over the pixels of images of 256 x 256, $1 / B$ becomes $1 / (2^{16} B)$, and the gradient that
# enters backward is $2^{16}$ times as small. We imitate it: we divide the loss by $2^{16}$. bfloat16 has the range of
# float32 and needs no scale; that is why it is liked.

# %%
ways = {  # how to round, and what the loss is multiplied by
    "float32": ("float32", 1.0),
    "float16": ("float16", 1.0),
    "float16, loss / 2^16": ("float16", 2.0**-16),
    "float16, loss / 2^16 * 2^31": ("float16", 2.0**15),
    "bfloat16, loss / 2^16": ("bfloat16", 2.0**-16),
}
figure, axes = plt.subplots(figsize=(8.5, 3.8), layout="constrained")
final = {}
for i, (name, (kind, scale)) in enumerate(ways.items()):
    found, losses = train_model(casts[kind], epochs=10, scale=scale)
    final[name] = np.mean(losses[-20:])
    smooth = np.convolve(losses, np.ones(10) / 10, "valid")
    dashes, marker = ("-", "--", "-.", ":", ":")[i], "os^Dv"[i]
    axes.plot(smooth, color=COLORS[i], linestyle=dashes, marker=marker, markevery=(9 * i, 45), label=name)
    zeros = (rounded(logit_gradient(found) * scale, *FORMATS[kind]) == 0).mean()
    print(f"{name:<28} loss {final[name]:.3f}, {100 * zeros:3.0f} % of the gradient that enters backward is 0")
axes.set(yscale="log", xlabel="step", ylabel="loss, mean of 10 steps")
axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
plt.show()
assert final["float16, loss / 2^16"] > 2 * final["float32"]
assert max(final["float16, loss / 2^16 * 2^31"], final["bfloat16, loss / 2^16"]) < 1.2 * final["float32"]

# %% [markdown]
# Nothing was infinite, and no error was raised. Only the few largest elements of the gradient were left. They led the
# network astray at full speed, because Adam divides a gradient by its own size. The scale brought the others back.
#
# ## The memory of a training step
#
# With $P$ parameters in float32 and Adam, a step on a batch of $B$ images needs for
#
# $$\underbrace{4P}_{\text{parameters}} + \underbrace{4P}_{\text{gradients}} + \underbrace{8P}_{\text{Adam: } m, v}
#   + \underbrace{A\,B}_{\text{activations}}$$
#
# bytes, where $A$ is what the tape saves of one image until backward. The parts are not all there at the same time:
# backward makes gradients while it frees activations. `Profile` looks at the memory after every operation.


# %%
def make_network():
    minigrad.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(),
        nn.Flatten(), nn.Linear(32 * 64, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip


def measured(batch, microbatches=1):
    """The memory samples of the second step, and the gradients of the first, which makes the optimiser's state."""
    network = make_network()
    optimizer = optim.Adam(network.parameters())
    images, labels = next(iter(data.Loader(train, batch_size=batch, transform=transform)))
    size = batch // microbatches
    gradients = None
    for _ in range(2):
        optimizer.zero_grad()
        with profile.Profile(network, optimizer=optimizer) as found:
            for start in range(0, batch, size):
                part = images[start : start + size], labels[start : start + size]
                (nn.functional.cross_entropy(network(part[0]), part[1]) / microbatches).backward()
            gradients = gradients or [parameter.grad.numpy().copy() for parameter in network.parameters()]
            optimizer.step()
    return found.memory, gradients


MIB = 2**20  # bytes


def peaks(samples):
    return {name: max(sample[name] for _, sample in samples) for name in samples[0][1]}


samples, whole_gradients = measured(256)
figure, axes = plt.subplots(figsize=(9, 4), layout="constrained")
minigrad.draw.memory(samples, axes)
plt.show()

# %%
parameters = sum(parameter.numel() for parameter in make_network().parameters())
peak = peaks(samples)
print(f"{parameters:,} parameters, 4 P = {4 * parameters / MIB:.2f} MiB; the most that there was of")
for name, nbytes in peak.items():
    print(f"{name:<12}{nbytes / MIB:7.2f} MiB")
assert peak["parameters"] == peak["gradients"] == 4 * parameters
assert np.isclose(peak["optimiser"], 8 * parameters, rtol=0.01)

# %% [markdown] Activations grow in the forward pass and shrink in backward, which frees them. *Other* is mostly
# gradients on their way from layer to layer. Only these two grow with the batch, so this is where memory can be saved.
#
# ## Accumulation
#
# A batch of $B$ as $k$ microbatches of $B / k$, one after another, each with its loss divided by $k$: `.grad` adds up
# the same mean, and the tape holds a $k$-th.
#
# $$g = \sum_{i=1}^{k} \nabla \Bigl(\frac{1}{k} L_i\Bigr)$$

# %%
for microbatches in (1, 2, 4, 8):
    samples, gradients = measured(256, microbatches)
    error = max(np.abs(a - b).max() for a, b in zip(gradients, whole_gradients, strict=True))
    activations = peaks(samples)["activations"]
    print(f"{microbatches} microbatch(es): activations {activations / MIB:5.2f} MiB, gradients differ by {error:.0e}")
    assert error < 1e-6 and activations < 1.3 * peak["activations"] / microbatches


# %% [markdown]
# ## Recomputation
#
# Accumulation needs a batch to divide. **Recomputation** (*checkpointing*) saves within one: cut $n$ layers into $s$
# segments, keep only the input of each segment, and compute a segment *again* when backward reaches it. What is held is
# $s$ inputs, and the inside of one segment at a time:
#
# $$\text{held} \approx \Bigl(s + \frac{n}{s}\Bigr)\, a, \qquad \text{least at } s = \sqrt{n}$$
#
# where $a$ is what one layer keeps. The price is one forward pass more. By hand it takes a few lines with
# `grad(outputs, inputs, grad_outputs)`:


# %%
def recomputed(layers, segments, x, loss_of):
    """The loss, with gradients in .grad of the layers' parameters, keeping one Tensor for each segment."""
    cuts = np.linspace(0, len(layers), segments + 1).astype(int)
    parts = [nn.Sequential(*layers[a:b]) for a, b in zip(cuts[:-1], cuts[1:], strict=True)]
    kept = [x]
    with no_grad():  # forward: the tape keeps nothing
        for part in parts[:-1]:
            kept.append(part(kept[-1]))
    g = loss = None
    for part in reversed(parts):
        start = kept.pop().detach()
        start.requires_grad = True
        out = part(start)  # again, and now the tape watches
        if loss is None:  # this segment is the last
            out = loss = loss_of(out)
        inputs = [start, *part.parameters()]
        g, *found = minigrad.grad(out, inputs, g)
        for parameter, gradient in zip(inputs[1:], found, strict=True):
            parameter.grad = gradient
    return loss


# %% [markdown]
# Sixteen layers with a `tanh` after each, and a batch so large that activations outweigh everything else:


# %%
def deep(segments, depth=16, width=64, batch=4096):
    """(most bytes held beside parameters and gradients, gradients) of a deep network."""
    minigrad.manual_seed(0)
    layers = [layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.Tanh())]
    x, target = minigrad.randn(batch, width), Tensor(np.arange(batch) % width)
    network = nn.Sequential(*layers)
    loss_of = lambda out: nn.functional.cross_entropy(out, target)
    with profile.Profile(network) as found:
        if segments:
            recomputed(layers, segments, x, loss_of)
        else:
            loss_of(network(x)).backward()
    held = [sample["activations"] + sample["other"] for _, sample in found.memory]
    return max(held) - held[0], [parameter.grad.numpy().copy() for parameter in network.parameters()]


# %%
plain, wanted = deep(0)
counts = (1, 2, 4, 8, 16)
held = []
for segments in counts:
    nbytes, found = deep(segments)
    assert all((a == b).all() for a, b in zip(found, wanted, strict=True))  # the same bits
    held.append(nbytes)
    print(f"{segments:>2} segment(s): {nbytes / MIB:5.2f} MiB held beside parameters and gradients")
print(f"no recomputation: {plain / MIB:.2f} MiB")
assert held[2] == min(held) < 0.5 * plain  # 4 segments of 4

# %%
figure, axes = plt.subplots(figsize=(7, 3.8), layout="constrained")
a = 4 * 4096 * 64 / MIB  # the output of a layer, for the whole batch
axes.plot(counts, np.array(held) / MIB, marker="o", color=COLORS[0], label="recomputed")
axes.plot(counts, [(s + 16 / s) * a for s in counts], "s:", color=COLORS[1], fillstyle="none", label="(s + 16 / s) a")
axes.axhline(plain / MIB, color=COLORS[2], linestyle="--", label="all kept")
axes.set(xscale="log", xlabel="segments of 16 layers", ylabel="memory held, MiB", ylim=(0, None))
axes.set_xticks(counts, [str(count) for count in counts])
axes.minorticks_off()
axes.legend()
plt.show()

# %% [markdown]
# ## In the library
#
# - [`minigrad/ops/conversions.py`](../../minigrad/ops/conversions.py): `x.to("float16")`; which
#   ops take float16 says [the page of differences](../docs/differences.md#differences-from-pytorch)
# - [`minigrad/core/tape.py`](../../minigrad/core/tape.py): what the tape keeps, and when it lets go
# - [`minigrad/profile/memory.py`](../../minigrad/profile/memory.py): memory by category;
#   [`minigrad/device/memory.py`](../../minigrad/device/memory.py): the pool

# %% [markdown]
# ## Exercises
#
# ### Exercise 1: the ends of a format
#
# For a format with so many exponent and fraction bits, which is the largest whole number $n$ such that *all* whole
# numbers from 0 to $n$ are in the format? (The range is never the limit in these formats.)


# %%
def whole_numbers(exponent_bits, fraction_bits): ...  # your answer


check(whole_numbers)

# %% [markdown]
# ### Exercise 2: bfloat16 by its bits
#
# bfloat16 is the upper half of a float32. Round `x`, an array of float32, to the nearest bfloat16, ties to even, and
# return it as float32. (`x.view(np.uint32)` are its bits. Cutting the lower half off would round towards zero.) No NaN.


# %%
def to_bfloat16(x): ...  # your answer


check(to_bfloat16)

# %% [markdown]
# ### Exercise 3: will it fit?
#
# A network has `parameters` parameters and keeps `activations` bytes for each image. Training uses Adam in float32.
# What is the largest number of images in a microbatch for which the step fits into `memory` bytes? (0 if none does.)


# %%
def largest_microbatch(parameters, activations, memory): ...  # your answer


check(largest_microbatch)

# %% [markdown]
# ## Solutions
#
# **1.** With the leading 1 a number has $f + 1$ digits, so up to $2^{f+1}$ all whole numbers are there. Beyond,
# neighbours lie 2 apart, and $2^{f+1} + 1$ is missing. The exponent bits do not matter.


# %%
def whole_numbers(exponent_bits, fraction_bits):
    return 2 ** (fraction_bits + 1)


check(whole_numbers)

# %% [markdown]
# **2.** Adding just below half of the last place carries into the upper half exactly if the lower half is more than
# half a place; the extra 1 for an odd upper half makes a tie carry to the even one.


# %%
def to_bfloat16(x):
    bits = x.view(np.uint32)
    odd = (bits >> 16) & 1
    return ((bits + 0x7FFF + odd) & np.uint32(0xFFFF0000)).astype(np.uint32).view(np.float32)


check(to_bfloat16)

# %% [markdown]
# **3.** What is left after 16 bytes a parameter, divided by an image's activations. The batch itself may be any
# multiple of it: accumulation does the rest.


# %%
def largest_microbatch(parameters, activations, memory):
    return max(0, (memory - 16 * parameters) // activations)


check(largest_microbatch)
