"""Products of Tensors summed over dimensions: of vectors and matrices by name, of any others by their dimensions.

Types   one type for all that are multiplied as matrices, as matmul
Errors  ValueError if dimensions or sizes do not fit, TypeError for mixed types and for bool
Source  Golub and Van Loan 2013, "Matrix Computations", section 1.1; Einstein 1916, "Die Grundlage der allgemeinen
        Relativitaetstheorie", section 5: an index that appears twice is summed over
"""

import math
from itertools import combinations

from minigrad_kernels.errors import KindError, ShapeError

from .. import device
from ..tensor import Tensor
from .arguments import bare, integer_of, number_of, tensor_of
from .axes import axes_of
from .elementwise import where
from .elementwise.conversions import composed
from .matmul import alike, matmul, product
from .reduce import sum
from .shape import diagonal, permute, reshape, transpose, unsqueeze
from .subscripts import labels_of, spelled

__all__ = ["addmm", "bmm", "dot", "einsum", "mm", "mv", "outer", "tensordot"]

# ---- vectors and matrices --------------------------------------------------------------------------------------------


def _checked(op, shapes, **tensors):
    """Refuse Tensors of other shapes than these, in which a letter stands for a size."""
    alike(op, **tensors)
    sizes = {}
    for value, letters in zip(tensors.values(), shapes, strict=True):
        sizes |= {letter: sizes.get(letter, n) for letter, n in zip(letters, value.shape, strict=False)}
        if len(letters) != value.ndim or [sizes[letter] for letter in letters] != [*value.shape]:
            got = ", ".join(f"{name} has shape {tensor.shape}" for name, tensor in tensors.items())
            wanted = " and ".join(f"({', '.join(letters)})" for letters in shapes)
            raise ShapeError(f"{op}: {got}; wanted {wanted}")


def mm(input, mat2):
    """The product of two matrices.

    Math    out[m, n] = sum_k input[m, k] mat2[k, n]
    Grads   dinput = g @ mat2^T        dmat2 = input^T @ g
    Shapes  (M, K), (K, N) -> (M, N)
    """
    _checked("mm", ("MK", "KN"), input=input, mat2=mat2)
    return product(input, mat2)


def bmm(input, mat2):
    """The products of the matrices of two stacks.

    Math    out[b, m, n] = sum_k input[b, m, k] mat2[b, k, n]
    Grads   dinput = g @ mat2^T        dmat2 = input^T @ g
    Shapes  (B, M, K), (B, K, N) -> (B, M, N)
    """
    _checked("bmm", ("BMK", "BKN"), input=input, mat2=mat2)
    return product(input, mat2)


def mv(input, vec):
    """The product of a matrix and a vector.

    Math    out[m] = sum_k input[m, k] vec[k]
    Grads   dinput = outer(g, vec)        dvec = input^T @ g
    Shapes  (M, K), (K,) -> (M,)
    """
    _checked("mv", ("MK", "K"), input=input, vec=vec)
    return matmul(input, vec)


def dot(input, tensor):
    """The inner product of two vectors.

    Math    out = sum(input * tensor)
    Grads   dinput = g * tensor        dtensor = g * input
    Shapes  (K,), (K,) -> ()
    """
    _checked("dot", ("K", "K"), input=input, tensor=tensor)
    return matmul(input, tensor)


def outer(input, vec2):
    """The products of all pairs of elements of two vectors.

    Math    out[m, n] = input[m] vec2[n]
    Grads   dinput = g @ vec2        dvec2 = g^T @ input
    Shapes  (M,), (N,) -> (M, N)
    Types   promote
    """
    for name, value in (("input", input), ("vec2", vec2)):
        if tensor_of("outer", name, value).ndim != 1:
            raise ShapeError(f"outer: {name} has shape {value.shape}, wanted one dimension")
    return unsqueeze(input, 1) * vec2


