"""Schedules of a pipeline: in which order a stage does the forward and backward passes of its microbatches.

A batch is cut into m microbatches and a model into n stages, each on a rank of its own. Stage s can begin the forward
pass of a microbatch when stage s - 1 has done it, and its backward pass when stage s + 1 has done that. While the
pipeline fills and drains, stages wait: of the time, a share (n - 1) / (m + n - 1) is lost, with both schedules. They
differ in memory: what the forward pass keeps of a microbatch stays until its backward pass.

    gpipe   all forward passes, then all backward passes; every stage keeps all m microbatches
    1f1b    one backward pass after each forward pass as soon as there is one; stage s keeps at most n - s of them

Both do the backward passes in the order of the microbatches, so gradients are summed in the same order, to the same
bits, as in one model without stages.

Source  Huang and others 2019, "GPipe: efficient training of giant neural networks using pipeline parallelism";
        Narayanan and others 2021, "Efficient large-scale language model training on GPU clusters using Megatron-LM",
        section 2.2 (1F1B with a flush, as in Narayanan and others 2021, "Memory-efficient pipeline-parallel DNN
        training", PipeDream-Flush)
"""

FORWARD, BACKWARD = "forward", "backward"


def passes(ahead, microbatches):
    """[("forward" or "backward", microbatch)] of a stage: so many forward passes, then one of each in turn."""
    steps = [(FORWARD, number) for number in range(ahead)]
    for number in range(microbatches - ahead):
        steps += [(FORWARD, ahead + number), (BACKWARD, number)]
    return steps + [(BACKWARD, number) for number in range(microbatches - ahead, microbatches)]


# What a stage does, one after the other, by (stage, stages, microbatches). Under 1f1b so many forward passes go ahead
# as the stages behind need before a gradient comes.
SCHEDULES = {
    "gpipe": lambda stage, stages, microbatches: passes(microbatches, microbatches),
    "1f1b": lambda stage, stages, microbatches: passes(min(stages - 1 - stage, microbatches), microbatches),
}
