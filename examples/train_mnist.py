"""Train a small convolutional network on handwritten digits.

python examples/train_mnist.py [--data-dir FOLDER] [--epochs N]

It takes MNIST where its files are on disk, else the 1,797 smaller digits that come with the package.
"""

import argparse

import minigrad
from minigrad import data, nn, optim
from minigrad.train import Progress, fit


def main(epochs=5, batch_size=64, data_dir=None):
    minigrad.manual_seed(0)
    if data.available("mnist", data_dir):
        train, test = data.mnist(data_dir, download=False)
    else:
        train, test = data.digits(size=28)
    print(train.source)

    model = nn.Sequential(
        nn.Conv2d(1, 32, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 5 * 5, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )
    print(nn.summary(model, (1, 1, 28, 28)))

    loader = data.Loader(train, batch_size, shuffle=True)
    optimizer = optim.Adam(model.parameters(), lr=3e-3)
    schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * len(loader))
    progress = Progress(len(train), epochs)
    history = fit(
        model,
        loader,
        optimizer,
        epochs,
        test=data.Loader(test, 256),
        schedule=schedule,
        callbacks=[progress],
    )
    print(f"test accuracy {100 * history[-1]['test_accuracy']:.2f} %")
    return history


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Train a small convolutional network on handwritten digits.")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--data-dir", help="the folder with the files of MNIST")
    main(**vars(parser.parse_args()))
