"""What can go wrong between processes. Each is a CommunicationError, and says which rank is meant."""

from minigrad_kernels.errors import MinigradError


class CommunicationError(MinigradError, RuntimeError):
    """Ranks could not do together what one of them asked for."""


class DeadlineError(CommunicationError, TimeoutError):
    """Someone was waited for in vain."""


class PeerLost(CommunicationError):
    """A rank is gone: its process ended, or its connection."""


class DisagreementError(CommunicationError, ValueError):
    """Ranks want different things: another operation, shape or element type."""
