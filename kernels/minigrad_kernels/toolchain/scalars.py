from .emit import fma, wide  # noqa: F401
