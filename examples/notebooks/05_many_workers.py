# %% [markdown]
# # 5. Many workers
#
# **Goal** You can say what data-parallel training computes and why it equals training on one worker, draw the ring
# that adds gradients, hide the exchange behind backward, get the same bits on any number of workers, and predict
# when more workers stop helping.
#
# **You need** [Notebook 4](04_training.ipynb): a training loop. Workers here are threads of this process; the code is
# the same for processes on many machines.
#
# **Time** 50 minutes with the exercises.

# %%
import matplotlib.pyplot as plt
import numpy as np
from exercises import check

import minigrad.draw
from minigrad import checkpoint, data, nn, optim, parallel

minigrad.manual_seed(0)
train, _ = data.digits()
batch = next(iter(data.Loader(train, batch_size=64, shuffle=True)))
images, labels = batch
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#F0E442", "#000000")

# %% [markdown]
# ## The mean of gradients is the gradient of the mean
#
# The loss of a batch is a mean over its images. Cut the batch into $N$ **shards** of equal size, with losses $L_i$.
# Differentiation is linear, so
#
# $$L = \frac{1}{N} \sum_{i=1}^{N} L_i \quad\Longrightarrow\quad
#   g = \frac{\partial L}{\partial w} = \frac{1}{N} \sum_{i=1}^{N} g_i$$
#
# Each worker has the whole model and computes $g_i$ of its own shard. Then all workers need the mean of all $g_i$, and
# all take the same step. This holds for every optimiser, and for every network in which the loss of an image depends on
# that image alone. (Batch normalisation is different: it takes a mean over images, and a worker sees only its shard.
# `parallel.SyncBatchNorm` takes the mean over all workers.) By hand, with four shards of 16 real digits:


# %%
def make_model():
    minigrad.manual_seed(1)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def gradients(model, images, labels):
    model.zero_grad()
    nn.functional.cross_entropy(model(images), labels).backward()
    return [parameter.grad.numpy().copy() for parameter in model.parameters()]


model = make_model()
whole = gradients(model, images, labels)
shards = [(images[start : start + 16], labels[start : start + 16]) for start in range(0, 64, 16)]
of_shards = [gradients(model, *shard) for shard in shards]
mean = [sum(parts) / 4 for parts in zip(*of_shards, strict=True)]
error = max(np.abs(a - b).max() for a, b in zip(whole, mean, strict=True))
print(f"largest difference {error:.1e}, of gradients up to {max(np.abs(g).max() for g in whole):.2f}")
assert 0 < error < 1e-6

# %% [markdown]
# Equal, but not to the last bit: the same numbers were added in another order. We come back to that.
#
# In the library `DataParallel` does the rest. A worker is a **rank**, from 0 on. `run_local` starts ranks as threads,
# and each gets its `world`, the object by which it talks to the others.


# %%
def rank_gradients(world):
    model = parallel.DataParallel(make_model(), world)
    for shard_images, shard_labels in model.shards((images, labels)):  # those of this rank
        nn.functional.cross_entropy(model(shard_images), shard_labels).backward()
    return [parameter.grad.numpy().copy() for parameter in model.parameters()]


ranks = parallel.run_local(rank_gradients, 4)
for rank, found in enumerate(ranks):
    error = max(np.abs(a - b).max() for a, b in zip(found, mean, strict=True))
    print(f"rank {rank}: largest difference to the mean by hand {error:.1e}")
    assert error < 1e-7


# %% [markdown]
# ## The ring
#
# Every one of $n$ workers has an array of $S$ bytes, and every one wants the sum of all. If each sent its array to each
# other, a worker would send $(n-1) S$ bytes. A **ring all-reduce** sends
#
# $$2\,\frac{n-1}{n}\,S \;<\; 2S$$
#
# however many workers there are. Cut the array into $n$ chunks and put the workers in a ring. *Reduce-scatter*: in each
# of $n-1$ steps a worker sends one chunk to the right and adds what comes from the left. Afterwards each worker has one
# chunk that is complete. *All-gather*: in $n-1$ steps more the complete chunks go around. The library sends each chunk
# straight to the worker that adds it. That takes as many bytes in fewer steps, and the library can choose the order of
# the sum, which will matter soon.


