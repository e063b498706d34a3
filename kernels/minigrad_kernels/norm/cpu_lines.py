"""What normalisation does at each place of a line, see toolchain/lines.py."""

from ..toolchain.lines import line

__all__ = [
    "add_moments",
    "add_products",
    "add_row_moments",
    "add_row_products",
    "flush",
    "grad_line",
    "normalize_add_line",
    "normalize_line",
    "rectified_products",
    "standardize_grad_line",
    "standardize_line",
]


@line(moving="x", fixed="centre sums squares")
def add_moments(here):
    d = here.x - here.centre
    here.sums += d
    here.squares += d * d


@line(moving="g x", fixed="centre sums products")
def add_products(here):
    here.sums += here.g
    here.products += here.g * (here.x - here.centre)


@line(moving="g x out masked", fixed="centre sums products", numbers="zero")
def rectified_products(here):
    """add_products of g where out is positive, or NaN, which is kept."""
    g = here.zero.where(here.out <= here.zero, here.g)
    here.masked = g
    here.sums += g
    here.products += g * (here.x - here.centre)


@line(moving="", fixed="sums others total other_total", numbers="zero")
def flush(here):
    """Sums of a few elements go into totals of float64."""
    here.total += here.sums
    here.other_total += here.others
    here.sums = here.zero
    here.others = here.zero


@line(moving="x out", fixed="centre scale shift", numbers="low")
def normalize_line(here):
    v = (here.x - here.centre) * here.scale + here.shift
    here.out = here.low.where(v <= here.low, v)  # written so that NaN passes


@line(moving="x residual out", fixed="centre scale shift", numbers="low")
def normalize_add_line(here):
    v = (here.x - here.centre) * here.scale + here.shift + here.residual
    here.out = here.low.where(v <= here.low, v)


@line(moving="g x dx", fixed="centre scale slope shift")
def grad_line(here):
    here.dx = ((here.g - here.shift) - (here.x - here.centre) * here.slope) * here.scale


# ---- rows: sums and squares are of float64 -----------------------------------------------------------------------


@line(moving="x", fixed="sums squares", numbers="origin")
def add_row_moments(here):
    d = here.x - here.origin
    here.sums += d
    here.squares += d * d


@line(moving="g z", fixed="sums products", numbers="one")
def add_row_products(here):
    g = here.g * here.one  # widened
    here.sums += g
    here.products += g * here.z


@line(moving="x out", numbers="origin mean scale")
def standardize_line(here):
    here.out = ((here.x - here.origin) - here.mean) * here.scale


@line(moving="g z dx", numbers="mean slope scale")
def standardize_grad_line(here):
    here.dx = ((here.g - here.mean) - here.z * here.slope) * here.scale
