"""Answers to the exercises of 06_fewer_bits that look plausible and are wrong."""


def whole_numbers(exponent_bits, fraction_bits):
    return 2**fraction_bits  # the leading 1 forgotten


check_whole_numbers(whole_numbers)


def to_bfloat16(x):
    return (x.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)  # cut off


check_bfloat16(to_bfloat16)


def next_scale(scale, finite, streak):
    return (2 * scale if streak == 3 else scale, streak + 1) if finite else (scale / 2, streak)  # the streak goes on


check_next_scale(next_scale)


def largest_microbatch(parameters, activations, memory):
    return max(0, (memory - 4 * parameters) // activations)  # the parameters alone


check_microbatch(largest_microbatch)


def best_segments(layers):
    return round(layers**0.5)


check_segments(best_segments)
