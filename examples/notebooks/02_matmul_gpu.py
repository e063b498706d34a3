# %% [markdown]
# # 2. The matrix product on a GPU
#
# **Goal** You can say what makes a GPU kernel fast before you time it: you count the bytes it moves, the bank
# conflicts it causes and the arithmetic it does for each byte, and you find a race without a GPU.
#
# **You need** Matrix products, Python and NumPy. No GPU: an interpreter runs the compiled kernels and counts. The
# compiler comes with `pip install -e ".[notebook]"`; where it cannot be installed, as on macOS, set `MINIGRAD_PTX` to a
# wheel of minigrad that holds compiled kernels.
#
# **Time** 45 minutes with the exercises.

# %%
import json
from collections import Counter
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from exercises import check

from minigrad_kernels import interpreter
from minigrad_kernels.interpreter import interpret
from minigrad_kernels.matmul import cuda as ladder
from minigrad_kernels.toolchain.cuda import cuda, f32, kernel

rng = np.random.default_rng(0)

# %% [markdown]
# ## The formula
#
# $$C_{ij} = \sum_{k=0}^{K-1} A_{ik} B_{kj}, \qquad A \in \mathbb{R}^{M \times K},\; B \in \mathbb{R}^{K \times N}$$
#
# Each of the $MN$ elements of $C$ takes $K$ multiplications and $K$ additions: $2MNK$ operations. The matrices
# themselves have only $MK + KN + MN$ elements. So the product *could* be kind to memory: each number read once would
# serve many operations. The formula, read naively, is not kind at all:


# %%
def product_by_formula(a, b):
    m, k = a.shape
    n = b.shape[1]
    out, read = np.zeros((m, n), np.float32), 0
    for i in range(m):
        for j in range(n):
            for step in range(k):
                out[i, j] += a[i, step] * b[step, j]
                read += 2  # an element of a, an element of b
    return out, read


small_a, small_b = (rng.standard_normal((8, 8), dtype=np.float32) for _ in range(2))
out, read = product_by_formula(small_a, small_b)
assert np.allclose(out, small_a @ small_b, atol=1e-5)
print(f"{read} elements read, of matrices that have {small_a.size + small_b.size}")

# %% [markdown]
# ## A GPU in five words
#
# - A **thread** runs the **kernel**, a function, for one value of its index.
# - 32 threads form a **warp**: they execute the same instruction at the same time.
# - Warps form a **block**. The threads of a block share a small fast **shared memory** and can wait for one another.
# - All threads see **global memory**: large and far away. It moves in **sectors** of 32 bytes; a warp that reads 32
#   floats side by side, from where a sector begins, wants 4 sectors; one that reads 32 floats of 32 rows wants 32.
#
# All blocks of a start are its **grid**. Here is the formula as a kernel. Every thread takes one element of $C$: the
# grid stands in for the two outer loops. A block of 32 x 8 threads takes 8 rows of 32 elements, a row for each warp. It
# is a kernel of `numba.cuda`: in any other project you write `@cuda.jit` above it in place of our `kernel`, which adds
# a signature.


# %%
@kernel("f32[:,:] a, f32[:,:] b, f32[:,:] out", threads=256)
def product(a, b, out):
    j, i = cuda.grid(2)  # x counts columns, y counts rows
    if i < out.shape[0] and j < out.shape[1]:
        total = f32(0)
        for k in range(a.shape[1]):
            total += a[i, k] * b[k, j]
        out[i, j] = total


a, b = (rng.standard_normal((64, 64), dtype=np.float32) for _ in range(2))
out = np.empty((64, 64), np.float32)
report = interpret(product, grid=(2, 8), block=(32, 8), arguments=(a, b, out))
assert np.allclose(out, a @ b, atol=1e-4) and not report.faults
print(report.counts)

