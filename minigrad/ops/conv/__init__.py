"""Convolution: the bilinear trio (trio.py), and the forms in which users call it (forms.py)."""
