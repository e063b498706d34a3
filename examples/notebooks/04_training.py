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
# # 4. Training a network that reads digits
#
# **Goal** You can write the training loop yourself and know what each line does: the loss and its gradient, what SGD,
# momentum, RMSprop and Adam do with it, schedules, clipping, accumulation. And you can look inside a trained network:
# filters, feature maps, what it confuses.
#
# **You need** [notebook 1](01_tape.ipynb) for gradients; [notebook 3](03_convolution.ipynb) helps for convolutions. The
# softmax of a vector and the variance of a mean should not be news.
#
# **Time** 50 minutes to read and try, an hour with the exercises.

# %%
import math

import matplotlib.pyplot as plt
import numpy as np
from checks import check

import minigrad
from minigrad import data, draw, nn, optim
from minigrad.nn.functional import cross_entropy, softmax
from minigrad.optim import lr_scheduler
from minigrad.train import evaluate, fit

BLUE, RED, GREEN, ORANGE = "#0072B2", "#D55E00", "#009E73", "#E69F00"  # told apart with any colour vision
minigrad.manual_seed(0)
random = np.random.default_rng(0)

# %% [markdown]
# ## The task
#
# 1,797 pictures of handwritten digits come with the package, 8 x 8 pixels each. Four of five are for training. The
# rest is for the test only: it answers the question how the network does on digits that it has never seen.

# %%
train, test = data.digits()
print(train, "and", len(test), "to test")
assert len(train) + len(test) == 1797

figure, axes = plt.subplots(1, 10, figsize=(10, 1.4), layout="constrained")
for one, image, label in zip(axes, train.images, train.labels, strict=False):
    one.imshow(image[0], cmap="gray_r")
    one.set_title(f"label {label}", fontsize=9)
    one.axis("off")
plt.show()

# %% [markdown]
# ## The loss
#
# The network gives a score $z_k$ to each of the ten classes. Softmax makes probabilities of them, and the loss is large
# when the true class $t$ got little:
#
# $$p_k = \frac{e^{z_k}}{\sum_j e^{z_j}} \qquad L = -\log p_t$$
#
# This is **cross entropy**. Its gradient is a gem. From $L = -z_t + \log \sum_j e^{z_j}$ follows
#
# $$\frac{\partial L}{\partial z_k} = p_k - [k = t]$$
#
# predicted minus true: each score is pulled down by the probability it should not have, the true one is pushed up by
# what is missing to 1. Nothing vanishes when the network is confidently wrong; then the pull is strongest.


# %%
def cross_entropy_by_hand(z, t):
    p = np.exp(z - z.max()) / np.exp(z - z.max()).sum()  # z - max changes nothing but keeps exp from overflowing
    gradient = p.copy()
    gradient[t] -= 1
    return -np.log(p[t]), gradient


z, t = random.normal(size=10), 3
scores = minigrad.tensor(z[None], requires_grad=True)
loss = cross_entropy(scores, minigrad.tensor([t]))
loss.backward()
by_hand, gradient = cross_entropy_by_hand(z, t)
print(f"by hand {by_hand:.6f}, engine {loss.item():.6f}")
assert np.allclose(by_hand, loss.item()) and np.allclose(gradient, scores.grad.numpy()[0])

# %%
figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
axes.bar(np.arange(10) - 0.2, gradient + np.eye(10)[t], 0.4, color=BLUE, label="probability p")
axes.bar(np.arange(10) + 0.2, gradient, 0.4, color=ORANGE, hatch="//", label="gradient p - [k = t]")
axes.axhline(0, color="black", linewidth=0.8)
axes.set(xlabel="class k (the true one is 3)", ylabel="value", xticks=range(10))
axes.legend()
plt.show()

