"""Answers to the exercises of 01_tape that look plausible and are wrong."""


def sigmoid_rule(g, out):
    return out * (1 - out)  # without what comes in


check(sigmoid_rule, sigmoid_cases())


def linear_rules(g, X, W):
    return g @ W, g.T @ X, g  # the bias not summed


check(linear_rules, linear_cases())


def fit(g, shape):
    return g.sum(axis=0) if g.shape != shape else g  # axes of size 1 forgotten


check(fit, fit_cases())


def newton_root_step(f, start):
    x = minigrad.tensor(start, dtype="float64", requires_grad=True)
    (slope,) = minigrad.grad(f(x), x, create_graph=True)
    (curvature,) = minigrad.grad(slope, x)
    return (x - slope / curvature).item()  # the step to a minimum


check(newton_root_step, root_cases())


def largest_curvature(loss, w):
    v = minigrad.ones(w.shape, dtype="float64")
    return float((v * hessian_vector_product(loss, w, v)).sum())  # one product only


check(largest_curvature, curvature_cases())
