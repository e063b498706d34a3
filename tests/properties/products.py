"""Rules of products."""

import numpy as np

from .draws import Rule, call, sizes


def _matrices(draws):
    batch = draws.shape(0, 2, empty=False)
    m, k, n = sizes(draws, 3, 9)
    if draws.chance(15):
        return call(draws.real((k,)), draws.real((*draws.alike(batch), k, n)))
    if draws.chance(15):
        return call(draws.real((*batch, m, k)), draws.real((k,)))
    return call(draws.real((*batch, m, k)), draws.real((*draws.alike(batch), k, n)))


def _mm(draws):
    m, k, n = sizes(draws, 3, 9)
    return call(draws.real((m, k)), draws.real((k, n)))


def _bmm(draws):
    b, m, k, n = sizes(draws, 4, 5)
    return call(draws.real((b, m, k)), draws.real((b, k, n)))


def _linear(draws):
    k, n = sizes(draws, 2, 9)
    bias = (draws.real((n,)),) if draws.flag() else ()
    return call(draws.real((*draws.shape(0, 2), k)), draws.real((n, k)), *bias)


EQUATIONS = (
    "ij,jk->ik",
    "bij,bjk->bik",
    "ij,ij->",
    "ij->ji",
    "bij->bj",
    "i,j->ij",
    "bij,kj->bik",
    "abc,cd->abd",
)


def _einsum(draws):
    equation = draws.choice(*EQUATIONS)
    sizes = {letter: draws.integer(1, 4) for letter in "abcdijk"}
    shapes = [tuple(sizes[letter] for letter in term) for term in equation.split("->")[0].split(",")]
    return call(equation, *map(draws.real, shapes))


RULES = [
    Rule("matmul", _matrices, np.matmul),
    Rule("mm", _mm, np.matmul),
    Rule("bmm", _bmm, np.matmul),
    Rule("linear", _linear, lambda x, w, bias=0: x @ w.T + bias),
    Rule("einsum", _einsum, np.einsum),
]
