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

from dataclasses import dataclass

from minigrad_kernels.errors import ShapeError, StateError

__all__ = ["SCHEDULES", "Simulation", "gpipe", "one_f_one_b", "simulate"]

FORWARD, BACKWARD = "forward", "backward"


def gpipe(stage, stages, microbatches):
    """What a stage does, one after the other: a list of ("forward" or "backward", microbatch)."""
    numbers = range(microbatches)
    return [(FORWARD, number) for number in numbers] + [(BACKWARD, number) for number in numbers]


def one_f_one_b(stage, stages, microbatches):
    """What a stage does, one after the other: a list of ("forward" or "backward", microbatch)."""
    ahead = min(stages - 1 - stage, microbatches)  # forward passes that the stages behind need before a gradient comes
    steps = [(FORWARD, number) for number in range(ahead)]
    for number in range(microbatches - ahead):
        steps += [(FORWARD, ahead + number), (BACKWARD, number)]
    return steps + [(BACKWARD, number) for number in range(microbatches - ahead, microbatches)]


SCHEDULES = {"gpipe": gpipe, "1f1b": one_f_one_b}


@dataclass(frozen=True)
class Simulation:
    """What a schedule comes to, if every pass takes its time.

    makespan    when the last stage has finished
    busy        share of the time of all stages in which they work, from 0 to 1
    peak        for each stage, the most microbatches that it keeps at once
    rows        for each stage, (what, microbatch, start, end) of what it does
    """

    makespan: float
    busy: float
    peak: tuple
    rows: tuple


def simulate(schedule, stages, microbatches, forward=1, backward=2, transfer=0):
    """Run a schedule on paper; times are in any one unit.

    schedule    "gpipe", "1f1b", or a function like gpipe
    forward     time of a forward pass of one microbatch in one stage; of a backward pass: backward
    transfer    time between two stages, which keeps neither of them from working
    Errors      RuntimeError if the stages would wait for one another for ever
    """
    schedule = _named(schedule)
    plans = [schedule(stage, stages, microbatches) for stage in range(stages)]
    rows, ends = [[] for _ in range(stages)], {}
    moved = True
    while moved:
        moved = False
        for stage, (plan, row) in enumerate(zip(plans, rows, strict=True)):
            while len(row) < len(plan):
                what, number = plan[len(row)]
                needed = _needed(what, number, stage, stages)
                if needed is not None and needed not in ends:
                    break
                there = 0 if needed is None else ends[needed] + (transfer if needed[2] != stage else 0)
                start = max(row[-1][3] if row else 0, there)
                end = start + (forward if what == FORWARD else backward)
                row.append((what, number, start, end))
                ends[what, number, stage] = end
                moved = True
    if any(len(row) < len(plan) for row, plan in zip(rows, plans, strict=True)):
        raise StateError(f"simulate: with {stages} stages and {microbatches} microbatches the stages wait for ever")
    makespan = max((row[-1][3] for row in rows if row), default=0)
    worked = sum(end - start for row in rows for _, _, start, end in row)
    peak = tuple(_peak(row) for row in rows)
    return Simulation(makespan, worked / (stages * makespan) if makespan else 1.0, peak, tuple(map(tuple, rows)))


def _named(schedule):
    if callable(schedule):
        return schedule
    if schedule not in SCHEDULES:
        raise ShapeError(f"schedule is {schedule!r}, wanted {' or '.join(map(repr, SCHEDULES))}")
    return SCHEDULES[schedule]


def _needed(what, number, stage, stages):
    """The pass (what, microbatch, stage) that must have ended before this one begins, or None."""
    if what == FORWARD:
        return (FORWARD, number, stage - 1) if stage else None
    return (BACKWARD, number, stage + 1) if stage < stages - 1 else (FORWARD, number, stage)


def _peak(row):
    held = most = 0
    for what, *_ in row:
        held += 1 if what == FORWARD else -1
        most = max(most, held)
    return most
