"""activations."""

__all__: list[str] = []
