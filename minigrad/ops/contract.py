"""Products of Tensors summed over dimensions: of matrices, and of any others by Einstein's convention.

Types   one type for all, as matmul
Errors  ValueError if dimensions or sizes do not fit, TypeError for mixed types and for bool
Source  Golub and Van Loan 2013, "Matrix Computations", section 1.1; Einstein 1916, "Die Grundlage der allgemeinen
        Relativitaetstheorie", section 5: an index that appears twice is summed over
"""

import math

from minigrad_kernels.errors import KindError, ShapeError

from ..core.tensor import tensor_of
from .matmul import product
from .reduce import sum
from .shape import permute, reshape

__all__ = ["bmm", "einsum", "mm"]


def _product(op, ndim, wanted, input, mat2):
    """The product of matrices, or of stacks of them, of ndim dimensions."""
    tensor_of(op, "input", input), tensor_of(op, "mat2", mat2)
    fits = input.shape[:-2] == mat2.shape[:-2] and input.shape[-1:] == mat2.shape[-2:-1]
    if not fits or not input.ndim == ndim == mat2.ndim:
        raise ShapeError(f"{op}: input has shape {input.shape}, mat2 has shape {mat2.shape}; wanted {wanted}")
    return product(input, mat2)


def mm(input, mat2):
    """The product of two matrices.

    Math    out[m, n] = sum_k input[m, k] mat2[k, n]
    Grads   dinput = g @ mat2^T        dmat2 = input^T @ g
    Shapes  (M, K), (K, N) -> (M, N)
    """
    return _product("mm", 2, "(M, K) and (K, N)", input, mat2)


def bmm(input, mat2):
    """The products of the matrices of two stacks.

    Math    out[b, m, n] = sum_k input[b, m, k] mat2[b, k, n]
    Grads   dinput = g @ mat2^T        dmat2 = input^T @ g
    Shapes  (B, M, K), (B, K, N) -> (B, M, N)
    """
    return _product("bmm", 3, "(B, M, K) and (B, K, N)", input, mat2)


# ---- dimensions by letter --------------------------------------------------------------------------------------------

DOTS = "0123456789"  # the labels of the dimensions that "..." stands for, counted from the last


def einsum(equation, *operands):
    """Products of Tensors by Einstein's convention: each dimension has a letter, and what the result lacks is summed.

    equation    letters of each operand, "," between them, "->" and those of the result: "bij,bjk->bik". Without "->" it
                has the letters that appear once, in alphabetic order. "..." stands for the dimensions without letters;
                without "->" they come first. No letter twice in one operand: see diagonal
    Math    out[wanted letters] = sum over all other letters of the product of the operands
    Grads   of each operand: the same sum, with g in its place
    Shapes  one size for each letter; 1 stands for any
    """
    if not isinstance(equation, str):
        raise KindError(f"einsum: equation is a {type(equation).__name__}, wanted a string")
    words, arrow, wanted = equation.replace(" ", "").partition("->")
    if words.count(",") + 1 != len(operands):
        raise ShapeError(f"einsum: equation is {equation!r}, but there are {len(operands)} operands")
    terms, sizes, most = [], {}, 0
    for k, (word, x) in enumerate(zip(words.split(","), operands, strict=True)):
        extra = tensor_of("einsum", f"operands[{k}]", x).ndim - len(word.replace("...", ""))
        names, most = word.replace("...", DOTS[len(DOTS) - extra :]), max(most, extra)
        if len(names) != x.ndim or len({*names}) != x.ndim:
            raise ShapeError(f"einsum: operands[{k}] has shape {x.shape}, but {word!r} in {equation!r}")
        for name, size in zip(names, x.shape, strict=True):
            if sizes.get(name, 1) == 1:
                sizes[name] = size
            elif size not in (1, sizes[name]):
                raise ShapeError(f"einsum: {name} has size {size} in shape {x.shape}, elsewhere {sizes[name]}")
        terms.append((x, names))
    terms = [_without_ones(x, names, sizes) for x, names in terms]
    if not arrow:
        wanted = "..." + "".join(sorted(name for name in words if name.isalpha() and words.count(name) == 1))
    wanted = wanted.replace("...", DOTS[len(DOTS) - most :])
    if len({*wanted}) != len(wanted) or not sizes.keys() >= {*wanted}:
        raise ShapeError(f"einsum: equation is {equation!r}, wanted letters of operands in the result, each once")
    x, names = terms[0]
    for k, (y, others) in enumerate(terms[1:], 2):
        x, names = _pair(x, names, y, others, {*wanted}.union(*(later for _, later in terms[k:])), sizes)
    x, names = _summed(x, names, wanted)
    return permute(x, [names.index(name) for name in wanted])


def _without_ones(x, names, sizes):
    """A Tensor and its labels, without dimensions of size 1 that stand for another size."""
    kept = [(size, name) for size, name in zip(x.shape, names, strict=True) if size == sizes[name]]
    return reshape(x, [size for size, _ in kept]), [name for _, name in kept]


def _summed(x, names, kept):
    """A Tensor and its labels, summed over those that are not to be kept."""
    axes = [axis for axis, name in enumerate(names) if name not in kept]
    return (sum(x, axes), [name for name in names if name in kept]) if axes else (x, names)


def _pair(x, x_names, y, y_names, kept, sizes):
    """The product of two Tensors, summed over the labels that are not to be kept, and its labels."""
    (x, x_names), (y, y_names) = _summed(x, x_names, kept.union(y_names)), _summed(y, y_names, kept.union(x_names))
    both = [name for name in x_names if name in y_names]
    batch, summed = [name for name in both if name in kept], [name for name in both if name not in kept]
    left, right = [name for name in x_names if name not in both], [name for name in y_names if name not in both]

    def matrices(x, names, *groups):
        order = [names.index(name) for group in groups for name in group]
        return reshape(permute(x, order), [math.prod([sizes[name] for name in group]) for group in groups])

    out = product(matrices(x, x_names, batch, left, summed), matrices(y, y_names, batch, summed, right))
    names = batch + left + right
    return reshape(out, [sizes[name] for name in names]), names
