"""Answers to the exercises of 03_convolution that look plausible and are wrong."""


def output_size(H, P, stride, padding):
    return (H + padding - P) // stride + 1  # padding on one side


check(output_size, size_cases)


def patches_of(x, P, stride):
    return np.lib.stride_tricks.sliding_window_view(x, (P, P)).reshape(-1, P * P)  # without the stride


check(patches_of, patch_cases())


def image_gradient(g, w):
    P, Q = w.shape
    return convolve(np.pad(g, ((P - 1, P - 1), (Q - 1, Q - 1))), w)  # not rotated


check(image_gradient, image_cases())


def weight_gradient(g, x, P, Q):
    rows = g.reshape(-1, g.shape[1])  # rows in another order than those of the patches
    return (rows.T @ im2col(x, P, Q)).reshape(g.shape[1], x.shape[1], P, Q)


check(weight_gradient, weight_cases())


def three_products(d, w):
    return [d[0] * w[0] + d[1] * w[1], d[1] * w[0] + d[2] * w[1]]  # right results, four products


check(counted(three_products), product_cases)
