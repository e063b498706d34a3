"""distributions."""

__all__: list[str] = []
