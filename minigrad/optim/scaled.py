"""What a scaled loss (amp.py) asks of an optimiser: what it will update, and whether ranks agree on the gradients."""

__all__ = ["Scaled"]


class Scaled:
    """For an optimiser all of whose gradients this rank has."""

    scattered = False  # whether each rank has gradients of its own

    def updated(self):
        """The Tensors that this rank will update, each with its gradient in .grad."""
        return [p for group in self.param_groups for p in group["params"] if p.grad is not None]

    def agreed(self, found):
        """A flag, one number in an array, as all ranks see it that update a part each."""
        return found
