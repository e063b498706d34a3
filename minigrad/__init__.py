"""A small reverse-mode autodiff engine."""