# %% [markdown]
# `interpret` executed the compiled PTX, the instructions that NVIDIA's driver takes, for all threads. Of its counts we
# need the lines of bytes first; the others come in turn. (*Ideal* is the least number that could carry as many
# different bytes.) `bytes loaded from a` is what the threads asked for: $4MNK$ bytes, each element of $A$ once for each
# of the $N$ columns of $C$. In whole sectors it is less for $A$, as the 32 threads of a warp, its *lanes*, ask for the
# *same* element: one sector serves them all.

# %%
assert report.counts.bytes_loaded["a"] == report.counts.bytes_loaded["b"] == 4 * 64 * 64 * 64
print("asked of a:", report.counts.bytes_loaded["a"], "in sectors:", report.counts.sector_bytes_loaded["a"])

# %% [markdown]
# ## Tiles: fetch once, use often
#
# Cut $C$ into squares of $T \times T$. A block that computes one square needs $T$ rows of $A$ and $T$ columns of $B$.
# It copies them, a $T \times T$ tile of each at a time, into shared memory, and each element copied serves $T$ sums:
#
# $$\text{bytes of } A = 4MK \left\lceil \tfrac{N}{T} \right\rceil, \qquad
#   \text{bytes of } B = 4KN \left\lceil \tfrac{M}{T} \right\rceil$$
#
# Shared memory asks for discipline. All threads must have copied before any of them multiplies: `syncthreads()` is
# the barrier. And all must have multiplied before any copies the next tile: a second barrier. The function below makes
# the kernel with the second barrier, or without it. We shall need the mistake later.


# %%
def make_tiled(second_barrier):
    @kernel("f32[:,:] a, f32[:,:] b, f32[:,:] out", threads=1024, variant="right" if second_barrier else "race")
    def tiled(a, b, out):
        a_tile, b_tile = cuda.shared.array((32, 32), f32), cuda.shared.array((32, 32), f32)
        column, row = cuda.threadIdx.x, cuda.threadIdx.y
        j, i = cuda.grid(2)
        total = f32(0)
        for start in range(0, a.shape[1], 32):
            a_tile[row, column] = a[i, start + column]
            b_tile[row, column] = b[start + row, j]
            cuda.syncthreads()
            for k in range(32):
                total += a_tile[row, k] * b_tile[k, column]
            if second_barrier:
                cuda.syncthreads()
        out[i, j] = total

    return tiled


tiled = make_tiled(second_barrier=True)
tiled_report = interpret(tiled, (2, 2), (32, 32), (a, b, out))
assert np.allclose(out, a @ b, atol=1e-4) and not tiled_report.faults
assert tiled_report.counts.bytes_loaded["a"] == 4 * 64 * 64 * 64 // 32
print("asked of a: plain", report.counts.bytes_loaded["a"], "bytes, tiled", tiled_report.counts.bytes_loaded["a"])

# %% [markdown]
# ## A race, planted and found
#
# Now without the second barrier. A quick warp runs ahead and copies the next tile over the one that a slow warp still
# multiplies. On a GPU the result is wrong *sometimes*, on some machines, under some load: the worst kind of mistake.
# The interpreter does not wait for bad luck. It remembers who touched each word of shared memory since the last
# barrier, and reports a word that two threads touch if at least one of them writes.

# %%
racing = make_tiled(second_barrier=False)
race = interpret(racing, (2, 2), (32, 32), (a, b, out))
for fault in race.faults:
    print(fault, "\n")
assert race.faults and all(fault.kind == "shared race" for fault in race.faults)

# %% [markdown] Each report says what happened, where in shared memory, which thread did it, and in which line of the
# cell. The line is not wrong by itself. It writes a tile that another thread still reads. Nothing makes the writer
# wait: the barrier is missing between the loop over `k`, which reads the tile, and this line in the next round.
#
# ## Bank conflicts, made and mended
#
# Shared memory has 32 **banks**. Word $w$ (4 bytes) lies in bank $w \bmod 32$, and a bank hands out one word at a time.
# A warp that reads 32 words from 32 banks takes one pass, a **wavefront**. A warp that reads 32 different words of one
# bank takes 32 wavefronts.
#
# $$\text{wavefronts} = \max_{\text{bank } r}\; \bigl|\{\, w \text{ asked for} : w \bmod 32 = r \,\}\bigr|$$
#
# A transposition shows it. Gradients of a product need one, $\partial L / \partial B = A^\top G$. To read *and* write
# global memory side by side, a block passes a tile through shared memory: rows go in, columns come out. With rows of 32
# words (the *pitch*), a column lies in a single bank. One unused word more in each row, and it lies in all 32.


