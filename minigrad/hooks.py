"""Lists of hooks on Tensors and nodes."""

__all__ = ["Handle", "register"]


class Handle:
    """What registering a hook returns: remove() takes the hook back."""

    def __init__(self, owner, attribute, entry):
        self.owner, self.attribute, self.entry = owner, attribute, entry

    def remove(self):
        """Take the hook back; a second time does nothing."""
        hooks = getattr(self.owner, self.attribute)
        setattr(self.owner, self.attribute, tuple(one for one in hooks if one is not self.entry))


def register(owner, attribute, entry):
    """Append an entry, a tuple of its own, to owner's tuple of hooks; returns the Handle that removes it."""
    setattr(owner, attribute, (*getattr(owner, attribute), entry))
    return Handle(owner, attribute, entry)
