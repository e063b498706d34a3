"""Lists of hooks on Tensors and nodes."""

__all__ = ["register"]


def register(owner, attribute, entry):
    """Append an entry, a tuple of its own, to owner's tuple of hooks; returns a function that removes it."""
    setattr(owner, attribute, (*getattr(owner, attribute), entry))

    def remove():
        setattr(owner, attribute, tuple(one for one in getattr(owner, attribute) if one is not entry))

    return remove
