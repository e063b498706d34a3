"""forms."""

__all__: list[str] = []
