"""What head and agents say to each other: small dictionaries as JSON, over an authenticated connection.

agent   ready (host, instance, port)   it runs no rank; the port is free there
        ended (attempt, rank, code, seconds, tail)
head    start (attempt, ranks, size, command, ...), terminate, kill, leave
both    alive, every second
"""

import json
import time

from ..errors import CommunicationError

__all__ = ["BEAT", "receive", "send"]

BEAT = 1.0  # seconds between signs of life
SEND_SECONDS = 5.0  # these messages fit into the system's buffers, unless nobody has read for long


def send(connection, say, **content):
    """Errors: CommunicationError"""
    connection.send(json.dumps({"say": say, **content}).encode(), time.monotonic() + SEND_SECONDS)


def receive(connection, seconds):
    """The next message, as a dictionary with "say". Errors: CommunicationError, DeadlineError"""
    text = connection.receive(time.monotonic() + seconds)
    try:
        message = json.loads(text)
    except ValueError:
        message = None
    if not isinstance(message, dict) or "say" not in message:
        raise CommunicationError(f"launch: {connection} said {text[:80]!r}, want a message of minigrad launch")
    return message
