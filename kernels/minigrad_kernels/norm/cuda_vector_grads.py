"""The vector rung of the gradients of batch normalisation: as cuda_vector.py.

A ReLU that followed is part of both passes: each masks g by what the ReLU gave, so that the masked g is written only
where it is wanted itself, as the gradient of a residual; the second pass then reads that instead of g and out.
"""

from ..bias.cuda_vector import add4, fold_and_write, passed4
from ..bias.plan import LINE
from ..toolchain.cuda import cuda, device, f32, i32
from ..toolchain.cuda.halves import HALVES, SINGLE
from .cuda_vector import PLACES, VECTORS, columns_of, gather4, mul4, own_lines, scales4, sub4, times4

__all__ = ["GRADS", "PRODUCTS"]


def _products(half):
    load4, store4 = half.load4, half.store4
    arrays = "_* g, _* x, _* out, f32* mean, f32* sums, f32* products, _* masked"

    @half.vector(f"{arrays}, i32 has_relu, i32 has_masked, {PLACES}")
    def products_vector(
        g, x, out, mean, sums, products, masked, has_relu, has_masked, size, columns, fold, tiles, share
    ):  # fmt: skip
        """g, x and, if there was a ReLU, out are read once, four elements at a time, and the masked g is written if
        it is wanted; each block writes the sums of its part."""
        part, tile, place, line, first, count = own_lines(size, columns, fold, tiles, share)
        total, product = (f32(0), f32(0), f32(0), f32(0)), (f32(0), f32(0), f32(0), f32(0))
        if count > 0:
            k, centre = i32(first * line + place), gather4(mean, columns_of(place, columns))
            while count >= 2:
                g0, g1 = load4(g, k), load4(g, i32(k + line))
                v0, v1 = sub4(load4(x, k), centre), sub4(load4(x, i32(k + line)), centre)
                if has_relu:
                    g0, g1 = passed4(g0, load4(out, k)), passed4(g1, load4(out, i32(k + line)))
                if has_masked:
                    store4(masked, k, g0)
                    store4(masked, i32(k + line), g1)
                total = add4(total, add4(g0, g1))
                product = add4(product, add4(mul4(g0, v0), mul4(g1, v1)))
                k = i32(k + 2 * line)
                count = i32(count - 2)
            if count > 0:
                g0, v0 = load4(g, k), sub4(load4(x, k), centre)
                if has_relu:
                    g0 = passed4(g0, load4(out, k))
                if has_masked:
                    store4(masked, k, g0)
                total, product = add4(total, g0), add4(product, mul4(g0, v0))
        fold_and_write(cuda.shared.array(LINE, f32, alignment=16), total, sums, columns, fold, tiles, part, tile)
        fold_and_write(cuda.shared.array(LINE, f32, alignment=16), product, products, columns, fold, tiles, part, tile)

    return products_vector


@device
def slope4(g, v, centre, shift, slope, scale):
    return mul4(sub4(sub4(g, shift), mul4(sub4(v, centre), slope)), scale)


def _grads(half):
    load4, store4 = half.load4, half.store4
    numbers = f"f32 eps, i32 has_weight, i32 has_relu, f32 rows, {PLACES}"

    @half.vector(f"_* g, _* x, _* out, {VECTORS}, f32* dw, f32* db, _* dx, {numbers}")
    def grads_vector(
        g, x, out, mean, variance, weight, dw, db, dx, eps, has_weight, has_relu, rows,
        size, columns, fold, tiles, share,
    ):  # fmt: skip
        """g, x and, if there was a ReLU, out are read and dx written once, four elements at a time; a thread reads up
        to 20 numbers for its lines."""
        part, tile, place, line, first, count = own_lines(size, columns, fold, tiles, share)
        if count > 0:
            c = columns_of(place, columns)
            centre, scale = gather4(mean, c), scales4(gather4(variance, c), eps)
            each = f32(1) / rows
            shift = times4(gather4(db, c), each)
            slope = times4(mul4(scale, gather4(dw, c)), each)
            if has_weight:
                scale = mul4(scale, gather4(weight, c))
            k = i32(first * line + place)
            while count >= 2:
                g0, g1, v0, v1 = load4(g, k), load4(g, i32(k + line)), load4(x, k), load4(x, i32(k + line))
                if has_relu:
                    g0, g1 = passed4(g0, load4(out, k)), passed4(g1, load4(out, i32(k + line)))
                store4(dx, k, slope4(g0, v0, centre, shift, slope, scale))
                store4(dx, i32(k + line), slope4(g1, v1, centre, shift, slope, scale))
                k = i32(k + 2 * line)
                count = i32(count - 2)
            if count > 0:
                g0, v0 = load4(g, k), load4(x, k)
                if has_relu:
                    g0 = passed4(g0, load4(out, k))
                store4(dx, k, slope4(g0, v0, centre, shift, slope, scale))

    return grads_vector


PRODUCTS, GRADS = ({half.name: make(half) for half in (SINGLE, *HALVES)} for make in (_products, _grads))