# %% [markdown]
# ## A batch is an estimate
#
# What we want to make small is the mean loss over all images. Its gradient is the mean of all images' gradients. That
# is too dear for every step, so we take a batch of $B$ random images: right on average, but noisy. The noise of a mean
# falls as
#
# $$\text{deviation} \propto \frac{1}{\sqrt{B}}.$$
#
# Four times the work halves the noise: that is why batches are small. Measured, with a single linear layer, where the
# gradient of each image is $(p - [k = t])\, x^\top$:

# %%
x = train.images.reshape(len(train), -1) / 255
W = random.normal(size=(10, x.shape[1])) * 0.1
errors = softmax(minigrad.tensor(x @ W.T), 1).numpy() - np.eye(10)[train.labels]  # (N, 10)
full = errors.T @ x / len(x)

sizes, noise = [1, 4, 16, 64, 256], []
for size in sizes:
    batches = [random.integers(0, len(x), size) for _ in range(200)]
    estimates = [errors[batch].T @ x[batch] / size for batch in batches]
    noise.append(np.sqrt(np.mean([((one - full) ** 2).sum() for one in estimates])) / np.linalg.norm(full))

plt.loglog(sizes, noise, "o", color=BLUE, label="measured")
plt.loglog(sizes, noise[0] / np.sqrt(sizes), "--", color=RED, label="first point / √B")
plt.xlabel("images in the batch, B")
plt.ylabel("noise / length of the gradient")
plt.legend()
plt.grid(alpha=0.3)
plt.show()
assert np.allclose(noise * np.sqrt(sizes) / noise[0], 1, atol=0.15)

# %% [markdown]
# ## Four ways to take a step
#
# Given a gradient $g$ and a rate $\eta$, all of them change the weights $w$:
#
# | rule | memory | step |
# |---|---|---|
# | SGD | | $w \leftarrow w - \eta\, g$ |
# | momentum | $b \leftarrow \mu b + g$ | $w \leftarrow w - \eta\, b$ |
# | RMSprop | $v \leftarrow \alpha v + (1 - \alpha)\, g^2$ | $w \leftarrow w - \eta\, g / (\sqrt v + \epsilon)$ |
# | Adam | $m \leftarrow \beta_1 m + (1 - \beta_1)\, g$ | $\hat m = m / (1 - \beta_1^t)$ |
# | | $v \leftarrow \beta_2 v + (1 - \beta_2)\, g^2$ | $\hat v = v / (1 - \beta_2^t)$ |
# | | | $w \leftarrow w - \eta\, \hat m / (\sqrt{\hat v} + \epsilon)$ |
#
# Momentum lets steps that agree add up and steps that alternate cancel. RMSprop divides by the usual size of *each*
# weight's gradient, so that all weights move at about the same speed. Adam does both. Its averages start at 0 and are
# too small at first; dividing by $1 - \beta^t$ mends that. Each is a line or three:


# %%
def sgd(w, g, state, t, rate):
    return w - rate * g


def momentum(w, g, state, t, rate, mu=0.9):
    state["b"] = mu * state.get("b", 0) + g
    return w - rate * state["b"]


def rmsprop(w, g, state, t, rate, alpha=0.9, eps=1e-8):
    state["v"] = alpha * state.get("v", 0) + (1 - alpha) * g**2
    return w - rate * g / (np.sqrt(state["v"]) + eps)


def adam(w, g, state, t, rate, beta1=0.9, beta2=0.999, eps=1e-8):
    state["m"] = beta1 * state.get("m", 0) + (1 - beta1) * g
    state["v"] = beta2 * state.get("v", 0) + (1 - beta2) * g**2
    m, v = state["m"] / (1 - beta1**t), state["v"] / (1 - beta2**t)
    return w - rate * m / (np.sqrt(v) + eps)


# %% [markdown]
# One surface for all four: a curved valley with steep walls and a nearly flat floor. The walls forbid a large rate, the
# floor wants one. All begin at the same point and may take 80 steps.


# %%
def valley(x, y):
    return 0.5 * (1 - x) * (1 - x) + 5 * (y - x * x) * (y - x * x)


