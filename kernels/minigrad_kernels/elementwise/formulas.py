"""The formulas for one element that the kernels of every device share. NaN passes, as in PyTorch."""


def passed(v, y):
    """ReLU of y = v; of y, its result, the gradient where v comes in."""
    return type(v)(0) if y <= 0 else v


def leaked(v, y, slope):
    """Leaky ReLU of y = v; of y, its input, the gradient where v comes in. A NaN of y is scaled."""
    return v if y > 0 else v * slope
