# %% [markdown]
# # 3. Convolution is a matrix product
#
# **Goal** You can write a convolution in four ways (the formula, a matrix, im2col, Winograd), say what each costs, and
# derive its gradients without a single new formula: they are convolutions again. You see what a filter responds to.
#
# **You need** [notebook 1](01_tape.ipynb) for what a gradient rule is, and matrix products. What a GPU makes of a
# matrix product is in [notebook 2](02_matmul_gpu.ipynb); here a CPU is enough.
#
# **Time** 45 minutes to read and try, 45 for the exercises.

# %%
import matplotlib.pyplot as plt
import numpy as np
from exercises import check

import minigrad
from minigrad import data, gradcheck, gradgradcheck
from minigrad.nn.functional import conv2d, conv2d_input_grad, conv2d_weight_grad

ORANGE = "#E69F00"
minigrad.manual_seed(0)
random = np.random.default_rng(0)

# %% [markdown]
# Real images are more fun than noise. Where MNIST is on disk we take it, else the digits that come with the package.

# %%
if data.available("mnist"):
    digits, _ = data.mnist(download=False)
else:
    digits, _ = data.digits(size=28)
print(f"{len(digits)} images of {digits.name}")
images = digits.images[:256].astype(np.float32) / 255  # (N, C, H, W), 0 is paper and 1 is ink
digit = images[0, 0]


def show(pictures, titles, limit=None, columns=6, size=1.9):
    """Pictures side by side, blue below 0 and red above, all on one scale if there is a limit."""
    rows = -(-len(pictures) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(columns * size, rows * (size + 0.25)), layout="constrained")
    for one in np.ravel(axes):
        one.axis("off")
    for picture, title, one in zip(pictures, titles, np.ravel(axes), strict=False):
        most = limit or max(abs(picture).max(), 1e-9)
        one.imshow(picture, cmap="RdBu_r", vmin=-most, vmax=most)
        one.set_title(title, fontsize=9)
    plt.show()


# %% [markdown]
# ## The formula
#
# A filter is a small picture $w$ of weights. Lay it over the image at every place, multiply what lies above each other,
# and add:
#
# $$y_{ij} = \sum_{p,q} x_{i+p,\; j+q}\; w_{pq}$$
#
# (Strictly this is a cross-correlation. Libraries for neural networks call it convolution, and so do we.)


# %%
def convolve(x, w):
    (H, W), (P, Q) = x.shape, w.shape
    y = np.zeros((H - P + 1, W - Q + 1), x.dtype)
    for i in range(y.shape[0]):
        for j in range(y.shape[1]):
            y[i, j] = (x[i : i + P, j : j + Q] * w).sum()
    return y


filters = {
    "blur": np.full((3, 3), 1 / 9),
    "edges across": np.array([[-1, -2, -1], [0, 0, 0], [1, 2, 1]]) / 4,
    "edges down": np.array([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]]) / 4,
    "outline": np.array([[-1, -1, -1], [-1, 8, -1], [-1, -1, -1]]) / 8,
    "slash": np.array([[-1, -1, 2], [-1, 2, -1], [2, -1, -1]]) / 6,
}
filters = {name: w.astype(np.float32) for name, w in filters.items()}
show([digit, *filters.values()], ["a digit", *filters], columns=6)
show([digit, *(convolve(digit, w) for w in filters.values())], ["a digit", *filters], columns=6)

# %% [markdown]
# Above the filters, below what they make of the digit. Where the image under the filter looks like the filter, the
# sum is large (red); where it looks like the negative, it is small (blue). A filter is a question asked at every place.
#
# A layer asks many questions about images with several channels, and gives each its own output channel:
#
# $$y_{noij} = \sum_{c,p,q} x_{n,\;c,\;s i + p - \text{pad},\; s j + q - \text{pad}}\; w_{ocpq}$$
#
# with a stride $s$ and zeros outside the image. This is `conv2d` of `minigrad`; our loop is the case
# $N = C = O = s = 1$ without padding.