def slope_at(w):
    at = minigrad.tensor(w, requires_grad=True)
    (gradient,) = minigrad.grad(valley(at[0], at[1]), at)
    return gradient.numpy()


def path_of(rule, rate, steps=80):
    w, state, path = np.array([-1.0, 0.1]), {}, []
    for step in range(1, steps + 1):
        path.append(w)
        w = rule(w, slope_at(w), state, step, rate)
    return np.array([*path, w])


rates = {sgd: 0.02, momentum: 0.01, rmsprop: 0.05, adam: 0.15}
paths = {rule.__name__: path_of(rule, rate) for rule, rate in rates.items()}

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(12, 5), layout="constrained")
x, y = np.meshgrid(np.linspace(-1.6, 1.4, 200), np.linspace(-0.6, 1.8, 200))
levels = valley(x, y).max() * np.linspace(0.04, 1, 14) ** 3  # denser where the surface is low
lines = left.contour(x, y, valley(x, y), levels, colors="#999999", linewidths=0.8)
left.clabel(lines, lines.levels[2::2], fontsize=7, fmt="%.3g")
looks = zip(paths.items(), (BLUE, RED, GREEN, "#CC79A7"), ("-", "--", "-.", ":"), "os^D", strict=True)
for (name, path), color, style, marker in looks:
    left.plot(*path.T, style, color=color, marker=marker, markersize=4, markevery=6)
    left.plot(*path[-1], marker, color=color, markersize=9, markeredgecolor="white")
    right.semilogy(valley(*path.T), style, color=color, linewidth=2, label=name)
left.plot(*path[0], "o", color="white", markeredgecolor="black")  # where all begin
left.set(xlabel="x", ylabel="y")
right.set(xlabel="step", ylabel="height")
right.legend()
right.grid(alpha=0.3)
plt.show()

heights = {name: valley(*path.T) for name, path in paths.items()}
first_step = abs(paths["rmsprop"][1] - paths["rmsprop"][0])
assert np.isclose(*first_step) and heights["rmsprop"][70:].max() > 10 * heights["rmsprop"][70]
assert max(heights["momentum"][-1], heights["adam"][-1]) < 0.2 * heights["sgd"][-1]

# %% [markdown]
# Read the picture slowly; it shows four characters.
#
# - **SGD** goes straight down the wall, perpendicular to the contours, and then crawls along the floor.
# - **momentum** runs through the floor and up the other side, swings back, but the swings cancel and the way along the
#   floor adds up.
# - **RMSprop** begins diagonally: both coordinates get the same speed, whatever their slope. On the floor it keeps that
#   speed where SGD crawls. The price is seen at the end: where all gradients of late were small, it divides by little,
#   and the next larger one throws it out of the valley for a moment.
# - **Adam** begins as RMSprop does, and swings like momentum, more softly.
#
# Are these the rules of the library? Same point, same gradients, 80 steps of `minigrad.optim`:

# %%
library = {
    "sgd": lambda w: optim.SGD([w], lr=0.02),
    "momentum": lambda w: optim.SGD([w], lr=0.01, momentum=0.9),
    "rmsprop": lambda w: optim.RMSprop([w], lr=0.05, alpha=0.9),
    "adam": lambda w: optim.Adam([w], lr=0.15),
}
for name, make in library.items():
    w = minigrad.tensor([-1.0, 0.1], dtype="float64", requires_grad=True)
    optimizer = make(w)
    for _ in range(80):
        optimizer.zero_grad()
        valley(w[0], w[1]).backward()
        optimizer.step()
    print(f"{name:9} ends at x = {w[0].item():.6f}, y = {w[1].item():.6f}")
    assert np.allclose(w.tolist(), paths[name][-1])

# %% [markdown]
# ## Schedules: fast first, careful later
#
# Near the minimum the noise of the batches takes over: steps of a fixed rate stumble around it at a distance that grows
# with the rate. A small rate comes closer but needs long to get there. So begin large and shrink.
#
# Try it on 200 parabolas $f = \tfrac12 w^2$ at once, with unit noise added to each gradient:


