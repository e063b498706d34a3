"""Train one network on many ranks: the same script on one process, several processes or several machines.

python examples/data_parallel.py --shards 4
minigrad launch -n 4 examples/data_parallel.py
mpiexec -n 2 python examples/data_parallel.py --shards 4

Each batch is cut into shards, which the ranks share; g = (1/N) sum g_i is the average of the gradients of all shards.
With the same number of shards the weights at the end have the same bits on any number of ranks, so the three commands
print the same hash. Killed and started again, the training goes on from its last checkpoint to the same bits too.
"""

import argparse
import os

import minigrad
from minigrad import checkpoint, data, nn, optim, parallel
from minigrad.device import generator
from minigrad.train import Callback, History, Interruption, Progress, fit


def network():
    """A convolutional network with batch norm and dropout for 8x8 digits."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.25),
        nn.Linear(32 * 4 * 4, 10),
    )


class Checkpoints(Callback):
    """Every `every` updates, rank 0 writes down all that going on needs."""

    def __init__(self, folder, every, model, optimizer, loader):
        self.folder, self.every = folder, every
        self.model, self.optimizer, self.loader = model, optimizer, loader

    def on_step(self, history):
        if history.steps % self.every == 0:
            self.save(history)

    def save(self, history):
        how = {"history": history, "loader": self.loader, "keep": 2, "world": self.model.world}
        checkpoint.save(self.folder, self.model, self.optimizer, **how)

    def restore(self, history):
        how = {"history": history, "loader": self.loader, "generator": generator(), "world": self.model.world}
        checkpoint.load(self.folder, self.model, self.optimizer, **how)  # the newest that is whole


def main(epochs=3, batch_size=64, shards=None, checkpoints=None, every=20, optimizer="sgd"):
    with parallel.init() as world:
        minigrad.manual_seed(0)
        train, test = data.digits()
        model = parallel.DataParallel(network(), world, shards=shards)
        loader = data.Loader(train, batch_size, shuffle=True, transform=data.PadCrop(1), sampler=model.sampler)
        if optimizer == "sgd":
            update = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        else:  # its state is divided among the ranks
            update = parallel.ShardedOptimizer(optim.Adam(model.parameters(), lr=3e-3), model)

        history, callbacks, keeper = History(), [], None
        if checkpoints:
            keeper = Checkpoints(checkpoints, every, model, update, loader)
            callbacks.append(keeper)
            if world.broadcast_object(checkpoint.exists(checkpoints)):
                keeper.restore(history)
        if world.rank == 0:
            print(f"{model.sampler.shards} shards on {world.size} ranks ({world.transport.name}), step {history.steps}")
            callbacks.append(Progress(len(train), epochs))
        with Interruption() as interruption:  # Ctrl-C, or SIGTERM before the machine is taken away
            callbacks.append(interruption)
            fit(model, loader, update, epochs, test=data.Loader(test, 256), history=history, callbacks=callbacks)
        finished = len(history) == epochs
        if keeper and not finished:
            keeper.save(history)
        if world.rank == 0:
            print(f"weights hash {checkpoint.weights_hash(model)}" if finished else f"left at step {history.steps}")
    return history


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Train one network on many ranks.")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=64, help="of all ranks together")
    parser.add_argument("--shards", type=int, help="parts of a batch; default one a rank")
    parser.add_argument("--checkpoints", default=os.environ.get("CHECKPOINTS"), help="a folder to go on from")
    parser.add_argument("--every", type=int, default=20, help="updates between two checkpoints")
    parser.add_argument("--optimizer", choices=("sgd", "adam"), default="sgd")
    main(**vars(parser.parse_args()))
