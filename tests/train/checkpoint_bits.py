"""Damage that only hashes see: a bit that flipped, a file that is cut, and whether load refuses it."""

from minigrad import checkpoint, nn, ops, optim
from minigrad.checkpoint import CheckpointError
from minigrad.core.create import ones

__all__ = ["Damaged", "files_of", "small"]


def small(folder, units=1):
    """Save a checkpoint of a small network and its optimiser; {name: part} of them."""
    model = nn.Linear(2, units)
    optimizer = optim.SGD(model.parameters(), momentum=0.9)
    ops.sum(model(ones(1, 2))).backward()
    optimizer.step()
    checkpoint.save(folder, model, optimizer)
    return {"model": model, "optimizer": optimizer}


def files_of(folder):
    """{path: bytes} of all files of a checkpoint."""
    return {path: path.read_bytes() for path in sorted(folder.iterdir())}


class Damaged:
    """A checkpoint in a folder that is damaged in many ways, one at a time, and must be refused in all of them."""

    def __init__(self, folder, parts):
        self.folder, self.parts, self.files = folder, parts, files_of(folder)

    def refused(self, path, content):
        """Load these bytes in place of a file. Errors: AssertionError if they are taken, or refused in other words"""
        path.write_bytes(content)
        try:
            checkpoint.load(self.folder, **self.parts)
        except CheckpointError as error:
            message = str(error)
            assert str(self.folder / "checkpoint-1.safetensors") in message and "damaged" in message, message
            return
        finally:
            path.write_bytes(self.files[path])
        raise AssertionError(f"{path.name} was taken")

    def flip(self, path, bit):
        content = bytearray(self.files[path])
        content[bit // 8] ^= 1 << bit % 8
        self.refused(path, content)

    def cut(self, path, length):
        self.refused(path, self.files[path][:length])
