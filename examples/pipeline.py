"""Cut a network into stages, one a rank, and let the microbatches of a batch follow one another through them.

python examples/pipeline.py
minigrad launch -n 2 examples/pipeline.py --schedule gpipe
mpiexec -n 4 python examples/pipeline.py

Gradients have the bits of the network in one piece that takes the same microbatches in turn, so all commands print
the same hash of the weights. Under 1f1b a stage keeps at most as many microbatches as stages are left to it, under
gpipe all of them. Of m microbatches through n stages each stage works m / (m + n - 1) of the time. Three epochs read 9
digits of 10.
"""

import argparse

import minigrad
from minigrad import checkpoint, data, nn, optim, parallel


def network():
    """A convolutional network for 8x8 digits; what it does in one piece, its stages do in turn."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def main(epochs=3, batch_size=64, microbatches=8, schedule="1f1b", world=None):
    world = parallel.init() if world is None else world
    minigrad.manual_seed(0)
    train, test = data.digits()
    pipe = parallel.Pipeline(network(), world, microbatches, schedule)
    optimizer = optim.SGD(pipe.parameters(), lr=0.05, momentum=0.9)
    loader = data.Loader(train, batch_size, shuffle=True, drop_last=True)
    for epoch in range(epochs):
        losses = []
        for images, labels in loader:
            optimizer.zero_grad()
            losses.append(pipe.train_step(images, labels))
            optimizer.step()
        right = sum((pipe(images).argmax(1) == labels).sum().item() for images, labels in data.Loader(test, 256))
        if world.rank == 0:
            mean, accuracy = sum(losses) / len(losses), 100 * right / len(test)
            print(f"epoch {epoch + 1}: loss {mean:.4f}, test accuracy {accuracy:.2f} %")
    rows = world.all_gather_object(f"stage {pipe.stage}: {len(pipe.module)} layers, kept {pipe.peak}")
    whole = network()
    whole.load_state_dict(pipe.state_dict())
    weights = checkpoint.weights_hash(whole)
    if world.rank == 0:
        print(*(row + " microbatches at most" for row in rows), f"weights hash {weights}", sep="\n")
    return weights


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Train a network in stages.")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--microbatches", type=int, default=8)
    parser.add_argument("--schedule", choices=("1f1b", "gpipe"), default="1f1b")
    main(**vars(parser.parse_args()))
