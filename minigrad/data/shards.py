"""What one of several ranks takes of a batch."""

__all__ = ["Shards"]


class Shards(list):
    """What a rank takes of a batch: a tuple for each shard of its own, None for one without images.

    total   images in all shards of all ranks
    """

    def __init__(self, parts, total):
        super().__init__(parts)
        self.total = total
