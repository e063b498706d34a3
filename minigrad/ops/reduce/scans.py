"""scans."""

__all__: list[str] = []
