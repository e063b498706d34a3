"""Order on the CPU: every thread owns rows.

Elements are compared as integers, their keys, which are in the order of the elements: 0 and -0 have one key, and so
has every NaN. A few elements are found by insertion among those found so far, which most of a row is too large for:
blocks of it are looked at in whole vectors. More are found by sorting the row: its keys are distributed by their last
byte, then by the one before it, and so on; elements with equal bytes keep their order.
"""

import numpy as np

from ..toolchain import clear, elements, flat, jit, share, shared, stack_array
from .plan import SELECTED, row_bytes

__all__ = ["argsort"]

BLOCK = 64  # elements that are looked at together
SMALL = 1 << 13  # elements; below it a second thread costs more than it brings
BYTES = 8 * 256  # counts of all values of each byte of a key
COUNTS = np.zeros(1, np.int64)  # their type

# For each type of keys its largest number, which is NaN's key, and the bits of infinity as a number.
LIMITS = {
    np.dtype(kind): (kind(np.iinfo(kind).max), np.array(np.inf, number).view(kind)[()])
    for kind, number in ((np.int32, np.float32), (np.int64, np.float64))
}


@jit
def key_of(bits, descending, most, infinity):
    size = bits & most
    key = -size if bits < 0 else size
    key = most if size > infinity else key
    return -key if descending else key


@jit
def insert(key, place, keys, places, count):
    """Put a key, and its place, behind those of the first `count` that are no greater."""
    k = count
    while k > 0 and keys[k - 1] > key:
        keys[k], places[k] = keys[k - 1], places[k - 1]
        k -= 1
    keys[k], places[k] = key, place


@jit
def may_precede(x, other, descending):
    """Whether an element may come before another one: not where it does not, and always where one is NaN."""
    return not (x <= other if descending else x >= other)


@jit
def any_may_precede(x, other, descending):
    """Whether one of a block of elements may come before another one. The count is narrow, for the sake of vectors."""
    count = np.int32(0)
    if descending:
        for k in range(BLOCK):
            count = np.int32(count + np.int32(not x[k] <= other))
    else:
        for k in range(BLOCK):
            count = np.int32(count + np.int32(not x[k] >= other))
    return count > 0


@jit
def select(x, bits, start, columns, descending, most, infinity, out):
    """The first places, as many as out has room for, of a row in order; `found` are their keys."""
    found, count, last, k = stack_array(SELECTED, bits), 0, x[start], start
    while k < start + columns:
        full = count == out.size
        if full and k + BLOCK <= start + columns and not any_may_precede(x[k : k + BLOCK], last, descending):
            k += BLOCK
            continue
        for at in range(k, min(k + BLOCK, start + columns)):
            if count < out.size or may_precede(x[at], last, descending):
                key = key_of(bits[at], descending, most, infinity)
                if count < out.size:
                    count += 1
                    found[count - 1] = key  # so that it is no smaller than itself, wherever it belongs
                    insert(key, at - start, found, out, count - 1)
                elif key < found[count - 1]:
                    insert(key, at - start, found, out, count - 1)
                last = x[start + out[count - 1]]
        k += BLOCK


@jit
def byte_of(key, shift, sign):
    """A byte of a key; the first one so that negative keys have smaller ones than the others."""
    return ((key >> shift) & 255) ^ (128 if shift == sign else 0)


@jit
def distribute(keys, places, shift, sign, starts, new_keys, new_places):
    """Each element to the start of those with its byte, which moves on."""
    for k in range(keys.size):
        byte = byte_of(keys[k], shift, sign)
        place = starts[byte]
        starts[byte] = place + 1
        new_keys[place], new_places[place] = keys[k], places[k]


@jit
def sort(bits, start, descending, most, infinity, keys, places, new_keys, new_places, like, out):
    """The first places, as many as out has room for, of a row of bits, once all of it has been sorted."""
    counts, sign = stack_array(BYTES, like), 8 * keys.itemsize - 8
    clear(counts)
    for k in range(keys.size):
        keys[k], places[k] = key_of(bits[start + k], descending, most, infinity), k
        for shift in range(0, sign + 1, 8):
            counts[32 * shift + byte_of(keys[k], shift, sign)] += 1
    for shift in range(0, sign + 1, 8):
        starts = counts[32 * shift : 32 * shift + 256]
        if starts[byte_of(keys[0], shift, sign)] < keys.size:
            total = 0
            for byte in range(256):
                count, starts[byte] = starts[byte], total
                total += count
            distribute(keys, places, shift, sign, starts, new_keys, new_places)
            keys, places, new_keys, new_places = new_keys, new_places, keys, places
    for k in range(out.size):
        out[k] = places[k]


@shared
def select_rows(team, x, bits, descending, most, infinity, out):
    columns = bits.shape[1]
    for n in share(bits.shape[0], team):
        select(flat(x), flat(bits), n * columns, columns, descending, most, infinity, out[n])


@shared
def sort_rows(team, bits, descending, most, infinity, keys, places, out):
    """keys and places: for each share those of a row before and after they have been distributed."""
    columns, mine = bits.shape[1], team[0]
    rows = keys[mine, 0], places[mine, 0], keys[mine, 1], places[mine, 1]
    for n in share(bits.shape[0], team):
        sort(flat(bits), n * columns, descending, most, infinity, *rows, places[mine, 0], out[n])


def argsort(x, descending, out, workspace):
    if not out.size:
        return
    dtype = np.dtype(f"i{x.itemsize}")
    settings = x.view(dtype), descending, *LIMITS[dtype]
    if out.shape[1] <= SELECTED:
        (select_rows.alone if x.size < SMALL else select_rows)(x, *settings, out)
        return
    shares = 1 if x.size < SMALL else workspace.size // row_bytes(x.shape[1], out.shape[1], x.dtype)
    count = 2 * shares * x.shape[1]
    places = elements(workspace, out.dtype, count)
    keys = elements(workspace[8 * count + 8 :], dtype, count)
    shape = shares, 2, x.shape[1]
    sort_rows.on(shares, *settings, keys.reshape(shape), places.reshape(shape), out)
