"""How a convolution on the CPU becomes products of matrices: the planner.

A plan is a list of jobs for toolchain/product.py. A job is a product

    C[row, column] (+)= sum over taps t and steps k of A[row + t + k*a_step] * B[t + k*b_step, column]

whose columns lie side by side in memory, in the lanes of vectors. The planner chooses what these columns mean:

              forward                         input_grad                    weight_grad
"channels"    rows  pixels of out             rows  pixels of dx            rows  (p, q, c)
              columns  o                      columns  c                    columns  o
              sum over (p, q, c)              sum over the taps met and o   sum over pixels
"pixels"      rows  groups of pixels j
              columns  (j, o)
"taps"                                        rows  rows of dx              rows  (j, o)
                                              columns  (q, c)               columns  (p, v, c)
                                              sum over (p, o)               sum over groups of pixels j

"channels" serves every convolution. Where there are few channels, most lanes would idle, and the others fill them:

pixels    The channels of neighbouring pixels of a row of out lie side by side. Such a group reads one window of x, and
          the filter is spread over it: a copy for each pixel, with zeros where the pixel reads nothing. A product with
          such a zero is zero only if what is read is finite, so this way is for finite sources.
taps      In input_grad a pixel of g is scattered over all that a row of the filter meets: as many pixels of dx as the
          filter is wide, which lie side by side. There is one product for each pixel of a row of g, added to those
          before it; what leaves the image is left out. In weight_grad x is copied into windows, one for each group of
          neighbouring pixels: there all that the filters of a group meet, (p, v, c), is one run of memory.

Pixels are read in place. Those of forward and input_grad are sorted into classes by the taps that hit the image, so
padding is neither read nor multiplied; weight_grad, whose rows read different pixels, copies x with a border of zeros.
Which way is taken, and how a sum is split, depends on shapes alone, never on the number of threads.
"""

from itertools import pairwise, product
from math import prod
from typing import NamedTuple

import numpy as np

from ..toolchain import product as plans

BLOCK_BYTES = 1 << 19  # of A, which each block of columns reads again: it should stay in the second cache
FAR = 512  # bytes between rows of B from which on they are packed
LEAST_TILES, ODD_TILES = 4, 16  # of rows, from which on packing pays; where vectors lie across lines of the cache
FAR_TILES = 16  # of rows, that a packed block of B serves at least where there are so many
DEPTH = 256  # of a packed sum, whose panel then stays in the first cache
SCATTERED_ROWS = 4 * plans.ROWS  # whose part of dx should stay in the first cache
MOST_PRODUCTS = 8192  # of a scattered plan: making one of more takes too long
SPREAD = 64  # multiplications for each element of the spread filter, from which on spreading pays
LEAST_STEPS, LARGE_STEPS = 96, 512  # of a sum before its tile is stored; the latter where dw is large
LARGE_FILTER = 1 << 16  # elements of dw from which it stays in no cache, and partial sums cost too much memory
WORTH = 0.9  # of the cost of "channels", what another meaning of columns must not exceed


class Way(NamedTuple):
    """A plan, and how its B or C differs from the arrays of the call.

    With steps, dw[p, q, c, o] is the sum over j below `pixels` of the elements of the sum of all parts at

    steps[0] * j + steps[1] * p + steps[2] * q + steps[3] * c + steps[4] * o
    """

    plan: plans.Plan
    leading: int = 0  # elements of memory: of B and a bias, or of partial sums
    pixels: int = 1  # how many share the columns, or the rows of "taps" in weight_grad
    picks: np.ndarray | None = None  # of "pixels": the place in w of each element of the spread filter, or -1
    row: int = 0  # of "taps" in input_grad: elements from a row of the filter, [p][o][q][c], to the next
    parts: int = 1  # of dw, the sums over blocks of images
    steps: tuple = ()  # of "taps" in weight_grad: how a part lies