# %%
def ring_all_reduce(arrays):
    """Sums on every worker, the history of (who has how many terms of which chunk), and bytes sent by each."""
    n = len(arrays)
    chunks = [list(np.array_split(array.copy(), n)) for array in arrays]  # chunks[rank][c]
    terms, sent = np.ones((n, n), int), np.zeros(n)
    history = [(terms.copy(), [])]
    for step in range(2 * (n - 1)):
        adding = step < n - 1
        moves = [(rank, (rank - step) % n) for rank in range(n)]  # (sender, chunk)
        messages = [chunks[rank][c] for rank, c in moves]  # all send at the same time
        for (rank, c), message in zip(moves, messages, strict=True):
            right = (rank + 1) % n
            chunks[right][c] = message + chunks[right][c] if adding else message
            terms[right, c] = terms[right, c] + step + 1 if adding else n
            sent[rank] += message.nbytes
        history.append((terms.copy(), moves))
    return [np.concatenate(parts) for parts in chunks], history, sent


workers = 4
arrays = [np.random.default_rng(rank).standard_normal(1000).astype(np.float32) for rank in range(workers)]
sums, history, sent = ring_all_reduce(arrays)
assert all(np.allclose(total, sum(arrays), atol=1e-5) for total in sums)
assert (sent == 2 * (workers - 1) / workers * arrays[0].nbytes).all()
print(f"each worker sent {sent[0]:.0f} bytes; to everyone it would have been {(workers - 1) * arrays[0].nbytes}")

# %% [markdown]
# Each picture is a step. The number in a cell is how many terms the worker's chunk contains; outlined is what has just
# arrived. Follow one chunk down its column: it grows by a term in each step of the first half, then its total goes
# around.

# %%
figure, panels = plt.subplots(1, len(history), figsize=(13, 2.7), layout="constrained", sharey=True)
for step, (axes, (terms, moves)) in enumerate(zip(panels, history, strict=True)):
    axes.imshow(terms, cmap="Blues", vmin=0, vmax=1.6 * workers)
    for rank in range(workers):
        for chunk in range(workers):
            axes.text(chunk, rank, terms[rank, chunk], ha="center", va="center")
    for rank, chunk in moves:
        place = (chunk - 0.45, (rank + 1) % workers - 0.45)
        axes.add_patch(plt.Rectangle(place, 0.9, 0.9, fill=False, edgecolor=COLORS[1], linewidth=2))
    kind = "start" if not step else "add" if step < workers else "copy"
    axes.set(title=f"{step}: {kind}", xlabel="chunk", xticks=range(workers), yticks=range(workers))
panels[0].set_ylabel("worker")
plt.show()

# %% [markdown]
# ## Other orders, other bits
#
# Floating-point addition rounds, so it is not associative:

# %%
large, small = np.float32(2**24), np.float32(1)
print(f"{(large + small) + small:.0f} and {large + (small + small):.0f}")
assert (large + small) + small != large + (small + small)

# %% [markdown]
# Gradients are such sums. Take 32 shards of the batch and add their gradients of one layer in many orders, as a network
# would that adds whatever arrives first. Almost every order gives other bits somewhere:

# %%
pairs = [(images[start : start + 2], labels[start : start + 2]) for start in range(0, 64, 2)]
terms = [gradients(model, *pair)[0] for pair in pairs]  # of the first weight


def in_turn(parts):
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


rng = np.random.default_rng(0)
orders = [rng.permutation(len(terms)) for _ in range(300)]
results = [in_turn([terms[i] for i in order]) for order in orders]
different = len({result.tobytes() for result in results})
print(f"{different} different results of {len(orders)} orders")
assert different > len(orders) / 2

# %% [markdown] The errors are harmless. But training amplifies them: if two runs differ in the last bit of one weight,
# soon all weights differ. And you cannot find a mistake that you cannot repeat. A ring adds each chunk in another
# order, because each chunk begins at another worker. The number of workers changes the order too: each of $r$ workers
# adds its own shards, and then the workers' sums are added.
#
# The cure is an order that does not depend on the workers. Add neighbours, then neighbours of the sums, and so on; with
# 8 shards:
#
# $$\bigl((g_0 + g_1) + (g_2 + g_3)\bigr) + \bigl((g_4 + g_5) + (g_6 + g_7)\bigr)$$
#
# A worker that holds $g_4, \dots, g_7$ can add its bracket alone. On 1, 2, 4 or 8 workers it is the same tree.