# %%
def make_transpose(pitch):
    @kernel("f32[:,:] x, f32[:,:] out", threads=1024, variant=f"pitch{pitch}")
    def transpose(x, out):
        tile = cuda.shared.array((32, pitch), f32)
        column, row = cuda.threadIdx.x, cuda.threadIdx.y
        top, left = cuda.blockIdx.y * 32, cuda.blockIdx.x * 32
        tile[row, column] = x[top + row, left + column]
        cuda.syncthreads()
        out[left + row, top + column] = tile[column, row]

    return transpose


conflicts = {}
for pitch in (32, 33):
    found = interpret(make_transpose(pitch), (2, 2), (32, 32), (a, out))
    assert (out == a.T).all() and not found.faults
    conflicts[pitch] = found.counts
    wavefronts, least = found.counts.shared_wavefronts, found.counts.shared_wavefronts_ideal
    print(f"pitch {pitch}: {wavefronts} wavefronts, {least} would do")
assert conflicts[33].shared_wavefronts == conflicts[33].shared_wavefronts_ideal
assert conflicts[32].shared_wavefronts > 16 * conflicts[33].shared_wavefronts

# %% [markdown]
# The picture shows where each word of the tile lies. Outlined is the column that the first warp reads. Where it has a
# single shade, all 32 threads queue for the same bank.

# %%
figure, panels = plt.subplots(1, 2, figsize=(10, 4.6), layout="constrained", sharey=True)
for axes, pitch in zip(panels, (32, 33), strict=True):
    banks = np.arange(32 * pitch).reshape(32, pitch) % 32
    image = axes.imshow(banks, cmap="cividis", interpolation="nearest")
    axes.add_patch(plt.Rectangle((-0.5, -0.5), 1, 32, fill=False, edgecolor="#D55E00", linewidth=3))
    axes.set_title(f"pitch {pitch}: the column lies in {len(set(banks[:, 0]))} bank(s)")
    axes.set_xlabel("word of the row")
panels[0].set_ylabel("row of the tile")
figure.colorbar(image, ax=panels, label="bank")
plt.show()

# %% [markdown]
# ## The ladder, rung by rung
#
# The library's product is a ladder. Each rung adds an idea or two, which its docstring states. We run all of them on
# the same matrices, large enough that every rung has more than one tile, and let the interpreter count.

# %%
RUNGS = ("plain", "tiled", "register", "buffered")
M, N, K = 256, 256, 64
for rung in RUNGS:
    one = next(iter(ladder.RUNGS[rung].kernels.values()))
    print(f"{rung:<10}{one.__doc__.splitlines()[0]}")


# %%
big_a, big_b = (interpreter.array(rng.standard_normal(shape, dtype=np.float32)) for shape in ((M, K), (K, N)))
counts = {}
for rung in RUNGS:
    result = interpreter.empty((M, N))
    with interpreter.recording() as launches:  # raises if a kernel has a fault
        ladder.forward(big_a, big_b, None, False, result, None, rung)
    ((_, found),) = launches
    counts[rung] = found.counts
    assert np.allclose(result, np.asarray(big_a) @ np.asarray(big_b), atol=1e-3)


# %% [markdown]
# First, what threads ask of global memory. The formula for tiles holds to the byte, with $T$ the tile of the rung:
# $4MK \lceil N / \text{columns} \rceil$ and $4KN \lceil M / \text{rows} \rceil$ where a tile is not square.

