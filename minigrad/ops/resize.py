"""resize."""

__all__: list[str] = []