# %%
bank = minigrad.tensor(np.stack(list(filters.values()))[:, None])  # (O, C, P, Q)
maps = conv2d(minigrad.tensor(images), bank)
print("images", images.shape, "filters", bank.shape, "result", maps.shape)
assert np.allclose(maps.numpy()[0, 1], convolve(digit, filters["edges across"]), atol=1e-6)

# %% [markdown]
# ### What a filter sees
#
# Which places of all 256 images does a filter like best? Take its largest responses and look at the patches below
# them. Each row shows a filter and the patches that it saw when it answered loudest.

# %%
windows = np.lib.stride_tricks.sliding_window_view(images[:, 0], (7, 7), axis=(1, 2))  # with some of the surroundings
pictures, titles = [], []
for number, (name, w) in enumerate(filters.items()):
    response = maps.numpy()[:, number, 2:-2, 2:-2]  # centres of the 7 x 7 windows
    best_per_image = response.reshape(len(images), -1).argmax(1)
    loudest = response.reshape(len(images), -1).max(1).argsort()[::-1][:7]
    pictures.append(np.pad(w, 2))
    titles.append(name)
    for n in loudest:
        i, j = np.unravel_index(best_per_image[n], response.shape[1:])
        pictures.append(windows[n, i, j])
        titles.append(f"image {n}")
show(pictures, titles, columns=8, size=1.3)

# %% [markdown]
# Nobody has to invent filters. Notebook 4 learns them from labels. All it needs is the gradient of a convolution, and
# that is where we are going. First we write the same sum in other ways.
#
# ## A convolution is a matrix
#
# Each $y_{ij}$ is a sum of pixels with fixed coefficients. So with the image as one long vector, the convolution is
# $y = A x$ for some matrix $A$. We can find its columns without thinking: column $k$ is what comes out for an image
# that is 1 at pixel $k$ and 0 elsewhere.

# %%
H, W, P = 6, 6, 3
w = filters["edges across"].astype(np.float64)
units = np.eye(H * W).reshape(H * W, H, W)
A = np.stack([convolve(unit, w).ravel() for unit in units], axis=1)

x = random.normal(size=(H, W))
assert np.allclose(A @ x.ravel(), convolve(x, w).ravel())
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained", width_ratios=(2, 1))
for axes, matrix, title in ((left, A, "A: from image to result"), (right, A.T, "its transpose")):
    axes.imshow(matrix, cmap="RdBu_r", vmin=-0.5, vmax=0.5)
    axes.set(title=title, xlabel="pixel read", ylabel="pixel made")
plt.show()
print(f"{A.size} entries, of which {np.count_nonzero(A)} are not 0, and only {len(np.unique(w))} different values")

# %% [markdown] The matrix is mostly zeros, and every row has the same numbers, shifted. Nobody multiplies with it. But
# it gives us the gradient without work. With $g = dL/dy$, the chain rule for $y = A x$ is
#
# $$\frac{dL}{dx} = A^\top g.$$
#
# And the transpose is defined by one equation, which needs no matrix at all, the **adjoint identity**:
#
# $$\langle A x,\; g \rangle = \langle x,\; A^\top g \rangle \quad\text{for all } x, g.$$
#
# So a function that claims to be the gradient of a convolution can be tested on random arrays. With small whole
# numbers, sums in floating point are exact, and the two sides must be *equal*.


# %%
def whole(*shape):
    return minigrad.tensor(random.integers(-4, 5, size=shape).astype(np.float32))


x, w = whole(2, 3, 9, 9), whole(4, 3, 3, 3)
settings = dict(stride=2, padding=1)
y = conv2d(x, w, **settings)
g = whole(*y.shape)
dx = conv2d_input_grad(g, w, x.shape, **settings)
dw = conv2d_weight_grad(g, x, w.shape, **settings)
print("<conv(x, w), g> =", (y * g).sum().item())
print("<x, dx>         =", (x * dx).sum().item())
print("<w, dw>         =", (w * dw).sum().item())
assert (y * g).sum().item() == (x * dx).sum().item() == (w * dw).sum().item()

