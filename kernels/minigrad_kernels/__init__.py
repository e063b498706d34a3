"""Kernels on arrays: no tensors, no gradients, no allocation. See the family folders."""
