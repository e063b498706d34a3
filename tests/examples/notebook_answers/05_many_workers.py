"""Answers to the exercises of 05_many_workers that look plausible and are wrong."""


def average(gradients, sizes):
    return sum(gradients) / len(gradients)  # each shard counts the same


check_average(average)


def pairwise_sum(parts):
    return sum(parts[1:], parts[0])  # one after another


check_pairwise(pairwise_sum)


def exposed_seconds(ready, exchange, compute):
    return max(0.0, ready[0] + sum(exchange) - compute)  # as if every bucket were ready with the first


check_exposed(exposed_seconds)


def microbatches_for(stages, lost):
    return int((stages - 1) * (1 - lost) / lost)  # rounded down


check_microbatches(microbatches_for)


def ring_step(chunks, step):
    n, after = len(chunks), [list(row) for row in chunks]
    for rank in range(n):
        after[(rank + 1) % n][step % n] += chunks[rank][step % n]  # all send the same chunk
    return after


check_ring(ring_step)