# %%
def tree(parts):
    while len(parts) > 1:
        parts = [a + b for a, b in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def on_workers(add, count):
    """Each worker adds its own shards, then the workers' sums are added."""
    own = len(terms) // count
    return add([add(terms[first : first + own]) for first in range(0, len(terms), own)])


results = {add: {on_workers(add, count).tobytes() for count in (1, 2, 4, 8)} for add in (in_turn, tree)}
for add, bits in results.items():
    print(f"{add.__name__}: {len(bits)} different results on 1, 2, 4 and 8 workers")
assert len(results[tree]) == 1 < len(results[in_turn])

# %% [markdown]
# The library does that for whole training runs. The number of *shards* decides the result, the number of ranks does
# not:


# %%
def trained(world):
    minigrad.manual_seed(0)
    model = parallel.DataParallel(make_model(), world, shards=8)
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in data.Loader(train, batch_size=64, shuffle=True, sampler=model.sampler):
        for shard_images, shard_labels in model.shards(step):
            nn.functional.cross_entropy(model(shard_images), shard_labels).backward()
        optimizer.step()
    return checkpoint.weights_hash(model)


hashes = {count: parallel.run_local(trained, count)[0] for count in (1, 2, 4)}
print({f"{count} rank(s)": found[:16] for count, found in hashes.items()})
assert len(set(hashes.values())) == 1

# %% [markdown]
# ## Buckets and overlap
#
# Backward finishes the gradients of the *last* layer first. They can travel while backward still works on the others.
# Sending each by itself would pay the latency too often, so gradients are gathered in **buckets**:
#
# $$\text{end}_i = \max(\text{end}_{i-1},\; \text{ready}_i) + \text{exchange}(\text{bytes}_i), \qquad
#   \text{exposed} = \max(0,\; \text{end}_{\text{last}} - T)$$
#
# Bucket $i$ is complete at $\text{ready}_i$, and $T$ is the time that one worker computes for a step. What is exposed
# makes the step longer; the rest is hidden. The model in [`scaling.py`](../scaling.py) knows when the gradients of
# ResNet-50 are ready, and how long an exchange takes on a *fabric*, the connection between the GPUs. Here it is
# Ethernet of 25 Gb/s between 32 machines. (This is a prediction: the time of a step is assumed, and latencies are those
# of NCCL's own table.) We do its formula by hand.

# %%
import sys

sys.path.append("..")  # the folder of the examples
import scaling

network, fabric, gpus = scaling.NETWORKS["resnet-50"](), scaling.FABRICS["tcp-25"], 32
T = network.seconds
begin_backward = T * (1 - network.backward)


def exchanges(plan):
    """(bytes, when ready, begin, end) of each bucket."""
    rows, end = [], 0.0
    for start, stop in plan.bounds(network):
        share = max(network.ready[start:stop]) if plan.overlap else 1.0
        ready = begin_backward + (T - begin_backward) * share
        size = 4 * sum(network.sizes[start:stop])
        begin = max(end, ready)
        end = begin + scaling.all_reduce_seconds(size, gpus, fabric)
        rows.append((size, ready, begin, end))
    return rows


plans = {
    "small buckets": scaling.Plan(jitter=0.0),
    "one bucket": scaling.Plan(jitter=0.0, first=1e12, bucket=1e12),
    "after backward": scaling.Plan(jitter=0.0, overlap=False),
}
figure, panels = plt.subplots(len(plans), 1, figsize=(9, 8), layout="constrained", sharex=True)
exposed_by = {}
for axes, (name, plan) in zip(panels, plans.items(), strict=True):
    rows = exchanges(plan)
    exposed_by[name] = max(0.0, rows[-1][3] - T)
    assert np.isclose(exposed_by[name], scaling.predicted(network, gpus, fabric, plan).exposed)
    compute = [("compute", "forward", 0, begin_backward), ("compute", "backward", begin_backward, T)]
    sending = [("network", "exchange of a bucket", begin, end) for _, _, begin, end in rows]
    minigrad.draw.timeline(compute + sending, axes)
    axes.axvline(T, color="black", linestyle=":")
    axes.set_title(f"{name}: {1000 * exposed_by[name]:.1f} ms exposed", loc="right", fontsize="medium")
plt.show()
assert exposed_by["small buckets"] < exposed_by["one bucket"] <= exposed_by["after backward"]

# %% [markdown]
# The dotted line is $T$. Thin lines part the buckets. *One bucket* is complete only with the last gradient, so nothing
# overlaps. *After backward* waits as long and pays the latency of each bucket besides. In a training of your own
# `model.timeline` says when each bucket was ready, and when it had been exchanged.

# %% [markdown]
# ## Pipelines and their bubbles
#
# A model too large for one worker can be cut the other way: each worker has a **stage**, some of the layers. So that
# all stages work at once, the batch is cut into $m$ **microbatches** that follow one another. While the pipeline fills
# and drains, stages wait. With $n$ stages that take equally long the share of time lost in this **bubble** is
#
# $$\text{bubble} = \frac{n - 1}{m + n - 1}$$

# %%
from minigrad.parallel.schedules import SCHEDULES

PASSES = {"forward": 1, "backward": 2}  # how long they take


def simulated(schedule, stages, microbatches):
    """For each stage, (what, microbatch, begin, end) of what it does, and the share of the time that is lost."""
    plans = [SCHEDULES[schedule](stage, stages, microbatches) for stage in range(stages)]
    rows, ends = [[] for _ in plans], {None: 0}
    while len(ends) <= 2 * stages * microbatches:
        for stage, (plan, row) in enumerate(zip(plans, rows, strict=True)):
            what, number = plan[min(len(row), len(plan) - 1)]
            before = stage - 1 if what == "forward" else stage + 1  # the stage that must have done it
            needed = (what, number, before) if 0 <= before < stages else None
            if what == "backward" and needed is None:  # the last stage turns around
                needed = ("forward", number, stage)
            if len(row) < len(plan) and needed in ends:
                begin = max(row[-1][3] if row else 0, ends[needed])
                ends[what, number, stage] = begin + PASSES[what]
                row.append((what, number, begin, begin + PASSES[what]))
    return rows, 1 - 3 * microbatches / max(row[-1][3] for row in rows)


def kept(row):
    """The most microbatches that a stage keeps at once for backward."""
    return int(np.cumsum([1 if what == "forward" else -1 for what, *_ in row]).max())


figure, panels = plt.subplots(2, 1, figsize=(10, 5), layout="constrained", sharex=True)
styles = {"forward": (COLORS[4], ""), "backward": (COLORS[5], "//")}
for axes, schedule in zip(panels, ("gpipe", "1f1b"), strict=True):
    rows, lost = simulated(schedule, stages=4, microbatches=6)
    for stage, row in enumerate(rows):
        for what, number, begin, end in row:
            color, hatch = styles[what]
            axes.barh(stage, end - begin, left=begin, color=color, hatch=hatch, edgecolor="white", label=what)
            box = {"facecolor": "white", "edgecolor": "none", "pad": 1, "alpha": 0.8}
            axes.text((begin + end) / 2, stage, number, ha="center", va="center", bbox=box, fontsize="small")
    assert np.isclose(lost, (4 - 1) / (6 + 4 - 1))
    axes.set(ylabel="stage", yticks=range(4), ylim=(3.6, -0.6))
    axes.set_title(
        f"{schedule}: {100 * lost:.0f} % lost; microbatches kept at most: {[kept(row) for row in rows]}", loc="left"
    )
panels[1].set_xlabel("time (a forward pass of a microbatch is 1, its backward 2)")
handles = dict(zip(*reversed(panels[0].get_legend_handles_labels()), strict=True))
panels[0].legend(handles.values(), handles, loc="lower right", bbox_to_anchor=(1, 1), ncols=2, frameon=False)
plt.show()

# %% [markdown]
# Both schedules lose the same share, but *1F1B* (one forward, one backward) starts backward as soon as it can, so a
# stage keeps at most as many microbatches as there are stages from it to the end. The library's `Pipeline` runs it:


# %%
def pipelined(world, schedule):
    minigrad.manual_seed(0)
    layers = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 10))
    pipe = parallel.Pipeline(layers, world, microbatches=8, schedule=schedule)
    loss = pipe.train_step(images, labels, nn.functional.cross_entropy)
    return float(loss), pipe.peak