# %%
def noisy_descent(rate, schedule=None, steps=300):
    w = minigrad.full((200,), 10.0, requires_grad=True)
    optimizer = optim.SGD([w], lr=rate)
    schedule = schedule and schedule(optimizer)
    heights, used = [], []
    for _ in range(steps):
        heights.append(0.5 * (w * w).mean().item())
        used.append(optimizer.param_groups[0]["lr"])
        w.grad = w.detach() + minigrad.randn(200)  # the true gradient is w itself
        optimizer.step()
        if schedule is not None:
            schedule.step()
    return heights, used


runs = {
    "0.5 throughout": noisy_descent(0.5),
    "0.01 throughout": noisy_descent(0.01),
    "cosine from 0.5 to 0": noisy_descent(0.5, lambda one: lr_scheduler.CosineAnnealingLR(one, 300)),
    "one cycle up to 0.5": noisy_descent(0.5, lambda one: lr_scheduler.OneCycleLR(one, 0.5, 300)),
}
figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4), layout="constrained")
looks = zip(runs.items(), (RED, ORANGE, BLUE, GREEN), ("-", "--", "-", "-."), strict=True)
for (name, (heights, used)), color, style in looks:
    left.plot(used, style, color=color, linewidth=2)
    right.semilogy(heights, style, color=color, label=name)
left.set(xlabel="step", ylabel="rate")
right.set(xlabel="step", ylabel="mean height")
right.legend()
plt.show()
final = {name: np.mean(heights[-10:]) for name, (heights, _) in runs.items()}
assert final["cosine from 0.5 to 0"] < 0.2 * min(final["0.5 throughout"], final["0.01 throughout"])
assert runs["0.01 throughout"][0][50] > 10 * runs["cosine from 0.5 to 0"][0][50]

# %% [markdown]
# ## Clipping
#
# Some surfaces have cliffs. One step from the edge of a cliff uses a huge gradient and throws the weights far away.
# Clipping bounds the length of the gradient of all weights together and keeps its *direction*:
#
# $$g \leftarrow g \cdot \min\!\Big(1, \frac{c}{\lVert g \rVert}\Big)$$
#
# A cliff in one dimension: $f(w) = (w^4 - 1)^2$, gentle between -1 and 1, very steep outside. We start at 2.5.


# %%
def descend(largest, rate=0.02, steps=60):
    w = minigrad.tensor([2.5], requires_grad=True)
    optimizer, places = optim.SGD([w], lr=rate), []
    for _ in range(steps):
        places.append(w.item())
        optimizer.zero_grad()
        ((w**4 - 1) ** 2).sum().backward()
        optim.clip_grad_norm_([w], largest)
        optimizer.step()
        if not math.isfinite(w.item()):
            break
    return places


free, clipped = descend(math.inf), descend(5.0)
print("without clipping:", " -> ".join(f"{w:.2g}" for w in free), "-> no finite number")
plt.semilogy(np.abs(free), "s--", color=RED, label="free: the next one overflows")
plt.semilogy(clipped, "o-", color=BLUE, markersize=3, label="clipped to length 5")
plt.xlabel("step")
plt.ylabel("|w|  (the minimum is at 1)")
plt.legend()
plt.grid(alpha=0.3)
plt.show()
assert len(free) < 10 and abs(clipped[-1] - 1) < 0.01

# %% [markdown]
# ## Accumulation
#
# A batch that does not fit into memory can be cut. The loss is a mean, so the gradient of the whole is the mean of the
# gradients of its parts, and `backward()` *adds* to `.grad` anyway:
#
# $$g = \frac1B \sum_{i=1}^{B} g_i = \sum_{\text{parts } p} \frac{B_p}{B}\; g_p$$
#
# Mind the weights $B_p / B$: a smaller last part counts for less. The loader gives pixels of mean 0 and deviation 1,
# which suits the initial weights.


