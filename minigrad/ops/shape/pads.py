"""pads."""

__all__: list[str] = []