def ways(direction, geometry):
    """The ways that a call may go, the best one first; the last one serves any source."""
    if direction == "weight_grad":
        pixels = _windows(geometry)
        return [_summed_windows(geometry, pixels) if pixels else _summed(geometry)]
    if direction == "input_grad" and _scatters(geometry):
        return [_scattered(geometry)]
    plain = Way(_gathered(direction, geometry))
    pixels = _pixels(geometry) if direction == "forward" else 1
    return [_spread(geometry, pixels), plain] if pixels > 1 else [plain]


# ---- costs -----------------------------------------------------------------------------------------------------------


def tile_cost(rows, columns, itemsize):
    """What a step of the sum of a product costs, in steps of a tile of plans.ROWS rows and two vectors."""
    lanes = plans.VECTOR_BYTES // itemsize
    (tiles, rest), (wide, last) = divmod(rows, plans.ROWS), divmod(columns, 2 * lanes)
    low = -(-rest // plans.LOW_ROWS) * max(plans.LOW_ROWS, plans.WAIT) / plans.ROWS if rest <= 2 * plans.LOW_ROWS else 1
    narrow = plans.NARROW * (tiles + (rest > 0)) if 0 < last <= lanes else 0
    return (wide + (last > lanes)) * (tiles + low) + narrow


def _plain(geometry):
    """Whether columns may mean something else than channels."""
    return geometry.groups == 1 and geometry.dilation[1] == 1 and geometry.work > 0


def _pixels(geometry):
    """How many neighbouring pixels of out share the columns of forward."""
    made, width, lanes = geometry.w_shape[0], geometry.out_size[1], plans.VECTOR_BYTES // geometry.itemsize
    if not _plain(geometry):
        return 1

    def cost(pixels):
        return -(-pixels * made // lanes) * _window(geometry, pixels) * -(-width // pixels)

    best = min(range(1, max(1, min(width, 2 * lanes // made)) + 1), key=cost)
    spread = prod(geometry.w_shape[1:3]) * _window(geometry, best) * best * made
    return best if cost(best) < WORTH * cost(1) and geometry.work >= SPREAD * spread else 1


def _window(geometry, pixels):
    """Pixels of x in a row that the taps of so many neighbouring pixels of out meet."""
    return geometry.w_shape[3] + (pixels - 1) * geometry.stride[1]


def _scatters(geometry):
    """Whether input_grad takes "taps"."""
    (images, depth, height, width), length = geometry.x_shape, geometry.out_size[1]
    rows, columns = images * height, geometry.w_shape[3] * depth
    if not _plain(geometry) or rows * length > MOST_PRODUCTS * SCATTERED_ROWS:
        return False

    def cost(products, rows, columns, setting_up):
        steps = geometry.work / (products * rows * columns)
        return products * tile_cost(rows, columns, geometry.itemsize) * (steps + setting_up)

    gathered = cost(1, rows * width, depth, plans.TILE_STEPS)
    return cost(length, rows, columns, plans.TILE_STEPS + plans.ACCUMULATE_STEPS) < WORTH * gathered


def _windows(geometry):
    """How many neighbouring pixels share a window in weight_grad, which then takes "taps"; 0 for "channels"."""
    made, depth, *kernel = geometry.w_shape
    width, lanes = geometry.out_size[1], plans.VECTOR_BYTES // geometry.itemsize
    if not _plain(geometry) or geometry.dilation[0] > 1 or prod(geometry.w_shape) > LARGE_FILTER:
        return 0

    def cost(pixels):
        """Of the products and the copy, for each pixel."""
        columns = _window(geometry, pixels) * depth
        copied = columns / lanes * geometry.stride[0] / 4
        return (tile_cost(pixels * made, kernel[0] * columns, geometry.itemsize) + copied) / pixels

    best = min(range(1, min(width, 2 * plans.ROWS // made) + 1), key=cost, default=0)
    channels = tile_cost(prod(kernel) * depth, made, geometry.itemsize)
    return best if best and cost(best) < WORTH * channels else 0


# ---- pixels of a result ----------------------------------------------------------------------------------------------


class _Reads(NamedTuple):
    """Along one axis: result[places[k]] = sum over t of source[bases[k] + shifts[t]] * filter[taps[t]]; shifts rise."""

    places: np.ndarray
    bases: np.ndarray
    shifts: np.ndarray
    taps: np.ndarray


def _forward_reads(geometry, axis):
    """How out reads x: always the whole filter."""
    places, taps = np.arange(geometry.out_size[axis]), np.arange(geometry.w_shape[2 + axis])
    bases = places * geometry.stride[axis] - geometry.padding[axis]
    return [_Reads(places, bases, taps * geometry.dilation[axis], taps)]


def _input_reads(geometry, axis):
    """How dx reads g: one set for each residue modulo the stride.

    Input h meets tap p at output i where h + padding = i*stride + p*dilation. So the taps that an input meets
    depend on the residue of h + padding alone, and inputs of one residue read as if the stride were 1.
    """
    stride, sets = geometry.stride[axis], []
    padded = np.arange(geometry.x_shape[2 + axis]) + geometry.padding[axis]
    taps = np.arange(geometry.w_shape[2 + axis])[::-1]
    reach = taps * geometry.dilation[axis]
    for residue in range(stride):
        met, places = reach % stride == residue, np.flatnonzero(padded % stride == residue)
        sets.append(_Reads(places, padded[places] // stride, -(reach[met] // stride), taps[met]))
    return sets


def _inside(sets, size):
    """The same reads, split so that no place reads outside a source of that size."""
    for places, bases, shifts, taps in sets:
        firsts, ends = np.searchsorted(shifts, -bases), np.searchsorted(shifts, size - bases)
        for first, end in sorted(set(zip(firsts.tolist(), ends.tolist(), strict=True))):
            here = (firsts == first) & (ends == end)
            yield _Reads(places[here], bases[here], shifts[first:end], taps[first:end])


class _Class(NamedTuple):
    """Rows of the result, of one image, that read with the same taps, and the products that make them.

    Taps of the jobs count from the first of the class.
    """

    a_rows: np.ndarray
    c_rows: np.ndarray
    a_taps: np.ndarray
    b_taps: np.ndarray
    jobs: list


def _gathered(direction, geometry, pixels=1):
    """The plan of "channels"; with several pixels, that of "pixels": each group of them reads one window.

    In input_grad B is w as it lies too: its columns, c, lie apart, so it is packed.
    """
    (made, depth, _, width), (images, channels, *size), groups = geometry.w_shape, geometry.x_shape, geometry.groups
    x, out, forward, filters = (*size, channels), (*geometry.out_size, made), direction == "forward", made // groups
    reads = [(_forward_reads if forward else _input_reads)(geometry, axis) for axis in (0, 1)]
    source, target, job = x, out, plans.Job(length=depth, b_step=made, columns=filters)
    if not forward:
        source, target, job = out, x, plans.Job(length=filters, b_column=made, columns=depth)
    if geometry.depthwise:
        job, groups = plans.Job(form=plans.CHANNELS, length=1, a_step=made, b_step=made, columns=made), 1
    if pixels > 1:
        # The last group of a row may make pixels of the one before again.
        places = np.minimum(np.arange(0, out[1], pixels), out[1] - pixels)
        width, made = _window(geometry, pixels), pixels * made
        reads[1] = [_Reads(places, places * geometry.stride[1] - geometry.padding[1], *(np.arange(width),) * 2)]
        job = plans.Job(length=depth, b_step=made, columns=made)
    plane, classes = depth * made, []
    for vertical, horizontal in product(_inside(reads[0], source[0]), _inside(reads[1], source[1])):
        a_rows = np.add.outer(vertical.bases * source[1], horizontal.bases) * source[2]
        c_rows = np.add.outer(vertical.places * target[1], horizontal.places) * target[2]
        a_taps = np.add.outer(vertical.shifts * source[1], horizontal.shifts) * source[2]
        b_taps = np.add.outer(vertical.taps * width, horizontal.taps) * plane
        here = job
        if forward and groups == 1 and horizontal.taps.size and np.all(np.diff(horizontal.shifts) == 1):
            # Taps that are neighbours in A and in B make one sum.
            here, a_taps, b_taps = job._replace(length=job.length * a_taps.shape[1]), a_taps[:, :1], b_taps[:, :1]
        here = here._replace(
            tap_end=a_taps.size, packed=_packs(here, images * a_rows.size, geometry) and a_taps.size > 0
        )
        jobs = [
            here._replace(
                a_offset=group * here.length,
                b_offset=group * filters,
                c_offset=group * here.columns,
                bias_offset=group * here.columns,
            )
            for group in range(groups)
        ]
        if a_rows.size:
            classes.append(_Class(*(table.reshape(-1) for table in (a_rows, c_rows, a_taps, b_taps)), jobs))
    return _pixel_plan(geometry, classes, prod(source), prod(target), None)


def _spread(geometry, pixels):
    """The filter is spread over the windows, so that the columns of the product are those of all pixels of a group."""
    made, depth, height, width = geometry.w_shape
    picks = np.full((height, _window(geometry, pixels), depth, pixels, made), -1, np.int64)
    stored = np.arange(prod(geometry.w_shape)).reshape(height, width, depth, made)
    for pixel in range(pixels):
        first = pixel * geometry.stride[1]
        picks[:, first : first + width, :, pixel] = stored
    plan = _gathered("forward", geometry, pixels)
    return Way(plan, picks.size + pixels * made, pixels, picks.reshape(-1))


def _scattered(geometry):
    """A class for each set of rows of dx, with a job that clears them, and one for each pixel of a row of g."""
    (_, depth, height, width), (made, _, down, across) = geometry.x_shape, geometry.w_shape
    lanes, size = plans.VECTOR_BYTES // geometry.itemsize, geometry.out_size
    row = -(-across * depth // lanes) * lanes  # whole vectors, so that none lies across lines of the cache
    classes = []
    for reads in _inside(_input_reads(geometry, 0), size[0]):
        cleared = plans.Job(tap_end=0, length=made, b_step=row, columns=width * depth)
        jobs = [cleared]
        for j in range(size[1] if reads.taps.size else 0):
            left = j * geometry.stride[1] - geometry.padding[1]
            first, end = max(0, -left), min(across, width - left)
            if first < end:
                columns = dict(c_offset=(left + first) * depth, columns=(end - first) * depth)
                taps = dict(a_offset=j * made, tap_end=reads.taps.size, b_offset=first * depth)
                jobs.append(cleared._replace(**taps, **columns, accumulate=1))
        a_rows, a_taps = (table * size[1] * made for table in (reads.bases, reads.shifts))
        if reads.places.size:
            classes.append(_Class(a_rows, reads.places * width * depth, a_taps, reads.taps * made * row, jobs))
    plan = _pixel_plan(geometry, classes, prod(size) * made, height * width * depth, SCATTERED_ROWS)
    return Way(plan, down * made * row, row=row)


def _packs(job, rows, geometry):
    """Whether B goes into a panel: where no tile can read it, or tiles of many rows of A would read it slowly."""
    pitch = job.b_step * geometry.itemsize
    repays = (pitch >= FAR and rows >= LEAST_TILES * plans.ROWS) or (
        pitch % plans.VECTOR_BYTES > 0 and rows >= ODD_TILES * plans.ROWS
    )
    return job.form != plans.CHANNELS and (job.b_column > 1 or repays)


def _pixel_plan(geometry, classes, source, target, run):
    """The plan of classes, for images of so many elements in A and in C.

    Blocks of images share tables. run: the rows that a job makes; None for as many as read what stays in cache.
    """
    images, itemsize = geometry.x_shape[0], geometry.itemsize
    rows = sum(kind.a_rows.size for kind in classes)
    packed = any(kind.jobs[-1].packed for kind in classes)
    together = max(1, min(images // 4, (BLOCK_BYTES << packed) // (max(source, target) * itemsize)))
    blocks = min(images, -(-images // (together * geometry.threads)) * geometry.threads)
    bounds = plans.cut(images, 1, max(1, blocks))
    sections = plans.pieces(geometry.work, blocks, -(-together * rows // plans.ROWS), geometry.threads)
    tiles = max(FAR_TILES if packed else 1, BLOCK_BYTES // 2 * rows // (plans.ROWS * max(1, source) * itemsize))
    items = [
        list(_pixel_jobs(classes, (last - first, together), (section, sections), run or plans.ROWS * tiles, starts))
        for first, last in pairwise(bounds)
        for starts in [(first * source, first * target)]
        for section in range(sections)
    ]
    numbers = np.arange(together)
    tables = (
        [np.add.outer(numbers * source, kind.a_rows).reshape(-1) for kind in classes],
        [np.add.outer(numbers * target, kind.c_rows).reshape(-1) for kind in classes],
        [kind.a_taps for kind in classes],
        [kind.b_taps for kind in classes],
    )
    tables = [np.concatenate([*lists, np.empty(0, np.int64)]) for lists in tables]
    whole = bounds if sections == 1 else ()
    return plans.make_plan(geometry.work, itemsize, items, tables[:2], tables[2:], bounds=whole)


def _pixel_jobs(classes, images, section, run, starts):
    """Jobs of one of some sections of a block. images: of the block, and of the tables; starts: in A and C."""
    first_row = first_tap = 0
    for kind in classes:
        row, end = plans.cut(images[0] * kind.a_rows.size, plans.ROWS, section[1])[section[0] : section[0] + 2]
        for start, job in product(range(row, end, run), kind.jobs):
            moved = job._replace(
                a_offset=job.a_offset + starts[0],
                row=first_row + start,
                row_end=first_row + min(start + run, end),
                tap=first_tap,
                tap_end=first_tap + job.tap_end,
                c_offset=job.c_offset + starts[1],
            )
            yield from plans.in_pieces(moved, DEPTH) if job.packed else [moved]
        first_row += images[1] * kind.a_rows.size
        first_tap += kind.a_taps.size


# ---- filters ---------------------------------------------------------------------------------------------------------


def partial_count(geometry):
    """How many partial sums dw is made of: one for each block of images, chosen by shape alone."""
    if prod(geometry.w_shape) > LARGE_FILTER:
        return 1
    return min(8, -(-geometry.x_shape[0] // 8))


def _padded(geometry):
    """Height and width of x with its border."""
    return [size + 2 * pad for size, pad in zip(geometry.x_shape[2:], geometry.padding, strict=True)]


def _sum_plan(geometry, size, rows, lines, border, image, jobs):
    """A plan of partial sums of so many elements, each over a block of images, in order.

    rows        tables of A and C
    lines       tables of A and B for one image: a tap is a line of pixels
    border      how images of x are copied
    image       elements of an image in A and in B
    jobs        of one image, with all their rows, whose sums run over its lines
    """
    images, partials, itemsize = geometry.x_shape[0], partial_count(geometry), geometry.itemsize
    large = prod(geometry.w_shape) > LARGE_FILTER
    block, steps = (4 * BLOCK_BYTES, LARGE_STEPS) if large else (BLOCK_BYTES // 2, LEAST_STEPS)
    bytes_of_image = sum(image) * itemsize
    together = max(1, min(images, block // bytes_of_image, -(-steps // prod(geometry.out_size))))
    taps = len(lines[0])
    run = max(1, BLOCK_BYTES * taps // bytes_of_image)  # lines that are summed at once
    run = run if run < taps else together * taps
    bounds = plans.cut(len(rows[0]), plans.ROWS, plans.pieces(geometry.work, partials, -(-len(rows[0]) // plans.ROWS)))
    blocks = pairwise(plans.cut(images, 1, max(1, partials)))

    def jobs_of(number, block, section):
        for first in range(*block, together):
            count = min(together, block[1] - first)
            if border.size:
                yield plans.Job(copies=count, copy_from=first * prod(geometry.x_shape[1:]))
            for tap, job in product(range(0, count * taps, run), jobs):
                moved = job._replace(
                    a_offset=job.a_offset + (0 if border.size and not border.turned else first * image[0]),
                    row=section[0],
                    row_end=min(section[1], job.row_end),
                    tap=tap,
                    tap_end=min(tap + run, count * taps),
                    b_offset=job.b_offset + (0 if border.turned else first * image[1]),
                    c_offset=number * size + job.c_offset,
                    accumulate=job.accumulate or first > block[0] or tap > 0,
                )
                if moved.row < moved.row_end:
                    yield from plans.in_pieces(moved, DEPTH) if job.packed else [moved]

    items = [
        list(jobs_of(number, block, section)) for number, block in enumerate(blocks) for section in pairwise(bounds)
    ]
    numbers = np.arange(together)
    tables = [np.add.outer(numbers * step, line).reshape(-1) for step, line in zip(image, lines, strict=True)]
    return plans.make_plan(geometry.work, itemsize, items, rows, tables, border, together)


def _summed(geometry):
    """weight_grad with channels in the columns: A = x, B = g."""
    (made, depth, *kernel), (_, channels, height, width) = geometry.w_shape, geometry.x_shape
    (lines, length), (full, line), groups = geometry.out_size, _padded(geometry), geometry.groups
    form, groups = (plans.CHANNELS, 1) if geometry.depthwise else (plans.GATHER, geometry.groups)
    image, source, line, border = lines * length * made, full * line * channels, line * channels, plans.NOTHING
    if source > height * width * channels:
        border = plans.Border(height, width * channels, geometry.padding[0], geometry.padding[1] * channels, full, line)
    taps = [np.arange(size) * step for size, step in zip(kernel, geometry.dilation, strict=True)]
    a_rows = np.add.outer(np.add.outer(taps[0] * line, taps[1] * channels), np.arange(depth)).reshape(-1)
    tables = np.arange(lines) * geometry.stride[0] * line, np.arange(lines) * length * made

    job = plans.Job(form=form, length=length, a_step=geometry.stride[1] * channels, b_step=made, columns=made // groups)
    job = job._replace(row_end=a_rows.size, packed=_packs(job, a_rows.size, geometry))
    jobs = [
        job._replace(a_offset=group * depth, b_offset=group * job.columns, c_offset=group * job.columns)
        for group in range(groups)
    ]
    rows, size = (a_rows, np.arange(a_rows.size) * made), prod(geometry.w_shape)
    plan = _sum_plan(geometry, size, rows, tables, border, (source, image), jobs)
    parts = partial_count(geometry)
    return Way(plan, parts * size if parts > 1 else 0, parts=parts)


def _summed_windows(geometry, pixels):
    """weight_grad with taps in the columns: A = g, B = a copy of x, [group of pixels][row][pixel of a window][c]."""
    (made, depth, height, _), (_, _, *size) = geometry.w_shape, geometry.x_shape
    (lines, length), (full, _) = geometry.out_size, _padded(geometry)
    window, step = _window(geometry, pixels) * depth, pixels * geometry.stride[1] * depth
    groups, image = -(-length // pixels), lines * length * made
    border = plans.Border(
        size[0], size[1] * depth, geometry.padding[0], geometry.padding[1] * depth, full, window, groups, step, turned=1
    )
    columns, (whole, rest) = height * window, divmod(length, pixels)
    apart = made * columns + geometry.stride[1] * depth  # from what a tap sums at a pixel to the same at the next
    job = plans.Job(row_end=pixels * made, length=whole, a_step=pixels * made, b_step=full * window, columns=columns)
    after = dict(a_offset=whole * job.a_step, b_offset=whole * job.b_step, row_end=rest * made)
    jobs = [job, job._replace(length=1, accumulate=1, **after)]  # the second of the group that is not whole
    rows, size = np.arange(pixels * made), pixels * made * columns
    tables = np.arange(lines) * length * made, np.arange(lines) * geometry.stride[0] * window
    plan = _sum_plan(geometry, size, (rows, rows * columns), tables, border, (image, border.size), jobs)
    parts = partial_count(geometry)
    return Way(plan, parts * size, pixels, parts=parts, steps=(apart, window, depth, 1, columns))
