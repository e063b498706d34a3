"""Reducer: the gradients of an update, gathered in buckets, added over shards, sent while backward goes on.

A bucket leaves as soon as its last gradient is final, but never before the bucket in front of it: then all ranks send
the same in the same order, whatever the order in which their gradients come.
"""

import contextlib
import time

from minigrad_kernels import optimizer as kernels
from minigrad_kernels.errors import StateError

from .. import device
from ..core.tape import after_backward
from ..core.tensor import Tensor
from .buckets import buckets_of
from .errors import CommunicationError

# Where an update stands on this rank, and what a backward pass then does: the phases.
#
# OUTSIDE   of the loop over several shards: an error, as it belongs to none
# ADDING    a shard that others follow: gradients are put into buckets, which are added up
# SENDING   the last shard, or the only one: likewise, and full buckets are sent
# ENDED     gradients are averaged: an error, until the next update begins
OUTSIDE, ADDING, SENDING, ENDED = "outside", "adding", "sending", "ended"


class Reducer:
    """Averages the gradients of parameters over shards.

    parameters      in the order in which their gradients come
    shards          how many there are on all ranks
    bucket_bytes    of a bucket; None lets buckets_of choose
    at_end          called when the gradients of an update are there
    phase           see above
    held            whether backward passes only add to .grad, as another one will follow
    timeline        of the latest update: {"bucket", "bytes", "ready", "done"} for each, in seconds after the first
                    gradient; done is None where the device alone knows
    """

    def __init__(self, parameters, world, shards, bucket_bytes, at_end):
        self.world, self.shards = world, shards
        self.at_end = at_end
        self.buckets = buckets_of(parameters, nbytes=bucket_bytes)
        self.place = {p: (b, i) for b, bucket in enumerate(self.buckets) for i, p in enumerate(bucket.tensors)}
        self.gradients = [[Tensor.made(view) for view in bucket.views] for bucket in self.buckets]
        self.held = False
        self.timeline, self._works = [], []
        self._sums = [{} for _ in self.buckets]  # {level: the sum of 2^level shards}, of each bucket
        self._plans = [kernels.Plan() for _ in self.buckets]
        world.models += 1
        self.number = world.models
        self.begin(SENDING)
        self._take_over()

    def _take_over(self):
        """Hang on the parameters, in place of whoever did before."""
        for parameter in self.place:
            for (hook,) in parameter.node.ready_hooks:
                if isinstance(former := getattr(hook, "__self__", None), Reducer):
                    former.release()
        self._hooks = [parameter.register_post_accumulate_grad_hook(self._ready) for parameter in self.place]

    def release(self):
        """Leave the parameters alone from now on."""
        for hook in self._hooks:
            hook.remove()

    def recover(self):
        """Forget a backward pass that an exception ended, before a new one."""
        if self._started is not None or self.phase is ENDED:
            self.begin(SENDING)

    def begin(self, phase):
        """Forget the update that was begun, once nobody writes to its buckets any more."""
        for work in self._works:
            if work is not None:
                with contextlib.suppress(CommunicationError):  # whoever communicates next hears of it
                    work.wait()
        self._missing = [set(range(len(bucket.tensors))) for bucket in self.buckets]
        self._works, self._started, self.phase = [], None, phase
        for sums in self._sums:
            sums.clear()

    # ---- while backward goes on ------------------------------------------------------------------------------------

    def _ready(self, parameter):
        """The gradient of a parameter is final for this pass."""
        if self.phase is OUTSIDE:
            raise StateError("DataParallel: backward outside of a loop over model.shards(batch) for several shards")
        b, i = self.place[parameter]
        self._take(parameter, b, i)
        if self.phase is ENDED and not self.held:
            hint = "put all passes of a shard but the last one under model.no_sync()"
            raise StateError(f"DataParallel: backward for gradients that were averaged already; {hint}")
        if self.phase is SENDING and not self.held:
            if self._started is None:
                self._started = time.perf_counter()
                after_backward(self.finish)
            self._missing[b].discard(i)
            while len(self._works) < len(self.buckets) and not self._missing[len(self._works)]:
                self._send(len(self._works))

    def _take(self, parameter, b, i):
        """Put a gradient in its place, and have .grad look there."""
        gradient, own = parameter.grad, self.gradients[b][i]
        if gradient.requires_grad:
            hint = "use minigrad.grad on the module inside"
            raise StateError(f"DataParallel: gradients of create_graph=True cannot be averaged; {hint}")
        if gradient.array is not own.array:
            device.assign(own.array, gradient.array)
            parameter.grad = own

    def _send(self, b):
        """Begin to average a bucket that is complete on this rank."""
        self._add_up(b, True)
        array = self.buckets[b].array
        self._started = self._started or time.perf_counter()
        entry = {"bucket": b, "bytes": array.nbytes, "ready": time.perf_counter() - self._started, "done": None}
        self.timeline = [entry] if b == 0 else [*self.timeline, entry]
        if self.world.size == 1:
            self._works.append(None)
            return
        label = f"bucket {b} of {len(self.buckets)}, model {self.number}"
        with device.place_of(array).active():
            self._works.append(self.world.all_reduce(array, label=label, asynchronous=True))

    # ---- sums over the shards of this rank -----------------------------------------------------------------------

    def _add_up(self, b, last):
        """Add what earlier shards left to the gradients of this one, pairwise, as one adds one to a binary number.

        After shard j the sums at the levels of the ones in j + 1 are left: after 1, 2, 3 shards (0), (01), (01)(2).
        """
        array, sums = self.buckets[b].array, self._sums[b]
        level = 0
        while sums and (last or level in sums):
            if level in sums:
                device.accumulate(array, sums.pop(level))
            level += 1
        if not last:
            sums[level] = device.copy(array)

    def end_shard(self):
        """Put the gradients of a shard aside, which is not the last of this rank; .grad is None then."""
        for b, bucket in enumerate(self.buckets):
            self._fill(b, range(len(bucket.tensors)))
            self._add_up(b, False)
            for parameter in bucket.tensors:
                parameter.grad = None

    def _fill(self, b, numbers):
        """Zeros for those of these parameters of a bucket that the shard did not use; the others are in place."""
        for i in numbers:
            parameter = self.buckets[b].tensors[i]
            if parameter.grad is None:
                device.fill(self.gradients[b][i].array, 0)
            else:
                self._take(parameter, b, i)

    # ---- at the end of the last backward -------------------------------------------------------------------------

    def finish(self):
        """Send what is left, wait for all, and let every .grad be the average."""
        for b in range(len(self._works), len(self.buckets)):
            self._fill(b, self._missing[b])
            self._send(b)
        for b, (bucket, work) in enumerate(zip(self.buckets, self._works, strict=True)):
            if work is not None:
                work.wait()
                self.timeline[b]["done"] = work.ended and work.ended - self._started
            with device.place_of(bucket.array).active():
                kernels.scale([bucket.array], 1 / self.shards, self._plans[b])
            for parameter, gradient in zip(bucket.tensors, self.gradients[b], strict=True):
                parameter.grad = gradient
        self._works.clear()
        self.begin(ENDED)
        self.at_end()
