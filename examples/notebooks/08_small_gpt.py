# %% [markdown]
# # 8. A small GPT
#
# **Goal** You can say what attention computes, write one head by hand, hide the future from it, and build a network of
# it that learns to write, character by character. You see what its heads look at.
#
# **You need** [Notebook 4](04_training.ipynb): cross entropy and a training loop. Matrix products and softmax.
#
# **Time** 40 minutes to read and try, 20 for the exercises.

# %%
import sys

import matplotlib.pyplot as plt
import numpy as np
from exercises import check

import minigrad
from minigrad import Tensor, nn, optim
from minigrad.nn import functional as F

sys.path.append("..")  # the folder of the examples
import tiny_gpt

minigrad.manual_seed(0)
random = np.random.default_rng(0)
BLUE, RED = "#0072B2", "#D55E00"

# %% [markdown]
# ## The task
#
# A text is a row of characters. The network reads the characters up to some place and guesses the one that follows. We
# have 13 kB of text: two speeches of Abraham Lincoln and the United States Declaration of Independence.

# %%
characters, numbers = tiny_gpt.read()
print(f"{len(numbers):,} characters, {len(characters)} different:", "".join(characters).replace("\n", "\\n"))
print("".join(characters[n] for n in numbers[:110]))

shares = np.bincount(numbers) / len(numbers)
by_share = -(shares * np.log(shares)).sum()
print(f"loss of a guess: {np.log(len(characters)):.2f}; of one who knows how often each comes: {by_share:.2f}")

# %% [markdown]
# ## Attention
#
# To guess what follows `necessar`, one must look back at the letters. But which of them matter? Attention answers in
# three steps. Each place $i$ of the text has three vectors:
#
# - a **query** $q_i$: what am I looking for?
# - a **key** $k_i$: what do I offer?
# - a **value** $v_i$: what do I say if somebody looks at me?
#
# The product $q_i \cdot k_j$ is large where the offer of $j$ suits the search of $i$. Softmax makes weights of these
# products, which add up to 1. The result is the mean of the values with these weights:
#
# $$a_{ij} = \frac{e^{s_{ij}}}{\sum_l e^{s_{il}}} \quad\text{with}\quad s_{ij} = \frac{q_i \cdot k_j}{\sqrt d},
#   \qquad o_i = \sum_j a_{ij}\, v_j$$
#
# As matrices, with a row for each place:
#
# $$O = \text{softmax}\Big(\frac{Q K^\top}{\sqrt d}\Big)\, V$$
#
# $d$ is the length of a query. A product of two random vectors has the deviation $\sqrt d$. Without the division one
# weight would soon be 1 and all others 0, and softmax would pass on no gradient.


# %%
def softmax(scores):
    exponentials = np.exp(scores - scores.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


def head(Q, K, V, mask=None):
    """One head of attention: its results, and its weights."""
    scores = Q @ K.T / Q.shape[1] ** 0.5
    if mask is not None:
        scores = np.where(mask, -np.inf, scores)  # e^-inf is 0
    weights = softmax(scores)
    return weights @ V, weights


Q, K, V = random.standard_normal((3, 6, 8)).astype(np.float32)
by_hand, weights = head(Q, K, V)
library = F.scaled_dot_product_attention(*(Tensor(one[None]) for one in (Q, K, V)))
print("hand and library agree:", np.allclose(by_hand, library.numpy()[0], atol=1e-6))
assert np.allclose(by_hand, library.numpy()[0], atol=1e-6) and np.allclose(weights.sum(1), 1)

# %% [markdown]
# The weights can be looked at. We give each character a random vector, and take it as query and as key. Then a place
# looks for its own character: equal vectors have the largest product. Nothing was learned yet.


# %%
def show(weights, text, axes, title):
    """Weights as an image: a row for each place that looks, a column for each place that is looked at."""
    axes.imshow(weights, cmap="Blues", vmin=0, vmax=1)
    axes.set_xticks(range(len(text)), text.replace("\n", "¶"))
    axes.set_yticks(range(len(text)), text.replace("\n", "¶"))
    axes.set(title=title, xlabel="is looked at", ylabel="looks")


text = "to be or not to be"
vectors = random.standard_normal((len(characters), 32))
x = 1.7 * vectors[[characters.index(one) for one in text]]
free = head(x, x, x)[1]
future = np.arange(len(text)) > np.arange(len(text))[:, None]  # True where j > i
masked = head(x, x, x, future)[1]

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 5.2), layout="constrained")
show(free, text, left, "every place sees all")
show(masked, text, right, "with the causal mask")
plt.show()
assert free[0, 9:].max() > 0.1 and masked[0, 0] == 1 and not masked[future].any()