@composed
def addmm(input, mat1, mat2, *, beta=1, alpha=1):
    """The product of two matrices added to a third; with beta = 0 that one is ignored, NaN and all.

    Math    out = beta * input + alpha * mat1 @ mat2
    Grads   dinput = beta * g        dmat1 = alpha * g @ mat2^T        dmat2 = alpha * mat1^T @ g
    Shapes  input broadcasts to (M, N); (M, K), (K, N) -> (M, N)
    Types   of integers, beta and alpha are whole numbers
    """
    _checked("addmm", ("MK", "KN"), mat1=mat1, mat2=mat2)
    alike("addmm", mat1=mat1, input=input)
    shape = (mat1.shape[0], mat2.shape[1])
    if input.ndim > 2 or any(n not in (1, m) for n, m in zip(input.shape[::-1], shape[::-1], strict=False)):
        raise ShapeError(f"addmm: input has shape {input.shape}, which does not broadcast to {shape}")
    beta, alpha = (_factor(name, value, input.dtype) for name, value in (("beta", beta), ("alpha", alpha)))
    out = product(mat1, mat2)
    out = out if alpha == 1 else out * alpha
    if not beta:
        return where(Tensor.made(device.zeros((), bool, like=out.data)), input, out)
    return out + (input if beta == 1 else input * beta)


def _factor(name, value, dtype):
    value = number_of("addmm", name, bare(value))
    if isinstance(value, float) and not device.is_floating(dtype):
        if not value.is_integer():
            raise KindError(f"addmm: {name} is {value}, wanted a whole number as input has elements {dtype}")
        return int(value)
    return value


# ---- dimensions by position and by letter ----------------------------------------------------------------------------


def _contracted(op, operands, labels, wanted):
    """The product of Tensors whose dimensions bear labels, summed over all labels but the wanted ones, in their order.

    A dimension of size 1 stands for any size. Of all pairs, the one that takes the fewest multiplications comes first.
    """
    sizes = {}
    for x, names in zip(operands, labels, strict=True):
        for size, name in zip(x.shape, names, strict=True):
            if sizes.get(name, 1) == 1:
                sizes[name] = size
            elif size not in (1, sizes[name]):
                raise ShapeError(f"{op}: {name} has size {size} in shape {x.shape}, elsewhere {sizes[name]}")
    terms = [_without_ones(x, names, sizes) for x, names in zip(operands, labels, strict=True)]
    while len(terms) > 1:
        cost = lambda pair: math.prod([sizes[name] for name in {*pair[0][1], *pair[1][1]}])
        first, second = min(combinations(terms, 2), key=cost)
        terms = [term for term in terms if term is not first and term is not second]
        kept = {*wanted}.union(*(names for _, names in terms))
        first, second = _summed(*first, kept.union(second[1])), _summed(*second, kept.union(first[1]))
        terms.append(_pair(op, first, second, kept, sizes))
    x, names = _summed(*terms[0], wanted)
    return _placed(x, names, wanted)


def _without_ones(x, names, sizes):
    """A term, (Tensor, labels), without dimensions of size 1 that stand for another size."""
    kept = [(size, name) for size, name in zip(x.shape, names, strict=True) if size == sizes[name]]
    return reshape(x, [size for size, _ in kept]), [name for _, name in kept]


def _summed(x, names, kept):
    """A term summed over the labels that nobody needs any more."""
    axes = [axis for axis, name in enumerate(names) if name not in kept]
    return (sum(x, axes), [name for name in names if name in kept]) if axes else (x, names)


def _pair(op, first, second, kept, sizes):
    """The term that is the product of two, summed over the labels of both that are not to be kept."""
    (x, x_names), (y, y_names) = first, second
    shape = lambda names: [sizes[name] for name in names]
    left, right = [n for n in x_names if n not in y_names], [n for n in y_names if n not in x_names]
    summed = [n for n in x_names if n in y_names and n not in kept]
    batch = [n for n in x_names if n in y_names and n in kept]
    names = batch + left + right
    if not summed:
        x = reshape(_placed(x, x_names, batch + left), shape(batch + left) + [1] * len(right))
        y = reshape(_placed(y, y_names, batch + right), shape(batch) + [1] * len(left) + shape(right))
        return x * y, names
    alike(op, **{"one operand": x, "another": y})
    x, y = _matrices(x, x_names, sizes, batch, left, summed), _matrices(y, y_names, sizes, batch, summed, right)
    return reshape(product(x, y), shape(names)), names


def _placed(x, names, order):
    return permute(x, [names.index(name) for name in order])


