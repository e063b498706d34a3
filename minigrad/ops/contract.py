"""contract."""

__all__: list[str] = []
