"""Where the time and the memory of a program go, by operation, by layer and by kernel.

    with minigrad.profile.Profile(model) as profile:
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
    print(profile.table("op"))
    profile.trace("trace.json")  # for chrome://tracing or https://ui.perfetto.dev

It sees every operation that the engine applies (fused ones by the name of the fusion), the gradients of each, every
Module that is called, every step of an optimiser and every compiled kernel that is entered, in the thread in which it
was begun. Without one, nothing of this costs anything: see hooks.py.
"""

from .profiler import Profile, record_function
from .spans import Span
from .steps import measure_step
from .tables import Row

__all__ = ["Profile", "Row", "Span", "measure_step", "record_function"]