# %% [markdown]
# ## The trio
#
# Why three equal numbers? All three are the same sum, bracketed differently:
#
# $$B(x, w, g) = \sum_{n,o,c,i,j,p,q} x_{n,c,\,si+p-\text{pad},\,sj+q-\text{pad}}\; w_{ocpq}\; g_{noij}$$
#
# It is linear in each of its three arguments. Leave out one, and the sum over the rest is a convolution or one of its
# gradients:
#
# $$\text{conv2d}(x, w) = \frac{\partial B}{\partial g} \qquad
#   \text{input grad}(g, w) = \frac{\partial B}{\partial x} \qquad
#   \text{weight grad}(g, x) = \frac{\partial B}{\partial w}$$
#
# This closes the family: the gradients of each of the three are the other two. Derivatives of any order need no new
# code. `gradcheck` and `gradgradcheck` agree:

# %%
small = [minigrad.randn(*shape, dtype="float64", requires_grad=True) for shape in ((2, 3, 6, 5), (4, 3, 3, 2))]
strided = lambda x, w: conv2d(x, w, stride=2, padding=1)
print("first order:", gradcheck(strided, small), "  second order:", gradgradcheck(strided, small))

# %% [markdown]
# ### Both gradients are convolutions
#
# For stride 1 and no padding they can be written with `conv2d` itself. A pixel $x_{nchv}$ was read with the tap
# $(p, q)$ by the result at $(h - p,\; v - q)$. So its gradient is
#
# $$\frac{dL}{dx_{nchv}} = \sum_{o,p,q} g_{n,\,o,\,h-p,\,v-q}\; w_{ocpq}$$
#
# a convolution of $g$, padded by $P - 1$, with the filter **rotated by 180 degrees** and the two channels exchanged. A
# weight meets one gradient pixel at every place:
#
# $$\frac{dL}{dw_{ocpq}} = \sum_{n,i,j} x_{n,\,c,\,i+p,\,j+q}\; g_{noij}$$
#
# a convolution of the image with the *gradient as a filter*; the sum over images takes the place of that over channels.

# %%
x, w = whole(2, 3, 8, 8), whole(4, 3, 3, 3)
g = whole(2, 4, 6, 6)

rotated = w.flip((2, 3)).transpose(0, 1)
dx = conv2d(g, rotated, padding=2)
assert (dx.numpy() == conv2d_input_grad(g, w, x.shape).numpy()).all()

dw = conv2d(x.transpose(0, 1), g.transpose(0, 1)).transpose(0, 1)
assert (dw.numpy() == conv2d_weight_grad(g, x, w.shape).numpy()).all()
print("dx", dx.shape, "and dw", dw.shape, "are convolutions")

# %% [markdown]
# ### A filter learned
#
# Enough for learning a filter. Somebody convolves digits with "edges across" and shows us only images and results. We
# start from noise and go down the gradient of the squared error; $dw$ is all we need. The images are the digits of
# 8 x 8 pixels as they come. Enlarged ones would be too smooth: neighbouring pixels say nearly the same, and the loss is
# flat in most directions.

# %%
seen = minigrad.tensor(data.digits()[0].images[:64].astype(np.float32) / 255)
answers = conv2d(seen, bank[1:2])
learned = minigrad.randn(1, 1, 3, 3) * 0.3
pictures, titles = [], []
for step in range(301):
    error = conv2d(seen, learned) - answers
    if step in (0, 3, 10, 30, 300):
        pictures.append(learned.numpy()[0, 0])
        titles.append(f"step {step}\nerror {(error * error).mean().item():.1e}")
    learned = learned - conv2d_weight_grad(2 * error / error.numel(), seen, learned.shape) * 0.5
