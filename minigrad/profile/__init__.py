"""Where the time and the memory of a program go, by operation, by layer and by kernel.

    with minigrad.profile.Profile(model) as profile:
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
    print(profile.table("op"))
    profile.trace("trace.json")  # for chrome://tracing or https://ui.perfetto.dev

A Profile is an interceptor (core/interceptors.py), so it sees every operation that is applied, fused ones by the name
of the fusion. It is a watcher too (minigrad_kernels/toolchain/watch.py): it is told of Modules that are called, of the
gradients of each operation, of steps of optimisers and of compiled kernels that are entered. It sees the thread in
which it was begun.
"""

from .profiler import Profile, measure_step, record_function
from .tables import Row, Span

__all__ = ["Profile", "Row", "Span", "measure_step", "record_function"]