# %% [markdown]
# ## The causal mask
#
# On the left the first `t` looks at every `t` of the text, those that come later too. A network that writes must not do
# that: what follows is what it has to guess. So the scores of later places become $-\infty$ before softmax, and their
# weights become 0. The picture on the right has nothing above the diagonal.
#
# This is what makes training cheap. One pass gives a guess at *every* place, and no guess has seen its answer. The
# gradient can prove it: does result 3 depend on input 4?

# %%
x = minigrad.randn(1, 8, 16, requires_grad=True)
out = F.scaled_dot_product_attention(x, x, x, is_causal=True)
(gradient,) = minigrad.grad(out[0, 3].sum(), x)
reached = (gradient.numpy()[0] != 0).any(1)
print("result 3 depends on the inputs", np.flatnonzero(reached).tolist())
assert reached.tolist() == [True] * 4 + [False] * 4

# %% [markdown]
# ## Many heads
#
# One head looks for one thing. `MultiheadAttention` has several, side by side. A matrix makes all queries from the
# inputs, two more make keys and values. Each head takes its part of the columns. One last matrix mixes the results:
#
# $$\text{out} = [\,O_1 \mid O_2 \mid \dots \mid O_h\,]\; W_{\text{out}}^\top + b_{\text{out}}$$
#
# We do it by hand with the library's own weights.


# %%
def heads_of(attention, x, mask):
    """The result of MultiheadAttention on x (L, E) by hand, and the weights of its heads (heads, L, L)."""
    both = F.linear(x, attention.in_proj_weight, attention.in_proj_bias).detach().numpy()
    Q, K, V = (np.split(part, attention.num_heads, 1) for part in np.split(both, 3, 1))
    found = [head(*one, mask) for one in zip(Q, K, V, strict=True)]
    joined = Tensor(np.concatenate([out for out, _ in found], 1))
    return attention.out_proj(joined), np.stack([weights for _, weights in found])


attention = nn.MultiheadAttention(16, 4, batch_first=True)
x, mask = minigrad.randn(8, 16), np.arange(8) > np.arange(8)[:, None]
library, mean_weights = attention(x[None], x[None], x[None], is_causal=True)
by_hand, weights = heads_of(attention, x, mask)
print("hand and library agree:", np.allclose(by_hand.detach(), library[0].detach(), atol=1e-6))
assert np.allclose(by_hand.detach(), library[0].detach(), atol=1e-6)
assert np.allclose(weights.mean(0), mean_weights[0].detach(), atol=1e-6)

# %% [markdown]
# ## Where am I?
#
# Attention is a mean, and a mean knows no order. Without a mask, shuffled inputs give the same results, shuffled. So
# each place gets a vector of its own, which is added to the vector of its character. Both are tables, `Embedding`, and
# both are learned.

# %%
order = random.permutation(8)
plain = lambda x: attention(x[None], x[None], x[None])[0][0].detach().numpy()
assert np.allclose(plain(x[order]), plain(x)[order], atol=1e-5)
print("without places, attention does not see the order")