show([*pictures, filters["edges across"]], [*titles, "the one hidden\nfrom us"], limit=0.6)
assert abs(learned.numpy()[0, 0] - filters["edges across"]).max() < 0.01

# %% [markdown]
# ## im2col: make it a matrix product
#
# Computers are fast at one thing: products of dense matrices ([notebook 2](02_matmul_gpu.ipynb)). The matrix $A$ above
# was mostly zeros. There is a better way to write a convolution as a product: put the *patches* into a matrix. Row
# $(n, i, j)$ holds what this result reads, column $(c, p, q)$ is a tap:
#
# $$X_{(nij),(cpq)} = x_{n,c,i+p,j+q} \qquad Y = X\, W^\top \quad\text{with}\quad W_{o,(cpq)} = w_{ocpq}$$
#
# This is called im2col. One product for all images, channels and filters.


# %%
def im2col(x, P, Q):
    """The patches of x (N, C, H, W) as rows: (N I J, C P Q)."""
    patches = np.lib.stride_tricks.sliding_window_view(x, (P, Q), axis=(2, 3))  # (N, C, I, J, P, Q)
    N, C, I, J = patches.shape[:4]
    return patches.transpose(0, 2, 3, 1, 4, 5).reshape(N * I * J, C * P * Q)


def convolve_im2col(x, w):
    N, _, H, W = x.shape
    O, _, P, Q = w.shape
    Y = im2col(x, P, Q) @ w.reshape(O, -1).T
    return Y.reshape(N, H - P + 1, W - Q + 1, O).transpose(0, 3, 1, 2)


assert np.allclose(convolve_im2col(images, bank.numpy()), maps.numpy(), atol=1e-5)

# %% [markdown]
# Look at the matrix of a single 6 x 6 image: neighbouring rows are nearly equal, shifted by a pixel. Every pixel stands
# in it up to nine times. That is the price.

# %%
count = np.arange(36, dtype=np.float64).reshape(1, 1, 6, 6)
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
for axes, matrix, title in ((left, count[0, 0], "image"), (right, im2col(count, 3, 3), "its patches as rows")):
    drawn = axes.imshow(matrix, cmap="viridis", aspect="equal")
    axes.set(title=title)
left.add_patch(plt.Rectangle((0.5, 1.5), 3, 3, fill=False, edgecolor=ORANGE, linewidth=3))
right.add_patch(plt.Rectangle((-0.5, 8.5), 9, 1, fill=False, edgecolor=ORANGE, linewidth=3))
left.set(xlabel="column of the image", ylabel="row of the image")
right.set(xlabel="tap (p, q)", ylabel="result (i, j)", xticks=range(0, 9, 2))
figure.colorbar(drawn, label="number of the pixel")
plt.show()

# %% [markdown]
# ## Implicit: the matrix that is never written
#
# Up to nine times the memory of the input is a lot to store, and it must be written and read again. But the product
# only *reads* $X$, and where its entries lie can be computed on the way:
#
# $$X_{mk} = x_{n,c,i+p,j+q} \quad\text{with}\quad (n, i, j) \text{ from } m, \quad (c, p, q) \text{ from } k$$
#
# This is an *implicit* matrix product. In NumPy we can do it tap by tap: for a fixed $(p, q)$ the column block of $X$
# is the image shifted by $(p, q)$, a view that costs nothing.


# %%
def convolve_implicit(x, w):
    """Nine products of a shifted image, one for each tap. Channels last: a pixel is a row of C numbers."""
    O, _, P, Q = w.shape
    pixels = np.ascontiguousarray(x.transpose(0, 2, 3, 1))  # (N, H, W, C)
    N, H, W, _ = pixels.shape
    I, J = H - P + 1, W - Q + 1
    y = np.zeros((N, I, J, O), x.dtype)
    for p in range(P):
        for q in range(Q):
            y += pixels[:, p : p + I, q : q + J] @ w[:, :, p, q].T
    return y.transpose(0, 3, 1, 2)


