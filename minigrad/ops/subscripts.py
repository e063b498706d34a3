"""What the equation of einsum says: the labels of each operand's dimensions, and those of the result."""

import re
from string import ascii_lowercase, ascii_uppercase

from minigrad_kernels.errors import KindError, ShapeError

from ..tensor import Tensor
from .arguments import integer_of, tensor_of

__all__ = ["labels_of", "spelled"]

LETTERS = ascii_uppercase + ascii_lowercase
WORD = re.compile(r"[A-Za-z ]*(\.\.\.)?[A-Za-z ]*")


def spelled(equation, operands):
    """(equation, operands) of any way to call einsum: with an equation, or with lists of numbers for letters."""
    if isinstance(equation, Tensor):
        pairs, rest = divmod(1 + len(operands), 2)
        everything = (equation, *operands)
        operands, lists = everything[: 2 * pairs : 2], everything[1 : 2 * pairs : 2]
        equation = ",".join(map(_word, lists)) + "".join(f"->{_word(one)}" for one in everything[2 * pairs :])
    if not isinstance(equation, str):
        raise KindError(f"einsum: equation is a {type(equation).__name__}, wanted a string")
    if len(operands) == 1 and isinstance(operands[0], list | tuple):
        operands = tuple(operands[0])
    for k, x in enumerate(operands):
        tensor_of("einsum", f"operands[{k}]", x)
    return equation, operands


def _word(numbers):
    """The letters for a list of numbers; they are in the same order."""
    if not isinstance(numbers, list | tuple):
        raise KindError(f"einsum: got a {type(numbers).__name__} after an operand, wanted a list of numbers")
    places = [one if one is Ellipsis else integer_of("einsum", "a subscript", one) for one in numbers]
    if not all(one is Ellipsis or 0 <= one < len(LETTERS) for one in places):
        raise ShapeError(f"einsum: subscripts are {numbers}, wanted 0 to {len(LETTERS) - 1}")
    return "".join("..." if one is Ellipsis else LETTERS[one] for one in places)


def labels_of(equation, ndims):
    """(the labels of each operand's dimensions, the labels of the result), for operands of these numbers of dimensions.

    A label is a letter or, for what "..." stands for, its place counted from the last: "...0".
    """
    terms, arrow, result = equation.partition("->")
    words = [_letters(equation, word) for word in terms.split(",")]
    if len(words) != len(ndims):
        raise ShapeError(f"einsum: equation is {equation!r}, which has {len(words)} operands, but got {len(ndims)}")
    extras = [ndim - len(word.replace("...", "")) for word, ndim in zip(words, ndims, strict=True)]
    for k, (word, extra) in enumerate(zip(words, extras, strict=True)):
        if extra < 0 or (extra and "..." not in word):
            raise ShapeError(f"einsum: operands[{k}] has {ndims[k]} dimensions, but {word!r} in {equation!r}")
    labels = [_expanded(word, extra) for word, extra in zip(words, extras, strict=True)]
    if arrow:
        return labels, _wanted(equation, _letters(equation, result), labels, max(extras))
    letters = "".join(words).replace(".", "")
    return labels, _expanded("...", max(extras)) + sorted(one for one in letters if letters.count(one) == 1)


def _letters(equation, word):
    """A word of the equation without spaces."""
    if not WORD.fullmatch(word):
        raise ShapeError(f"einsum: equation is {equation!r}, in which {word!r} is not letters with at most one '...'")
    return word.replace(" ", "")


def _expanded(word, extra):
    """The labels of a word in which "..." stands for so many dimensions."""
    head, dots, tail = word.partition("...")
    return [*head, *(f"...{k}" for k in reversed(range(extra)) if dots), *tail]


def _wanted(equation, word, labels, extra):
    """The labels of the result, which must be distinct and come from operands."""
    wanted = _expanded(word, extra)
    for letter in wanted:
        if wanted.count(letter) > 1:
            raise ShapeError(f"einsum: equation is {equation!r}, whose result names {letter} twice")
        if not any(letter in one for one in labels):
            raise ShapeError(f"einsum: equation is {equation!r}, whose result names {letter}, which no operand has")
    return wanted