for schedule in ("gpipe", "1f1b"):
    found = parallel.run_local(pipelined, 3, schedule)
    print(f"{schedule}: loss {found[0][0]:.6f}, microbatches kept by each stage {[peak for _, peak in found]}")
    assert [peak for _, peak in found] == ([8, 8, 8] if schedule == "gpipe" else [3, 2, 1])


# %% [markdown]
# ## When do more workers stop helping?
#
# $$\text{efficiency} = \frac{T}{T_{\text{slowest}} + \text{exposed}}$$
#
# Two things grow with $n$: the exchange, and the wait for the slowest worker. Where the steps of workers scatter by a
# share $\sigma$ as normal deviations, the slowest of $n$ takes about
#
# $$T_{\text{slowest}} = T\,\bigl(1 + \sigma \sqrt{2 \ln n}\bigr)$$
#
# The curves below are *predictions* of the same model for an assumed step; `python examples/scaling.py --step-ms` takes
# yours, and [a page](../docs/parallel.md#how-training-on-many-scales) has the formulas.

# %%
counts = [2**i for i in range(11)]
figure, panels = plt.subplots(1, 2, figsize=(11, 4), layout="constrained", sharey=True)
markers = "os^D"
for axes, name in zip(panels, ("resnet-50", "vgg-16"), strict=True):
    network = scaling.NETWORKS[name]()
    for i, fabric in enumerate(scaling.FABRICS.values()):
        found = [100 * scaling.predicted(network, count, fabric, scaling.Plan()).efficiency for count in counts]
        assert found[0] == 100 and found[-1] < 100
        style = {"marker": markers[i], "markersize": 10 - 2 * i, "color": COLORS[i], "linewidth": 4 - i}
        axes.plot(counts, found, label=fabric.title, **style)
    axes.set(xscale="log", xlabel="GPUs", title=f"{name}: {4e-6 * sum(network.sizes):.0f} MB of gradients")
    axes.set_xticks(counts[::2], [str(count) for count in counts[::2]])
    axes.grid(alpha=0.3)
