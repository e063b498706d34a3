"""Rows of the products of matrices."""

import numpy as np

from . import classes, flags, given, op, real, refusal, sample


def _op(name, shapes, *rows, reference=np.matmul):
    first, second = shapes[0][:2]
    return op(
        name,
        *(sample(*(real(*shape) for shape in of)) for of in shapes),
        *rows,
        refusal(TypeError, "has elements int64", real(*first), classes(5, *second)),
        refusal(TypeError, "has elements bool, wanted ", flags(*first), flags(*second)),
        reference=reference,
    )


def _einsum(equation, *shapes):
    return sample(equation, *(real(*shape) for shape in shapes))


def _no(message, equation, *shapes):
    return refusal(ValueError, message, equation, *(real(*shape) for shape in shapes))


def _attends(*shapes, **options):
    return sample(*(real(*shape) for shape in shapes), **options)


QKV = (2, 3, 4), (2, 5, 4), (2, 5, 6)
QUERY_KEY_VALUE = tuple(real(*shape) for shape in QKV)
TAKES_PART = given([True] * 5, [False] * 5, [True, False, True, True, False])
PAIRS = [
    *(((2, 1, 3, 4), (5, 4, 2)), ((3, 4), (4,)), ((4,), (4, 5)), ((2, 3, 4), (4, 5)), ((2, 3, 4), (4,))),
    *(((4,), (2, 4, 5)), ((2, 3, 4), (2, 4, 5)), ((3, 0), (0, 5)), ((0, 3, 4), (4, 5)), ((17, 65), (65, 33))),
]
LINEAR = [((2, 3, 4), (5, 4), (5,)), ((4,), (5, 4)), ((0, 4), (5, 4), (5,)), ((19, 70), (13, 70), (13,))]
OPS = [
    _op(
        "matmul",
        PAIRS,
        sample(classes(5, 3, 4), classes(5, 4, 2)),
        refusal(ValueError, "matmul: input has shape (3, 4), other (3, 4); wanted", real(3, 4), real(3, 4)),
        refusal(ValueError, "do not broadcast", real(2, 3, 4), real(3, 4, 5)),
    ),
    _op(
        "linear",
        LINEAR,
        refusal(ValueError, "linear: input has 4 features", real(3, 4), real(4, 5)),
        reference=lambda x, weight, bias=0: x @ weight.T + bias,
    ),
    _op(
        "mm",
        [((3, 4), (4, 5)), ((9, 33), (33, 17))],
        refusal(ValueError, "mm: input has shape (3, 4), mat2 has shape (3, 4)", real(3, 4), real(3, 4)),
    ),
    _op(
        "bmm",
        [((2, 3, 4), (2, 4, 5)), ((3, 9, 33), (3, 33, 17))],
        refusal(ValueError, "wanted (B, M, K) and (B, K, N)", real(2, 3, 4), real(2, 3, 4)),
    ),
    op(
        "einsum",
        _einsum("bij,bkj->bik", (5, 2, 3), (5, 4, 3)),
        _einsum(" ij , jk", (2, 3), (3, 4)),
        _einsum("ba", (2, 3)),
        _einsum("ij->", (2, 3)),
        _einsum("bhqd,bhkd->bhqk", (2, 3, 4, 5), (2, 3, 6, 5)),
        _einsum("i,,jk,kl->il", (3,), (), (3, 4), (4, 2)),
        _einsum("...ij,...jk", (5, 1, 2, 3), (6, 3, 4)),
        _einsum("a...,b...->ab...", (2, 6), (3,)),
        _einsum("ij,kj->ik", (2, 3), (5, 1)),
        _einsum("ij,jk->ik", (2, 0), (0, 3)),
        sample("ij,jk->ik", classes(5, 2, 3), classes(5, 3, 4)),
        _no("einsum: equation is 'i,j->ij', but there are 1 operands", "i,j->ij", (3,)),
        _no("einsum: operands[0] has shape (3,), but 'ij' in 'ij->i'", "ij->i", (3,)),
        _no("einsum: operands[0] has shape (3, 3), but 'ii' in 'ii->i'", "ii->i", (3, 3)),
        _no("einsum: equation is 'i->j', wanted letters of operands in the result", "i->j", (3,)),
        _no("einsum: j has size 2 in shape (2,), elsewhere 3", "ij,j->ij", (2, 3), (2,)),
        reference=lambda equation, *operands: np.einsum(equation.replace(" ", ""), *operands),
        views=True,
    ),
    op(
        "scaled_dot_product_attention",
        _attends(*QKV),
        _attends(*QKV, is_causal=True),
        _attends(*QKV, attn_mask=TAKES_PART),
        _attends(*QKV, (3, 5), scale=0.3),
        _attends(*QKV, attn_mask=given([0.5, -np.inf, 1.0, -2.0, 0.0], [-np.inf] * 5, [0.0, 0.0, -np.inf, 1.0, 0.0])),
        _attends((2, 3, 3, 4), (3, 5, 4), (5, 6), (2, 1, 1, 5)),
        _attends((3, 4), (0, 4), (0, 6)),
        _attends(*QKV, dropout_p=0.5, random=True),
        refusal(ValueError, "key (2, 5, 3), value", real(2, 3, 4), real(2, 5, 3), real(2, 5, 6)),
        refusal(ValueError, "key (2, 5, 4), value (2, 4, 6)", real(2, 3, 4), real(2, 5, 4), real(2, 4, 6)),
        refusal(ValueError, "attn_mask has shape (4, 5), wanted one for", *QUERY_KEY_VALUE, real(4, 5)),
        refusal(TypeError, "attn_mask has elements int64", *QUERY_KEY_VALUE, classes(5, 3, 5)),
        refusal(TypeError, "query has elements int64", *(classes(5, 3, 3) for _ in range(3))),
    ),
]
