# %% [markdown]
# # 4. Training a network that reads digits
#
# **Goal** You can write the training loop yourself and know what each line does: the loss and its gradient, what SGD,
# momentum, RMSprop and Adam do with it, and what a schedule is for. And you can look inside a trained network: its
# filters, and what it confuses.
#
# **You need** [notebook 1](01_tape.ipynb) for gradients; [notebook 3](03_convolution.ipynb) helps for convolutions. The
# softmax of a vector and the variance of a mean should not be news.
#
# **Time** 50 minutes to read and try, half an hour for the exercises.

# %%
import math

import matplotlib.pyplot as plt
import numpy as np
from exercises import check

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
    heights = []
    for _ in range(steps):
        heights.append(0.5 * (w * w).mean().item())
        w.grad = w.detach() + minigrad.randn(200)  # the true gradient is w itself
        optimizer.step()
        if schedule is not None:
            schedule.step()
    return heights


runs = {
    "0.5 throughout": noisy_descent(0.5),
    "0.01 throughout": noisy_descent(0.01),
    "cosine from 0.5 to 0": noisy_descent(0.5, lambda one: lr_scheduler.CosineAnnealingLR(one, 300)),
}
for (name, heights), color, style in zip(runs.items(), (RED, ORANGE, BLUE), ("-", "--", "-."), strict=True):
    plt.semilogy(heights, style, color=color, label=name)
plt.xlabel("step")
plt.ylabel("mean height")
plt.legend()
plt.show()
final = {name: np.mean(heights[-10:]) for name, heights in runs.items()}
assert final["cosine from 0.5 to 0"] < 0.2 * min(final["0.5 throughout"], final["0.01 throughout"])
assert runs["0.01 throughout"][50] > 10 * runs["cosine from 0.5 to 0"][50]

# %% [markdown]
# ## The training loop
#
# Now everything is in place, and the loop is five lines. The loader gives pixels of mean 0 and deviation 1, which suits
# the initial weights.

# %%
normalize = data.Normalize(train.mean, train.std)
minigrad.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(),
    nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(),
    nn.MaxPool2d(2), nn.Flatten(),
    nn.Linear(32 * 4 * 4, 10),
)  # fmt: skip
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
# Why Adam? It is a good first guess, because it moves each weight by about the rate in a step, whatever the scale of
# the gradient.
#
# ## A larger network
#
# Now MNIST where it is on disk (8,000 images to train on and 5,000 to test, so that it takes seconds), else our digits
# enlarged to its size. `minigrad.train.fit` is the loop from above with a test after each epoch, schedules, clipping
# and accumulation. Clipping, `clip=5.0`, bounds the length of all gradients together: one step from the edge of a cliff
# would throw the weights far away. Accumulation adds the gradients of several small batches where a large one does not
# fit into memory; notebook 6 has it.

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


check(scores_gradient)

# %% [markdown]
# ### Exercise 2: Nesterov's momentum
#
# Momentum that looks ahead: first $b \leftarrow \mu b + g$ as before, but then
# $w \leftarrow w - \eta\,(g + \mu b)$: the step that the *next* update would begin with is taken already. Return the
# tuple $(w, b)$ after one update.


# %%
def nesterov(w, g, b, rate, mu): ...  # your answer


check(nesterov)

# %% [markdown]
# ### Exercise 3: clip all gradients together
#
# Given a list of gradient arrays of different shapes, return a list with all of them scaled by **one** factor, so that
# their length as one long vector is at most `largest`. Shorter ones stay as they are.


# %%
def clip_together(gradients, largest): ...  # your answer


check(clip_together)

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


check(scores_gradient)

# %% [markdown]
# **Exercise 2.** As in the library: `optim.SGD(..., momentum=0.8, nesterov=True)`.


# %%
def nesterov(w, g, b, rate, mu):
    b = mu * b + g
    return w - rate * (g + mu * b), b


check(nesterov)

# %% [markdown]
# **Exercise 3.** Clipping every array by its own length would turn the gradient: layers with long gradients would lose
# more than others.


# %%
def clip_together(gradients, largest):
    length = np.sqrt(sum((one**2).sum() for one in gradients))
    return [one * min(1, largest / length) for one in gradients]


check(clip_together)
