"""Answers to the exercises of 07_own_kernel that look plausible and are wrong."""


def blocks_for(n, threads):
    return n // threads  # the rest forgotten


check_blocks(blocks_for)


def gauss_rule(g, x, out):
    return g * out  # without the derivative of the exponent


check_gauss(gauss_rule)


def length_rules(g, a, b, out):
    return g * a, g * b  # not divided


check_length(length_rules)


def clip_thread(i, x, out, n):
    out[i] = min(max(x[i], -1), 1)  # not guarded


check_clip(clip_thread)


def elements_of(block, thread, blocks, threads, n):
    return list(range(block * threads + thread, n, threads))  # the step of one block


check_elements(elements_of)