# %%
normalize = data.Normalize(train.mean, train.std)


def digits_network():
    minigrad.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(32 * 4 * 4, 10),
    )  # fmt: skip


model = digits_network()
images, labels = next(iter(data.Loader(train, 50, shuffle=True, transform=normalize)))
cross_entropy(model(images), labels).backward()
whole = [parameter.grad.numpy().copy() for parameter in model.parameters()]

model.zero_grad()
for part in (slice(0, 20), slice(20, 40), slice(40, 50)):
    share = len(labels[part]) / len(labels)
    (cross_entropy(model(images[part]), labels[part]) * share).backward()
for parameter, wanted in zip(model.parameters(), whole, strict=True):
    assert np.allclose(parameter.grad.numpy(), wanted, atol=1e-6)
print("three parts give the gradient of the whole batch, up to rounding")

# %% [markdown]
# ## The training loop
#
# Now everything is in place, and the loop is five lines.

# %%
model = digits_network()
optimizer = optim.Adam(model.parameters(), lr=3e-3)
losses = []
for _epoch in range(3):
    for images, labels in data.Loader(train, 64, shuffle=True, transform=normalize):
        optimizer.zero_grad()
        loss = cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

plt.plot(losses, color=BLUE)
plt.axhline(math.log(10), color="black", linestyle=":", label="a guess: log 10")
plt.xlabel("step")
plt.ylabel("loss of the batch")
plt.legend()
plt.show()
loss, accuracy = evaluate(model, data.Loader(test, 256, transform=normalize))
print(f"on digits never seen: loss {loss:.3f}, accuracy {100 * accuracy:.1f} %")
assert abs(losses[0] - math.log(10)) < 0.5 and accuracy > 0.9

# %% [markdown]
# The first loss is near $\log 10$: an untrained network gives each class about the same probability. If your own first
# loss is far above the logarithm of the number of classes, look at the scale of the inputs before anything else.
#
# `minigrad.train.fit` is this loop with a test after each epoch, schedules, clipping and accumulation. We use it to
# compare the four rules once more, on the network.

# %%
makers = {
    "SGD": lambda parameters: optim.SGD(parameters, lr=0.1),
    "momentum": lambda parameters: optim.SGD(parameters, lr=0.02, momentum=0.9),
    "RMSprop": lambda parameters: optim.RMSprop(parameters, lr=1e-3),
    "Adam": lambda parameters: optim.Adam(parameters, lr=3e-3),
}
histories = {}
for name, make in makers.items():
    model = digits_network()
    loader = data.Loader(train, 64, shuffle=True, transform=normalize)
    tested = data.Loader(test, 256, transform=normalize)
    histories[name] = fit(model, loader, make(model.parameters()), 3, test=tested)

# %%
looks = zip(histories.items(), (BLUE, RED, GREEN, "#CC79A7"), ("o-", "s--", "^-.", "D:"), strict=True)
for (name, history), color, style in looks:
    plt.semilogy(history["epoch"], history["test_loss"], style, color=color, label=name)
plt.xlabel("epoch")
plt.ylabel("loss on the test images")
plt.xticks([1, 2, 3])
plt.legend()
plt.grid(alpha=0.3)
plt.show()
for name, history in histories.items():
    print(f"{name:9} test accuracy {100 * history[-1]['test_accuracy']:.1f} %")
assert all(history[-1]["loss"] < history[0]["loss"] for history in histories.values())

# %% [markdown]
# Do not read a ranking into this: each rule can be made to look bad by a wrong rate, and with another rate or a
# schedule the order changes. Try it. Adam is a good first guess, because it moves each weight by about the rate in a
# step, whatever the scale of the gradient.
#
# ## A larger network
#
# Now MNIST where it is on disk (8,000 images to train on and 5,000 to test, so that it takes seconds), else our digits
# enlarged to its size.