# %%
asked = {}
for rung in RUNGS:
    rows, columns = (1, 1) if rung == "plain" else ladder.RUNGS[rung].tile
    asked[rung] = {name: counts[rung].bytes_loaded[name] for name in "ab"}
    assert asked[rung]["a"] == 4 * M * K * -(-N // columns)
    assert asked[rung]["b"] == 4 * K * N * -(-M // rows)
    print(f"{rung:<10}tile {rows:>3} x {columns:<3}  a {asked[rung]['a']:>10,}  b {asked[rung]['b']:>10,} bytes")


# %% [markdown]
# `buffered` asks for as many bytes as `register`. So what is it good for? A warp pays for instructions too. Only one
# kind of instruction is the formula: `fma`, a multiplication and an addition. The others fetch numbers, compute
# addresses and count loops. `register` keeps $8 \times 8$ sums in each thread: 16 words from shared memory serve 64
# products, where in `tiled` 2 words serve one. `buffered` loads 128 bits with one instruction instead of four. It also
# fetches the next tile while it multiplies this one, and takes one barrier a tile instead of two: what that saves is
# *waiting*, which only a GPU can show.


# %%
def instructions(counts, *beginnings):
    return sum(number for opcode, number in counts.instructions.items() if opcode.startswith(beginnings))


kinds = {"fma (the products)": ("fma",), "shared memory": ("ld.shared", "st.shared"), "global memory": ("ld.g", "st.g")}
table = {rung: {kind: instructions(counts[rung], *words) for kind, words in kinds.items()} for rung in RUNGS}
for rung in RUNGS:
    table[rung]["the rest"] = Counter.total(counts[rung].instructions) - sum(table[rung].values())
    print(f"{rung:<10}{counts[rung].barriers:>4} barriers;", *(f"{kind} {n:,};" for kind, n in table[rung].items()))
assert len({table[rung]["fma (the products)"] for rung in RUNGS}) == 1  # every rung does the same arithmetic

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
bytes_moved = {rung: 32 * counts[rung].global_sectors for rung in RUNGS}
least = 4 * (M * K + K * N + M * N)
left.bar(RUNGS, [bytes_moved[rung] / 1e6 for rung in RUNGS], color="#0072B2")
left.axhline(least / 1e6, color="#D55E00", linestyle="--", label="each element once")
left.set(yscale="log", ylabel="global memory, MB in sectors", title="memory traffic")
left.legend()
bottom = np.zeros(len(RUNGS))
styles = zip(("#009E73", "#56B4E9", "#E69F00", "#BBBBBB"), ("", "//", "..", ""), strict=True)
for (color, hatch), kind in zip(styles, (*kinds, "the rest"), strict=True):
    height = np.array([table[rung][kind] for rung in RUNGS]) / 1e3
    right.bar(RUNGS, height, bottom=bottom, color=color, hatch=hatch, edgecolor="white", label=kind)
    bottom += height
right.set(ylabel="instructions of warps, thousands", title="instructions")
right.legend()
plt.show()

# %% [markdown]
# `minigrad kernels matmul` prints the registers, shared memory and number of machine instructions of each rung.
#
# ## The roofline
#
# A machine does at most $P$ operations a second and moves at most $\beta$ bytes a second. A kernel that does $I$
# operations for each byte it moves (its **intensity**) cannot be faster than
#
# $$\text{flop/s} \le \min(P,\; \beta I), \qquad I = \frac{2MNK}{\text{bytes moved}}$$
#
# Left of the ridge $P / \beta$ the memory is the limit, right of it the arithmetic. What a rung loads for one product
# $A_{ik} B_{kj}$ does not depend on the size of the matrices, if that is a multiple of the tile. So the counts above
# give the intensity at any size. A cache may answer a request that comes again. Then a kernel can be faster than its
# bound, because our counts do not know caches.
#
# `tests/gpu/run_all` writes a results file with the speeds of the rungs and the bandwidth of a copy on its GPU. The
# cell reads them from there. The peak is an assumption, about as large as data sheets say of a large GPU. Put in yours.

# %%
PEAK = 60e12  # float32 operations in a second: assumed, not measured


def measured():
    """(size, flop/s by rung, byte/s, where from) of the first results file of a GPU that has them."""
    for file in sorted(Path("../../tests/benchmarks/results").glob("*.json")):
        parts = json.loads(file.read_text()).get("parts", {})
        products, memory = (parts.get(name, {}) for name in ("products", "kernels"))
        rows = [row for row in products.get("rows", []) if (row["kind"], row["layout"]) == ("float32", "NN")]
        rows = [row for row in rows if row["m"] == row["n"] == row["k"]]
        sizes = [row["m"] for row in rows if row["rung"] == RUNGS[0]]  # the slowest rung has the fewest
        copies = [1e9 * row["gb_per_s"] for row in memory.get("memory_bound", []) if row["kernel"] == "copy"]
        if sizes and copies:
            speeds = {row["rung"]: 1e12 * row["tflops"] for row in rows if row["m"] == max(sizes)}
            return max(sizes), speeds, copies[0], f"measured on {products['machine']['gpu']}, read from {file.name}"
    return 2048, {}, 3e12, "no results file of a GPU: each rung at its bound, nothing measured, bandwidth assumed"


size, speeds, bandwidth, source = measured()
print(f"{source}; matrices of {size} x {size}")

# %%
bounds = {}
for rung in RUNGS:
    loaded = 32 * counts[rung].global_load_sectors / (M * N * K)  # bytes for each of the products
    intensity = 2 * size**3 / (loaded * size**3 + 4 * size**2)
    bounds[rung] = intensity, min(PEAK, bandwidth * intensity)
    limit = "memory" if bandwidth * intensity < PEAK else "arithmetic"
    print(f"{rung:<10}{intensity:6.2f} flop/byte, at most {bounds[rung][1] / 1e12:5.1f} Tflop/s: {limit} is the limit")
best = 2 * size**3 / (3 * 4 * size**2)
print(f"each element moved once: {best:.0f} flop/byte; the ridge is at {PEAK / bandwidth:.0f}")
assert bounds["plain"] < bounds["tiled"] < bounds["register"] and bounds["register"][0] < best

# %%
places = {}
for rung, (intensity, bound) in bounds.items():  # rungs that share a point share a name
    if not speeds or rung in speeds:
        places.setdefault((intensity, speeds.get(rung, bound)), []).append(rung)
figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
ridge = PEAK / bandwidth
axes.loglog([0.05, ridge, 200], [0.05 * bandwidth, PEAK, PEAK], color="black")  # the roof
axes.axvline(ridge, color="grey", linestyle=":")
for place, names in places.items():
    axes.plot(*place, "o", label=", ".join(names))
axes.set(xlabel="arithmetic intensity (flop per byte)", ylabel="speed (flop/s)")
axes.grid(alpha=0.3)
axes.legend(loc="lower right")
figure.suptitle(f"{source}; peak assumed", fontsize="small")
plt.show()

# %% [markdown] Each of the first rungs moves to the right, towards the ridge. `register` and `buffered` have the same
# traffic, so they have the same intensity. Once memory is no longer the limit, only instructions and waiting are left
# to save.
#
# ## A kernel of somebody else
#
# The interpreter does not need our kernels. It runs any PTX file whose instructions it knows, whatever language it came
# from. NVIDIA's `nvcc -ptx` made [`block_sum.ptx`](../data/block_sum.ptx) from this C++ program. Each block adds 256
# numbers: in each round half of the threads add a number of the other half to their own. The program has a mistake.
# Find it before you run the cell.
#
# ```cpp
# extern "C" __global__ void block_sum(const float *x, float *out) {
#     __shared__ float part[256];
#     int t = threadIdx.x;
#     part[t] = x[blockIdx.x * 256 + t];
#     __syncthreads();
#     for (int half = 128; half > 0; half /= 2)
#         if (t < half) part[t] += part[t + half];
#     if (t == 0) out[blockIdx.x] = part[0];
# }
# ```

# %%
text = Path("../data/block_sum.ptx").read_text()
x, sums = rng.standard_normal(1024, dtype=np.float32), np.empty(4, np.float32)
report = interpret(text, grid=(4,), block=(256,), arguments=(x, sums))
print(*report.faults)
assert {fault.kind for fault in report.faults} == {"shared race"}

# %% [markdown] A thread adds a number that another thread may not have finished. A barrier is missing at the end of
# each round. PTX is a text, so we put it there: at the label that all threads pass in each round.

# %%
report = interpret(text.replace("$L__BB0_3:", "$L__BB0_3: bar.sync 0;"), (4,), (256,), (x, sums))
assert not report.faults and np.allclose(sums, x.reshape(4, 256).sum(1), atol=1e-4)
print("no faults, but", report.counts.barriers, "barriers in the 4 blocks")

# %% [markdown]
# In a shell, `minigrad interpret FILE.ptx --grid 4 --block 256 --args x.npy 'float32[4]'` does the same.
#
# ## In the library
#
# - [`kernels/minigrad_kernels/matmul/`](../../kernels/minigrad_kernels/matmul): `cuda_plain.py`, `cuda_tiled.py`,
#   `cuda_register.py` and `cuda_buffered.py` are the rungs, `cuda_tensor.py`, `cuda_async.py` and `cuda_hopper.py`
#   those on tensor cores, and `cuda.py` has the choice
# - [`kernels/minigrad_kernels/interpreter/`](../../kernels/minigrad_kernels/interpreter): `races.py` remembers who
#   touched what, `memory.py` counts sectors and wavefronts
# - [`tests/kernels/test_traffic.py`](../../tests/kernels/test_traffic.py): the
#   formulas of this page, for every rung
# - [How kernels are written, compiled and checked](../docs/gpu-kernels.md)

# %% [markdown]
# ## Exercises
#
# Write your answer in place of `...` and run the cell.
#
# ### Exercise 1: traffic
#
# How many bytes of $A$ and $B$ together does a product with tiles of `rows` x `columns` load, for
# float32 matrices $M \times K$ and $K \times N$? The sizes need not be multiples of the tile.


# %%
def traffic(m, n, k, rows, columns): ...  # your answer


check(traffic)

# %% [markdown]
# ### Exercise 2: wavefronts
#
# A warp reads the words `words` (a list of 32 word numbers) of shared memory. How many wavefronts
# does it take? Lanes that ask for the *same* word are served together.


# %%
def wavefronts(words): ...  # your answer


check(wavefronts)

# %% [markdown]
# ### Exercise 3: no padding
#
# The unused word of a row costs memory. Find a place for `(row, column)` of a $32 \times 32$ tile
# within exactly 1024 words, so that a warp reads a whole row *and* a whole column in one wavefront each. (Bits help:
# `^` is exclusive or.)


# %%
def place(row, column): ...  # your answer


check(place)

# %% [markdown]
# ## Solutions
#
# **1.** A block owns a tile of $C$. It reads `rows` rows of $A$, and so does every other block in its row of tiles:
# $\lceil N / \text{columns} \rceil$ of them read the same rows.


# %%
def traffic(m, n, k, rows, columns):
    across, down = -(-n // columns), -(-m // rows)  # whole tiles, rounded up
    return 4 * (m * k * across + k * n * down)


check(traffic)

# %% [markdown]
# **2.** A set first, as equal words are one request; then the fullest bank.


# %%
def wavefronts(words):
    banks = [word % 32 for word in set(words)]
    return max(banks.count(bank) for bank in banks)


check(wavefronts)

# %% [markdown]
# **3.** For a fixed row, $c \mapsto c \oplus r$ permutes the 32 banks, so a row is complete and free of conflicts.
# For a fixed column, $r \mapsto c \oplus r$ does too. It is called a *swizzle*, and tensor-core kernels rely on it.


# %%
def place(row, column):
    return row * 32 + (column ^ row)


check(place)
