"""extremes."""

__all__: list[str] = []