# %%
if data.available("mnist"):
    train, test = data.mnist(download=False)
    train, test, epochs = train.subset(np.arange(8000)), test.subset(np.arange(5000)), 3
else:
    train, test = data.digits(size=28)
    epochs = 8
print(f"{train.name}: {len(train)} images to train, {len(test)} to test, {epochs} epochs")

minigrad.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(1, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Linear(32 * 5 * 5, 64), nn.ReLU(), nn.Linear(64, 10),
)  # fmt: skip
print(nn.summary(model, (1, 1, 28, 28)))

# %%
before = model[0].weight.detach().numpy().copy()
normalize = data.Normalize(train.mean, train.std)
loader = data.Loader(train, 64, shuffle=True, transform=normalize)
tested = data.Loader(test, 256, transform=normalize)
optimizer = optim.Adam(model.parameters())
schedule = lr_scheduler.OneCycleLR(optimizer, 6e-3, epochs * len(loader))
history = fit(model, loader, optimizer, epochs, test=tested, schedule=schedule, clip=5.0)

figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
draw.learning_curve(history, axes[0], "loss")
draw.learning_curve(history, axes[1], "accuracy")
plt.show()
print(f"test accuracy {100 * history[-1]['test_accuracy']:.2f} %")
assert history[-1]["test_accuracy"] > 0.94 and history[0]["test_loss"] < history[0]["loss"]

# %% [markdown]
# In the first epoch the network does better on the test images than on those that it learns from? No: the training
# figures are means over the epoch, while the weights still changed, and the test comes at its end.
#
# ## What it has learned
#
# The 16 filters of the first layer, before and after. Out of the noise have come strokes and edges in several
# directions, though with so little training not in every filter. Nobody told it that edges matter; they make the loss
# smaller.

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 5), layout="constrained")
draw.filters(before, left)
left.set_title("before")
draw.filters(model[0].weight, right)
right.set_title("after")
plt.show()

# %% [markdown]
# Follow one digit through the network. The first layer answers its 16 questions at every place; the second asks 32
# questions about these answers, on a coarser grid. What is where fades, what it means emerges.

# %%
images, labels = next(iter(tested))
with minigrad.no_grad():
    first = model[:2](images[:1]).numpy()[0]
    second = model[:5](images[:1]).numpy()[0]
figure, axes = plt.subplots(1, 3, figsize=(13, 4.6), layout="constrained", width_ratios=(0.6, 1, 1))
axes[0].imshow(images.numpy()[0, 0], cmap="gray_r")
axes[0].set(title=f"a {labels.numpy()[0]}", xticks=[], yticks=[])
draw.feature_maps(first, axes[1])
axes[1].set_title("after the first convolution")
draw.feature_maps(second, axes[2])
axes[2].set_title("after the second")
plt.show()

# %% [markdown]
# What does it confuse? Count for every true class what was predicted. The diagonal is right.

# %%
probabilities = []
model.eval()
with minigrad.no_grad():
    for images, _ in tested:
        probabilities.append(softmax(model(images), 1).numpy())
probabilities = np.concatenate(probabilities)
predicted = probabilities.argmax(1)

confusion = np.zeros((10, 10), int)
np.add.at(confusion, (test.labels, predicted), 1)
figure, axes = plt.subplots(figsize=(6.4, 5.4), layout="constrained")
draw.confusion_matrix(confusion, axes)
plt.show()
assert np.isclose(np.trace(confusion) / len(test), history[-1]["test_accuracy"])

# %% [markdown]
# And the worst mistakes: the images with the largest loss $-\log p_t$. Always look at them: here you find wrong labels,
# images that nobody can read, and kinds of writing that the training images lack.

# %%
figure, axes = plt.subplots(figsize=(7, 7.5), layout="constrained")
draw.worst_mistakes(test.images, test.labels, probabilities, axes, count=16)
plt.show()

