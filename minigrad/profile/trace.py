"""A profile as a file of Chrome's Trace Event Format.

Source  Duffy and others 2016, "Trace Event Format": complete events (X), counters (C), metadata (M); times in
        microseconds
"""

import json
import os
from pathlib import Path

from .spans import OUTSIDE

__all__ = ["events", "write"]


def events(recorder):
    """The events of a profile, ordered by their begin: calls of the host, work of devices, memory."""
    process, lanes, found = os.getpid(), {}, []
    for span in recorder.spans:
        arguments = {"layer": span.layer} if span.layer != OUTSIDE else {}
        arguments |= {"fused with": ", ".join(span.joined)} if span.joined else {}
        arguments |= {"bytes": span.nbytes} if span.nbytes else {}
        arguments |= {"kept for backward": span.kept} if span.kept else {}
        name = span.layer if span.kind == "module" else span.name
        arguments |= {"type": span.name} if span.kind == "module" else {}
        common = {"name": name, "cat": span.kind, "ph": "X", "pid": process, "args": arguments}
        found.append(common | {"tid": 0, "ts": 1e6 * span.begin, "dur": 1e6 * span.seconds})
        if span.device:
            lane = lanes.setdefault(span.lane, len(lanes) + 1)
            begin, end = span.device
            found.append(common | {"tid": lane, "ts": 1e6 * begin, "dur": 1e6 * (end - begin)})
    if recorder.memory is not None:
        for seconds, sample in recorder.memory.samples:
            found.append({"name": "memory", "ph": "C", "pid": process, "ts": 1e6 * seconds, "args": sample})
    found.sort(key=lambda event: (event["ts"], -event.get("dur", 0)))
    names = {"host": 0, **lanes}
    head = [{"name": "process_name", "ph": "M", "pid": process, "args": {"name": "minigrad"}}]
    for lane, number in names.items():
        about = {"ph": "M", "pid": process, "tid": number}
        head.append(about | {"name": "thread_name", "args": {"name": lane}})
        head.append(about | {"name": "thread_sort_index", "args": {"sort_index": number}})
    return head + found


def write(recorder, path):
    """Write the events to a file."""
    text = json.dumps({"traceEvents": events(recorder), "displayTimeUnit": "ms"})
    Path(path).write_text(text)