# %% [markdown]
# ## A block
#
# Attention moves information between places. Two linear maps with a ReLU between them then work on it at each place by
# itself. Each part is *added* to its input, so that gradients have a straight way back, and `LayerNorm` gives each
# vector the mean 0 and the deviation 1 first:
#
# $$y = x + \text{attention}(\text{norm}_1(x)) \qquad z = y + W_2\, \text{relu}(W_1\, \text{norm}_2(y))$$
#
# (Biases are left out here.) That is `TransformerEncoderLayer` with `norm_first=True`:

# %%
block = nn.TransformerEncoderLayer(16, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
normed = block.norm1(x)
y = x + heads_of(block.self_attn, normed, mask)[0]
z = y + block.linear2(block.linear1(block.norm2(y)).relu())
assert np.allclose(z.detach(), block(x[None], is_causal=True)[0].detach(), atol=1e-5)
print(f"a block of width 16 has {sum(one.numel() for one in block.parameters()):,} parameters")

# %% [markdown]
# ## The network
#
# A GPT is: two tables, some blocks, a last norm, and a linear map to a score for each character.
# [`tiny_gpt.py`](../tiny_gpt.py) writes it in 20 lines. Ours has 2 blocks of 4 heads, the width 64, and sees 64
# characters. Before training it guesses, so its loss is near that of a guess.

# %%
learned, kept = np.split(numbers, [len(numbers) * 9 // 10])  # the last tenth is for the test
model = tiny_gpt.TinyGPT(len(characters))
print(f"{sum(one.numel() for one in model.parameters()):,} parameters")
x, y = tiny_gpt.batch(learned, 8, random)
print("inputs ", repr("".join(characters[n] for n in x.numpy()[0, :40])))
print("answers", repr("".join(characters[n] for n in y.numpy()[0, :40])))
print(f"loss {tiny_gpt.loss_of(model, x, y).item():.2f}, that of a guess {np.log(len(characters)):.2f}")
assert abs(tiny_gpt.loss_of(model, x, y).item() - np.log(len(characters))) < 0.5

# %% [markdown]
# The answers are the inputs, one place further. A batch of 8 pieces of 64 characters has 512 guesses.
#
# ## Training

# %%
STEPS = 300
before = tiny_gpt.write(model, characters, 100, random)
optimizer = optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)
schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
losses, tests = [], {}
for step in range(1, STEPS + 1):
    losses.append(tiny_gpt.step(model, optimizer, *tiny_gpt.batch(learned, 8, random)))
    schedule.step()
    if step % 50 == 0:
        tests[step] = tiny_gpt.test_loss(model, kept)

# %%
plt.plot(range(1, STEPS + 1), losses, color=BLUE, label="text that it learns from")
plt.plot(tests.keys(), tests.values(), "s--", color=RED, label="text that it has not seen")
plt.axhline(by_share, color="black", linestyle=":", label="who knows how often each character comes")
plt.xlabel("step")
plt.ylabel("loss of a character")
plt.legend()
plt.show()
print(f"test loss {tests[STEPS]:.2f}: the right character gets {100 * np.exp(-tests[STEPS]):.0f} % (geometric mean)")
assert tests[STEPS] < 2.6 < by_share

# %% [markdown]
# ## Samples
#
# To write, draw a character with the probabilities of the network, append it, and ask again. First before training,
# then after it.

# %%
print("before:\n" + before)
print("\nafter:\n" + tiny_gpt.write(model, characters, 300, random, "\nWe "))

# %% [markdown]
# It writes no sense. But it has found words, spaces and line ends from nothing but characters, in seconds.
#
# A **temperature** $T$ changes how bold it is: $p_k = \text{softmax}(z / T)_k$. A small $T$ takes nearly always the
# most probable character, a large one comes close to a guess. Look at the probabilities after `of the `:

# %%
seen = Tensor(np.array([[characters.index(one) for one in "of the "]]))
scores = model(seen)[0, -1].detach().numpy()
top = scores.argsort()[::-1][:12]
figure, axes = plt.subplots(figsize=(8, 3), layout="constrained")
for shift, (T, color) in enumerate(((0.5, BLUE), (1.0, "#009E73"), (2.0, RED))):
    axes.bar(np.arange(12) + 0.27 * (shift - 1), softmax(scores / T)[top], 0.25, color=color, label=f"T = {T}")
axes.set_xticks(range(12), [repr(characters[k])[1:-1] for k in top])
axes.set(xlabel="next character", ylabel="probability")
axes.legend()
plt.show()

# %% [markdown]
# ## What the heads look at
#
# The same pictures as in the beginning, now of the trained network: all four heads of its first block, on a line that
# it has not seen.

# %%
text = "".join(characters[n] for n in kept[:24])
with minigrad.no_grad():
    x = model.characters(Tensor(kept[:24])) + model.places(minigrad.arange(24))
    weights = heads_of(model.blocks[0].self_attn, model.blocks[0].norm1(x), np.triu(np.ones((24, 24), bool), 1))[1]
figure, panels = plt.subplots(2, 2, figsize=(11, 11), layout="constrained")
for number, axes in enumerate(panels.flat):
    show(weights[number], text, axes, f"head {number + 1}")
plt.show()
assert not weights[:, np.triu(np.ones((24, 24), bool), 1)].any()

# %% [markdown]
# Most rows are dark near the diagonal: what follows depends mostly on the last few characters. A single dark cell is a
# character that the head looks for. Train longer, and the heads become more different from one another.
#
# ## What to try next
#
# - Train longer, `python examples/tiny_gpt.py --steps 2000`. The test loss rises again while the other falls: the text
#   is soon known by heart. What do `dropout=0.2` in `TinyGPT` and a smaller width change?
# - Put a text of your own into `tiny_gpt.read(path)`. It must be plain ASCII.
# - Take the places away (`x = self.characters(x)`), or three of the four heads. Guess first what it costs.
# - Share one table between the input and the scores: `self.scores.weight = self.characters.weight`.
#
# ## In the library
#
# | here | there |
# |---|---|
# | `head` | [`minigrad/ops/attention.py`](../../minigrad/ops/attention.py), with its gradients |
# | `heads_of`, the block | [`minigrad/nn/attention.py`](../../minigrad/nn/attention.py) |
# | the network | [`examples/tiny_gpt.py`](../tiny_gpt.py) |

# %% [markdown]
# ## Exercises
#
# Write your answer in place of `...` and run the cell.
#
# ### Exercise 1: a window
#
# Long texts are dear: $n$ places have $n^2$ weights. Some networks look only a little back. Return the mask of shape
# `(n, n)`: place $i$ may look at itself and at the `width - 1` places before it. `True` forbids, as in `head`.


# %%
def window_mask(n, width): ...  # your answer


check(window_mask)

# %% [markdown]
# ### Exercise 2: temperature
#
# Return the probabilities of all characters from their scores and a temperature. It must survive scores of 1000.


# %%
def probabilities(scores, temperature): ...  # your answer


check(probabilities)

# %% [markdown]
# ### Exercise 3: the gradient of attention
#
# The last step of attention is $O = A V$ with weights $A$ and values $V$. Given $g = dL/dO$, return the tuple
# $(dL/dA,\ dL/dV)$.


# %%
def attention_rules(g, A, V): ...  # your answer


check(attention_rules)

# %% [markdown]
# ## Solutions
#
# **Exercise 1.** `before` is how far $j$ lies before $i$. It is negative for the future.


# %%
def window_mask(n, width):
    before = np.arange(n)[:, None] - np.arange(n)
    return (before < 0) | (before >= width)


check(window_mask)

# %% [markdown]
# **Exercise 2.** The largest exponent is 0, so nothing overflows.


# %%
def probabilities(scores, temperature):
    exponentials = np.exp((scores - scores.max()) / temperature)
    return exponentials / exponentials.sum()


check(probabilities)

# %% [markdown]
# **Exercise 3.** It is the matrix product of notebook 1. A value that many places looked at collects from all of them.


# %%
def attention_rules(g, A, V):
    return g @ V.T, A.T @ g


check(attention_rules)