# %% [markdown]
# ## In the library
#
# | here | there |
# |---|---|
# | cross entropy | [`minigrad/ops/loss.py`](../../minigrad/ops/loss.py) |
# | SGD, RMSprop, Adam | [`minigrad/optim/rules.py`](../../minigrad/optim/rules.py): formula first |
# | what all rules share | [`minigrad/optim/optimizer.py`](../../minigrad/optim/optimizer.py) |
# | schedules | [`minigrad/optim/lr_scheduler.py`](../../minigrad/optim/lr_scheduler.py) |
# | clipping | [`minigrad/optim/clip.py`](../../minigrad/optim/clip.py) |
# | the loop, with accumulation | [`minigrad/train/loop.py`](../../minigrad/train/loop.py) |
# | the pictures | [`minigrad/draw/`](../../minigrad/draw) |
#
# `minigrad train` on the command line runs the same and writes its curves into a folder.
#
# ## Exercises
#
# ### Exercise 1: the gradient of a batch
#
# The loss of a batch is the mean of the images' cross entropies. Given scores $z$ of shape $(N, K)$ and labels of shape
# $(N,)$, return $dL/dz$ of shape $(N, K)$, with NumPy. It must survive scores of 1000.


# %%
def scores_gradient(z, labels): ...  # your answer


# %%
def gradient_cases(random=random):
    cases = []
    for scale in (1, 1000):
        z, labels = scale * random.normal(size=(4, 3)), random.integers(0, 3, 4)
        leaf = minigrad.tensor(z, requires_grad=True)
        (wanted,) = minigrad.grad(cross_entropy(leaf, minigrad.tensor(labels)), leaf)
        cases.append(((z, labels), wanted.numpy()))
    return cases


check(scores_gradient, gradient_cases(), "p - [k = t] for each image, divided by N; subtract the maximum before exp")

# %% [markdown]
# ### Exercise 2: Nesterov's momentum
#
# Momentum that looks ahead: first $b \leftarrow \mu b + g$ as before, but then
# $w \leftarrow w - \eta\,(g + \mu b)$: the step that the *next* update would begin with is taken already. Return the
# tuple $(w, b)$ after one update.


# %%
def nesterov(w, g, b, rate, mu): ...  # your answer


# %%
def nesterov_cases(random=random):
    w, first, second = random.normal(size=(3, 5))
    leaf = minigrad.tensor(w, requires_grad=True)
    optimizer = optim.SGD([leaf], lr=0.1, momentum=0.8, nesterov=True)
    cases = []
    for g, b in ((first, np.zeros(5)), (second, first)):
        start = leaf.detach().numpy().copy()
        leaf.grad = minigrad.tensor(g)
        optimizer.step()
        cases.append(((start, g, b, 0.1, 0.8), (leaf.detach().numpy().copy(), 0.8 * b + g)))
    return cases


check(nesterov, nesterov_cases(), "use the new b in the step, and add the gradient once more")

# %% [markdown]
# ### Exercise 3: warm up, then cool down
#
# Write a schedule: in the first `warmup` steps the rate rises linearly, $\eta\,(s + 1) / \text{warmup}$ at step
# $s = 0, 1, \dots$; from step `warmup` on it falls as half a cosine,
# $\tfrac{\eta}{2}\,(1 + \cos \pi x)$, where $x$ goes from 0 at step `warmup` to 1 at step `total`.


# %%
def warm_cosine(step, warmup, total, peak): ...  # your answer


