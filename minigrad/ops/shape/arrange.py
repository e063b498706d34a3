"""arrange."""

__all__: list[str] = []
