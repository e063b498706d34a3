"""pick."""

__all__: list[str] = []