# %%
def schedule_cases():
    cases = []
    for warmup, total, peak in ((5, 30, 0.1), (10, 20, 1.0)):
        for step in (0, 2, warmup - 1, warmup, (warmup + total) // 2, total - 1, total):
            turn = np.interp(step, [warmup, total], [0, np.pi])
            wanted = peak * (step + 1) / warmup if step < warmup else peak * np.cos(turn / 2) ** 2
            cases.append(((step, warmup, total, peak), np.array(wanted)))
    return cases


check(warm_cosine, schedule_cases(), "x = (step - warmup) / (total - warmup)")

# %% [markdown]
# ### Exercise 4: clip all gradients together
#
# Given a list of gradient arrays of different shapes, return a list with all of them scaled by **one** factor, so that
# their length as one long vector is at most `largest`. Shorter ones stay as they are.


# %%
def clip_together(gradients, largest): ...  # your answer


# %%
def clip_cases(random=random):
    cases = []
    for largest in (1.0, 100.0):
        gradients = [random.normal(size=shape) for shape in ((3, 2), (4,), (2, 2, 2))]
        leaves = [minigrad.tensor(np.zeros(one.shape), requires_grad=True) for one in gradients]
        for leaf, one in zip(leaves, gradients, strict=True):
            leaf.grad = minigrad.tensor(one.copy())
        optim.clip_grad_norm_(leaves, largest)
        cases.append(((gradients, largest), tuple(leaf.grad.numpy() for leaf in leaves)))
    return cases


check(clip_together, clip_cases(), "one norm over all arrays, one factor for all, never above 1")

# %% [markdown]
# ### Exercise 5: parts of unequal size
#
# A batch was cut into parts. You get the gradient of each part's mean loss, and the number of images in each. Return
# the gradient of the mean loss over all images. Then think: which of momentum, RMSprop and clipping may be applied to
# each part, and which must wait for the sum?


# %%
def accumulated(gradients, counts): ...  # your answer


# %%
def accumulation_cases(random=random):
    cases = []
    for counts in ([16, 16], [20, 20, 3]):
        each = [random.normal(size=(count, 4)) for count in counts]
        cases.append((([one.mean(0) for one in each], counts), np.concatenate(each).mean(0)))
    return cases


check(accumulated, accumulation_cases(), "a part of 3 images must not count as much as one of 20")

# %% [markdown]
# ## Solutions
#
# **Exercise 1.** The mean divides by $N$. Subtracting the largest score of each row changes no probability, since
# numerator and denominator shrink by the same factor.


# %%
def scores_gradient(z, labels):
    exponentials = np.exp(z - z.max(axis=1, keepdims=True))
    p = exponentials / exponentials.sum(axis=1, keepdims=True)
    p[np.arange(len(z)), labels] -= 1
    return p / len(z)


check(scores_gradient, gradient_cases())

# %% [markdown]
# **Exercise 2.** As in the library: `optim.SGD(..., momentum=0.8, nesterov=True)`.


# %%
def nesterov(w, g, b, rate, mu):
    b = mu * b + g
    return w - rate * (g + mu * b), b


check(nesterov, nesterov_cases())

# %% [markdown]
# **Exercise 3.** The warm-up protects Adam and RMSprop, whose averages of the squared gradient rest on few batches at
# first. In the library: `SequentialLR` of `LinearLR` and `CosineAnnealingLR`, or a `LambdaLR` with this function.


# %%
def warm_cosine(step, warmup, total, peak):
    if step < warmup:
        return peak * (step + 1) / warmup
    return peak / 2 * (1 + math.cos(math.pi * (step - warmup) / (total - warmup)))


check(warm_cosine, schedule_cases())

# %% [markdown]
# **Exercise 4.** Clipping every array by its own length would turn the gradient: layers with long gradients would lose
# more than others.


# %%
def clip_together(gradients, largest):
    length = np.sqrt(sum((one**2).sum() for one in gradients))
    return [one * min(1, largest / length) for one in gradients]


check(clip_together, clip_cases())

# %% [markdown]
# **Exercise 5.** All three must wait. Momentum is linear but would be multiplied by $\mu$ once for each part; RMSprop
# squares, and clipping takes a length, and neither of the sum is the sum of those of its parts.


# %%
def accumulated(gradients, counts):
    return sum(count * one for count, one in zip(counts, gradients, strict=True)) / sum(counts)


check(accumulated, accumulation_cases())