x = random.normal(size=(64, 32, 13, 13)).astype(np.float32)
w = random.normal(size=(64, 32, 3, 3)).astype(np.float32)
assert np.allclose(convolve_implicit(x, w), convolve_im2col(x, w), atol=1e-3)

# %% [markdown]
# The library does this on the CPU and on the GPU. Channels are last in memory, so that a pixel's channels lie next to
# each other, and so are the filters of a weight. A kernel allocates nothing: where it wants extra memory, it asks a
# function that the caller gives. Let us see how much it asks for in this layer.

# %%
from minigrad_kernels import conv2d as kernels
from minigrad_kernels.layout import CHANNELS_LAST, FILTER


def laid(array, order):
    """An equal array whose axes lie in memory in this order, the slowest first."""
    return np.ascontiguousarray(array.transpose(order)).transpose(np.argsort(order))


asked = []


def workspace(nbytes, like):
    asked.append(nbytes)
    return np.empty(nbytes, np.uint8)


y = laid(np.empty((64, 64, 11, 11), np.float32), CHANNELS_LAST)
with minigrad.winograd(False):
    kernels.forward(laid(x, CHANNELS_LAST), laid(w, FILTER), None, False, 1, 0, 1, 1, y, workspace)
assert np.allclose(y, convolve_implicit(x, w), atol=1e-3)

patches, extra = im2col(x, 3, 3).nbytes, sum(asked)
for name, size in (("input", x.nbytes), ("patches of im2col", patches), ("workspace of the library", extra)):
    print(f"{name:25} {size / 2**20:6.2f} MiB")
assert extra < x.nbytes < patches

# %% [markdown]
# ## Winograd: fewer multiplications
#
# So far every way made the same multiplications. Can one do with fewer? Take two neighbouring results of a filter with
# three taps:
#
# $$y_0 = d_0 w_0 + d_1 w_1 + d_2 w_2 \qquad y_1 = d_1 w_0 + d_2 w_1 + d_3 w_2$$
#
# Six products. Winograd found that four do (for networks: Lavin and Gray 2016, "Fast algorithms for convolutional
# neural networks"):
#
# $$m_1 = (d_0 - d_2)\, w_0 \qquad m_2 = (d_1 + d_2)\, \tfrac{w_0 + w_1 + w_2}{2} \qquad
#   m_3 = (d_2 - d_1)\, \tfrac{w_0 - w_1 + w_2}{2} \qquad m_4 = (d_1 - d_3)\, w_2$$
#
# $$y_0 = m_1 + m_2 + m_3 \qquad y_1 = m_2 - m_3 - m_4$$
#
# The sums on the right are of the filter alone, computed once for all images. As matrices, with $\odot$ the product of
# elements:
#
# $$y = A^\top \big[ (G w) \odot (B^\top d) \big]$$

# %%
BT = np.array([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]], float)
G = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
AT = np.array([[1, 1, 1, 0], [0, 1, -1, -1]], float)

d, w = random.normal(size=4), random.normal(size=3)
y = AT @ ((G @ w) * (BT @ d))
print(y, "wanted", np.correlate(d, w))
assert np.allclose(y, np.correlate(d, w))

