"""What normalisation of samples does at each place of a line, see toolchain/lines.py.

Where `out` is at most `low`, ReLU let no gradient pass; `low` is NaN, which nothing is, where there was no ReLU.
"""

from ..toolchain.lines import line

__all__ = [
    "add_masked_products",
    "images_dx",
    "normalize_row",
    "row_dx",
    "row_moments",
    "row_products",
    "scale_columns",
    "weigh_columns",
]


# ---- images: vectors of columns that repeat along a line -------------------------------------------------------------


@line(moving="g x out", fixed="centre sums products", numbers="low zero")
def add_masked_products(here):
    g = here.zero.where(here.out <= here.low, here.g)
    here.sums += g
    here.products += g * (here.x - here.centre)


@line(moving="g x out dx", fixed="centre gain slope shift", numbers="low zero")
def images_dx(here):
    g = here.zero.where(here.out <= here.low, here.g)
    here.dx = (g * here.gain - here.shift) - (here.x - here.centre) * here.slope


@line(moving="scale shift weight bias")
def scale_columns(here):
    """From 1 / deviation and the distance of a mean from the centre."""
    here.scale = here.scale * here.weight
    here.shift = here.bias - here.shift * here.scale


@line(moving="sums products slope shift weight gain dw db")
def weigh_columns(here):
    """sums of g and products g (x - centre) to those of h = g weight and h z, from the same."""
    products = (here.products - here.shift * here.sums) * here.slope
    here.db += here.sums
    here.dw += products
    here.gain = here.slope * here.weight
    here.sums = here.sums * here.weight
    here.products = products * here.weight


# ---- rows: sums that are totals -------------------------------------------------------------------------------------


@line(moving="x", totals="sums squares", numbers="origin one")
def row_moments(here):
    d = (here.x - here.origin) * here.one  # widened
    here.sums += d
    here.squares += d * d


@line(moving="x out", fixed="weight bias", numbers="centre scale shift low")
def normalize_row(here):
    z = (here.x - here.centre) * here.scale - here.shift
    v = z * here.weight + here.bias
    here.out = here.low.where(v <= here.low, v)  # written so that NaN passes


@line(moving="g x out", fixed="weight dw db", totals="sums products", numbers="centre scale shift low zero")
def row_products(here):
    g = here.zero.where(here.out <= here.low, here.g)
    z = (here.x - here.centre) * here.scale - here.shift
    h = g * here.weight
    here.sums += h
    here.products += h * z
    here.db += g
    here.dw += g * z


@line(moving="g x out dx", fixed="weight", numbers="centre scale shift level slope low zero")
def row_dx(here):
    g = here.zero.where(here.out <= here.low, here.g)
    z = (here.x - here.centre) * here.scale - here.shift
    here.dx = ((g * here.weight - here.level) - z * here.slope) * here.scale
