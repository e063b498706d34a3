"""Philox4x32-10, sixteen blocks of it at a time, and dropout of the 64 elements that they decide on.

Compiled from a loop it would take one block after the other, because no compiler sees that the products of 32-bit
words need no more than the lower halves of 64-bit lanes.
"""

from llvmlite import ir

from ..toolchain.emit import LANE, emitted

BLOCKS = 16  # of four words each
WORDS = ir.VectorType(LANE, BLOCKS)
FACTORS, STEPS = (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85)


def _rounds(c, k):
    """The four words of the blocks, in lanes of 64 bits, of which the upper halves hold anything."""
    for number in range(10):
        if number:
            k = [word + step for word, step in zip(k, STEPS, strict=True)]
        a, b = ((c[place] & 0xFFFFFFFF) * factor for place, factor in zip((0, 2), FACTORS, strict=True))
        c = [(b >> 32) ^ c[1] ^ k[0], b, (a >> 32) ^ c[3] ^ k[1], a]
    return c


def _merged(one, other, part):
    """The first (part 0) or second (1) halves of two vectors, element by element in turn."""
    first = part * BLOCKS // 2
    return one.shuffled(other, [place for k in range(first, first + BLOCKS // 2) for place in (k, k + BLOCKS)])


@emitted(lanes=BLOCKS)
def drop(emit, x, at, block, step, seed, threshold, scale, out):
    """out[at : at + 64] = x[at : at + 64] * scale where the word of an element is at least threshold, else times 0.

    Element 4 b + w takes word w of Philox block `block` + b, b from 0 to 15. x and out are C-contiguous; block, step,
    seed and threshold are uint64, the threshold less than 2**32. scale is of the type of x.
    """
    numbers = emit.counting() + block, step.splat(BLOCKS), seed.splat(BLOCKS)
    pairs = [(v & 0xFFFFFFFF, v >> 32) for v in numbers]
    words = [word.low(WORDS) for word in _rounds([*pairs[0], *pairs[1]], pairs[2])]
    bound = threshold.low(LANE)
    for half in range(2):  # in the order of the blocks: words 0 1 2 3 0 1 2 3 ...
        even, odd = _merged(words[0], words[2], half), _merged(words[1], words[3], half)
        for quarter in range(2):
            here = at + (2 * half + quarter) * BLOCKS
            kept = emit.filled(0).where(_merged(even, odd, quarter).is_below(bound), scale)
            out.store(x.load(here) * kept, here)
