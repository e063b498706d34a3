"""norms."""

__all__: list[str] = []
