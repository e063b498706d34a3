"""Philox4x32-10 as LLVM IR, sixteen blocks of it at a time, and dropout of the 64 elements that they decide on.

Compiled from a loop it would take one block after the other, because no compiler sees that the products of 32-bit
words need no more than the lower halves of 64-bit lanes.
"""

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from .emit import load, merged, splat, store

__all__ = ["BLOCKS", "drop"]

BLOCKS = 16  # of four words each
WORD, LONG = ir.IntType(32), ir.IntType(64)
WORDS, LONGS = ir.VectorType(WORD, BLOCKS), ir.VectorType(LONG, BLOCKS)
FACTORS, STEPS = (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85)


def _constants(kind, values):
    return ir.Constant(kind, list(values))


def _same(value):
    return _constants(LONGS, [value] * BLOCKS)


def _rounds(builder, counter, key):
    """The words of the blocks, of which the upper halves of the lanes hold anything."""
    low, half = _same(0xFFFFFFFF), _same(32)
    c, k = list(counter), list(key)
    for number in range(10):
        if number:
            k = [builder.add(word, _same(step)) for word, step in zip(k, STEPS, strict=True)]
        a, b = (
            builder.mul(builder.and_(c[place], low), _same(factor))
            for place, factor in zip((0, 2), FACTORS, strict=True)
        )
        c = [
            builder.xor(builder.xor(builder.lshr(b, half), c[1]), k[0]),
            b,
            builder.xor(builder.xor(builder.lshr(a, half), c[3]), k[1]),
            a,
        ]
    return [builder.trunc(word, WORDS) for word in c]


def _interleaved(builder, words):
    """The words in the order of their blocks: four vectors, the first one of words 0 1 2 3 0 1 2 3 ..."""
    result = []
    for part in range(2):
        even, odd = merged(builder, words[0], words[2], part), merged(builder, words[1], words[3], part)
        result += [merged(builder, even, odd, 0), merged(builder, even, odd, 1)]
    return result


@intrinsic
def drop(typing_context, x, at, block, step, seed, threshold, scale, out):
    """out[at : at + 64] = x[at : at + 64] * scale where the word of an element is at least threshold, else times 0.

    Element 4 b + w takes word w of Philox block `block` + b, b from 0 to 15. x and out are C-contiguous; block, step,
    seed and threshold are uint64, the threshold less than 2**32.
    """

    def generate(context, builder, signature, values):
        x_array, out_array = (context.make_array(signature.args[i])(context, builder, values[i]).data for i in (0, 7))
        at, block, step, seed, threshold, scale = values[1:7]
        low, half = _same(0xFFFFFFFF), _same(32)
        blocks = builder.add(splat(builder, block, BLOCKS), _constants(LONGS, range(BLOCKS)))
        numbers = blocks, *(splat(builder, value, BLOCKS) for value in (step, seed))
        pairs = [(builder.and_(v, low), builder.lshr(v, half)) for v in numbers]
        words = _interleaved(builder, _rounds(builder, (*pairs[0], *pairs[1]), pairs[2]))
        bound, factor = (splat(builder, v, BLOCKS) for v in (builder.trunc(threshold, WORD), scale))
        size = signature.args[0].dtype.bitwidth // 8
        for part, word in enumerate(words):
            place = builder.add(at, ir.Constant(LONG, part * BLOCKS))
            source, target = (
                builder.bitcast(builder.gep(data, [place]), factor.type.as_pointer()) for data in (x_array, out_array)
            )
            kept = builder.select(builder.icmp_unsigned(">=", word, bound), factor, ir.Constant(factor.type, None))
            store(builder, builder.fmul(load(builder, source, size), kept), target, size)
        return context.get_dummy_value()

    words = types.uint64
    return types.void(x, types.intp, words, words, words, words, x.dtype, out), generate