def _matrices(x, names, sizes, batch, rows, columns):
    """A stack of matrices whose rows and columns go over several dimensions each; without a copy where that is easy."""
    b, m, n = (math.prod([sizes[name] for name in group]) for group in (batch, rows, columns))
    if names[-1] in rows:
        return transpose(reshape(_placed(x, names, batch + columns + rows), (b, n, m)), 1, 2)
    return reshape(_placed(x, names, batch + rows + columns), (b, m, n))


def tensordot(a, b, dims=2):
    """The sum of products over dimensions of a and as many of b.

    dims    how many: the last of a and the first of b; or two lists, the dimensions of a and those of b
    Math    out[i.., j..] = sum over k.. of a[i.., k..] b[k.., j..]
    Grads   da = sum over j.. of g b        db = sum over i.. of g a
    Shapes  the other dimensions of a, then those of b; of two that are summed over, one may have size 1
    """
    alike("tensordot", a=a, b=b)
    a_axes, b_axes = _axes_of_tensordot(a, b, dims)
    labels, b_labels = list(range(a.ndim)), list(range(a.ndim, a.ndim + b.ndim))
    for i, j in zip(a_axes, b_axes, strict=True):
        if a.shape[i] != b.shape[j] and 1 not in (a.shape[i], b.shape[j]):
            raise ShapeError(
                f"tensordot: a has size {a.shape[i]} in dim {i}, b {b.shape[j]} in dim {j}; wanted one size"
            )
        b_labels[j] = labels[i]
    free = [i for i in labels if i not in a_axes] + [label for label in b_labels if label >= a.ndim]
    return _contracted("tensordot", (a, b), (labels, b_labels), free)


def _axes_of_tensordot(a, b, dims):
    """The dimensions of a and of b to sum over."""
    if isinstance(dims, Tensor):
        dims = dims.tolist() if dims.data.size != 1 else dims.item()
    if isinstance(dims, list | tuple):
        if len(dims) != 2 or not all(isinstance(one, list | tuple) for one in dims):
            raise KindError(f"tensordot: dims is {dims!r}, wanted an integer or two lists of integers")
        axes = axes_of("tensordot", dims[0], a.ndim), axes_of("tensordot", dims[1], b.ndim)
        if len(axes[0]) != len(axes[1]):
            raise ShapeError(f"tensordot: dims is {dims!r}, wanted two lists of one length")
        return axes
    count = integer_of("tensordot", "dims", dims)
    if not 0 <= count <= min(a.ndim, b.ndim):
        raise ShapeError(
            f"tensordot: dims is {count}, wanted 0 to {min(a.ndim, b.ndim)} for {a.ndim} and {b.ndim} dimensions"
        )
    return range(a.ndim - count, a.ndim), range(count)


def einsum(equation, *operands):
    """Products of Tensors by Einstein's convention: each dimension has a letter, and what the result lacks is summed.

    equation    letters of each operand, "," between them, "->" and those of the result: "bij,bjk->bik". Without "->" it
                has the letters that appear once, in alphabetic order. A letter twice in one operand means its diagonal,
                "..." dimensions that are broadcast (without "->" they come first)
    operands    Tensors, or one list of them; or, with no equation, each Tensor followed by a list of numbers 0 to 51
                (or ...) in place of letters, and at last such a list for the result
    Math    out[wanted letters] = sum over all other letters of the product of the operands
    Grads   of each operand: the same sum, with g in its place
    Shapes  one size for each letter; 1 stands for any
    """
    equation, operands = spelled(equation, operands)
    labels, wanted = labels_of(equation, [x.ndim for x in operands])
    operands, labels = zip(*map(_diagonal_of, operands, labels), strict=True)
    return _contracted("einsum", operands, labels, wanted)


def _diagonal_of(x, names):
    """A term whose labels are distinct: where a label came twice, the diagonal of its dimensions."""
    for name in names:
        while names.count(name) > 1:
            first = names.index(name)
            second = names.index(name, first + 1)
            if x.shape[first] != x.shape[second]:
                raise ShapeError(f"einsum: {name} has sizes {x.shape[first]} and {x.shape[second]} in one operand")
            x = diagonal(x, 0, first, second)
            names = [n for axis, n in enumerate(names) if axis not in (first, second)] + [name]
    return x, names
