"""Compilers, caches and launches: the only place that imports numba.cuda or llvmlite."""
