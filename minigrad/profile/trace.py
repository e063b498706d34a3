"""A profile as a file of Chrome's Trace Event Format.

Source  Duffy and others 2016, "Trace Event Format": complete events (X), counters (C), metadata (M); times in
        microseconds
"""

import json
import os
from pathlib import Path

__all__ = ["write"]


def write(spans, samples, path):
    """Write calls of the host, work of devices and memory to a file, ordered by their begin."""
    process, lanes, found = {"pid": os.getpid()}, {"host": 0}, []
    for span in spans:
        is_module = span.kind == "module"
        facts = {"layer": span.layer, "bytes": span.nbytes, "kept for backward": span.kept}
        facts["type"] = span.name if is_module else ""
        name = span.layer if is_module else span.name
        about = process | {"ph": "X", "name": name, "cat": span.kind, "args": {k: v for k, v in facts.items() if v}}
        found.append(about | {"tid": 0, "ts": 1e6 * span.begin, "dur": 1e6 * span.seconds})
        if span.device:
            begin, end = span.device
            lane = lanes.setdefault(span.lane, len(lanes))
            found.append(about | {"tid": lane, "ts": 1e6 * begin, "dur": 1e6 * (end - begin)})
    counter = process | {"ph": "C", "name": "memory"}
    found += [counter | {"ts": 1e6 * seconds, "args": sample} for seconds, sample in samples]
    found.sort(key=lambda event: (event["ts"], -event.get("dur", 0)))
    head = [process | {"ph": "M", "name": "process_name", "args": {"name": "minigrad"}}]
    for lane, number in lanes.items():
        about = process | {"ph": "M", "tid": number}
        head.append(about | {"name": "thread_name", "args": {"name": lane}})
        head.append(about | {"name": "thread_sort_index", "args": {"sort_index": number}})
    Path(path).write_text(json.dumps({"traceEvents": head + found, "displayTimeUnit": "ms"}))