panels[0].set(ylabel="efficiency, % (predicted)", ylim=(0, 104))
panels[0].legend(loc="lower left")
plt.show()

# %% [markdown]
# ## In the library
#
# - [`minigrad/parallel/data_parallel.py`](../../minigrad/parallel/data_parallel.py): the mean of gradients;
#   [`reducer.py`](../../minigrad/parallel/reducer.py) fills buckets while backward runs,
#   [`buckets.py`](../../minigrad/parallel/buckets.py) says where they are cut
# - [`minigrad/parallel/collectives.py`](../../minigrad/parallel/collectives.py): the fixed order; reduce-scatter and
#   all-gather
# - [`minigrad/parallel/schedules.py`](../../minigrad/parallel/schedules.py) and
#   [`pipeline.py`](../../minigrad/parallel/pipeline.py)
# - [`examples/scaling.py`](../scaling.py): the model; run it to print the figures of your network and fabric
# - [Training on many](../docs/parallel.md): launching, recovery

# %% [markdown]
# ## Exercises
#
# ### Exercise 1: shards of unequal size
#
# The last batch of an epoch rarely divides. `gradients[i]` is the gradient of the *mean* loss of shard `i`, which has
# `sizes[i]` images. What is the gradient of the mean loss of the whole batch?


# %%
def average(gradients, sizes): ...  # your answer


check(average)

# %% [markdown]
# ### Exercise 2: a sum with fixed bits
#
# Write the pairwise sum for *any* number of arrays: neighbours first; a last one without a neighbour is passed on to
# the next round. The check compares bits.


# %%
def pairwise_sum(parts): ...  # your answer


check(pairwise_sum)

# %% [markdown]
# ### Exercise 3: what is exposed
#
# Bucket $i$ is complete after `ready[i]` seconds and takes `exchange[i]` seconds; exchanges run one after another. The
# step computes for `compute` seconds. How many seconds of communication does nothing hide?


# %%
def exposed_seconds(ready, exchange, compute): ...  # your answer


check(exposed_seconds)

# %% [markdown]
# ## Solutions
#
# **1.** The mean over all images: $\sum_i s_i g_i / \sum_i s_i$. With equal sizes it is the plain mean.


# %%
def average(gradients, sizes):
    return sum(size * gradient for size, gradient in zip(sizes, gradients, strict=True)) / sum(sizes)


check(average)

# %% [markdown]
# **2.** The pairs are added, and an odd one goes along unchanged.


# %%
def pairwise_sum(parts):
    while len(parts) > 1:
        odd = parts[len(parts) // 2 * 2 :]
        parts = [parts[i] + parts[i + 1] for i in range(0, len(parts) - 1, 2)] + odd
    return parts[0]


check(pairwise_sum)

# %% [markdown]
# **3.** The recurrence of the timeline. What ends before `compute` costs nothing.


# %%
def exposed_seconds(ready, exchange, compute):
    end = 0.0
    for begin, seconds in zip(ready, exchange, strict=True):
        end = max(end, begin) + seconds
    return max(0.0, end - compute)


check(exposed_seconds)