# %% [markdown] For images the trick is applied to rows and to columns:
# $Y = A^\top \big[ (G\, w\, G^\top) \odot (B^\top d\, B) \big] A$. It turns a patch of 4 x 4 pixels into 2 x 2 results
# with 16 products. The formula takes 36. The library makes 4 x 4 results from 36 products, where the formula takes 144.
# The price is rounding: the sums before the products lose digits. In float32 the errors stay far below the size of the
# results, so `minigrad.winograd` is on by default for 3 x 3 filters with stride 1 where shapes promise a gain. In
# float64 it is never used.
#
# On a GPU the implicit product is a ladder of kernels, as in notebook 2. [A page](../docs/conv2d-cuda.md) shows them.
#
# ## In the library
#
# | here | there |
# |---|---|
# | the formula | [`reference.py`](../../kernels/minigrad_kernels/conv2d/reference.py), with all settings |
# | the trio | [`minigrad/ops/conv.py`](../../minigrad/ops/conv.py): three rules of two gradients each |
# | implicit product, CPU | [`plan.py`](../../kernels/minigrad_kernels/conv2d/plan.py); [page](../docs/conv2d-cpu.md) |
# | one thread a result, GPU | [`cuda_plain.py`](../../kernels/minigrad_kernels/conv2d/cuda_plain.py) |
# | implicit product, GPU | [`cuda_tiled.py`](../../kernels/minigrad_kernels/conv2d/cuda_tiled.py) |
# | Winograd: tiles, and when it pays | [`winograd_plan.py`](../../kernels/minigrad_kernels/conv2d/winograd_plan.py) |
#
# ## Exercises
#
# ### Exercise 1: how large is the result?
#
# An axis of $H$ pixels, a filter of $P$ taps, a stride $s$, and `padding` zeros on both sides. How many results are
# there? Every tap must lie inside the padded axis.


# %%
def output_size(H, P, stride, padding): ...  # your answer


check(output_size)

# %% [markdown]
# ### Exercise 2: im2col with a stride
#
# Write the patches of one image $x$ of shape $(H, W)$ as rows, for a filter of $P \times P$ taps and a stride $s$:
# $X_{(ij),(pq)} = x_{si+p,\;sj+q}$. Loops are fine.


# %%
def patches_of(x, P, stride): ...  # your answer


check(patches_of)

# %% [markdown]
# ### Exercise 3: the gradient of the image, by a convolution
#
# For one image and one filter, return $dL/dx$ from $g = dL/dy$ and $w$, using only `convolve` from above and NumPy's
# padding and reversing.


# %%
def image_gradient(g, w): ...  # your answer


check(image_gradient)

# %% [markdown]
# ### Exercise 4: the gradient of the weight, by a matrix product
#
# The forward product is $Y = X W^\top$ with the patches $X$ of `im2col`. What is $dW$? Return $dL/dw$ of shape
# $(O, C, P, Q)$ from $g$ of shape $(N, O, I, J)$ and $x$ of shape $(N, C, H, W)$ with `im2col` and one `@`.


# %%
def weight_gradient(g, x, P, Q): ...  # your answer


check(weight_gradient)

# %% [markdown]
# ## Solutions
#
# **Exercise 1.** Places are $0, s, 2s, \dots$ up to $H + 2\,\text{pad} - P$; the division is rounded down.


# %%
def output_size(H, P, stride, padding):
    return (H + 2 * padding - P) // stride + 1


check(output_size)

# %% [markdown]
# **Exercise 2.** All windows, of which every $s$-th is kept; nothing is copied until `reshape`.


# %%
def patches_of(x, P, stride):
    windows = np.lib.stride_tricks.sliding_window_view(x, (P, P))[::stride, ::stride]
    return windows.reshape(-1, P * P)


check(patches_of)

# %% [markdown]
# **Exercise 3.** The pixel $x_{hv}$ was read with the tap $(p, q)$ by the result $(h - p, v - q)$: as $p$ grows, $i$
# falls, hence the rotation; at the edges $i$ runs from $-(P - 1)$, hence the padding.


# %%
def image_gradient(g, w):
    P, Q = w.shape
    padded = np.pad(g, ((P - 1, P - 1), (Q - 1, Q - 1)))
    return convolve(padded, w[::-1, ::-1])


check(image_gradient)

# %% [markdown]
# **Exercise 4.** It is the rule of the matrix product from notebook 1; only the order of axes needs care.


# %%
def weight_gradient(g, x, P, Q):
    rows = g.transpose(0, 2, 3, 1).reshape(-1, g.shape[1])  # (N I J, O)
    return (rows.T @ im2col(x, P, Q)).reshape(g.shape[1], x.shape[1], P, Q)


check(weight_gradient)
