"""windows."""

__all__: list[str] = []
