"""regression."""

__all__: list[str] = []
