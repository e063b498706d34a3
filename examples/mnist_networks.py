"""The three customary MNIST networks, each trained by another optimiser, side by side.

python examples/mnist_networks.py [--epochs N] [--models NAME ...] [--data-dir FOLDER]

keras-cnn is the network of Keras' introductions, trained by Adam; lenet is LeNet-5, trained by SGD with momentum,
a clipped gradient and a cosine schedule; mnist-net is the network of PyTorch's MNIST example, with dropout, trained
by RMSprop with a rate that falls step by step. Without MNIST on disk: the digits that ship with the package.

Expect 98.3, 97.8 and 98.2 % of the test images after 10 epochs of the first 10,000 training images, more of 60,000.
"""

import argparse
import time

import minigrad
from minigrad import data, models, optim
from minigrad.train import Progress, fit


def adam(model, updates):
    return optim.Adam(model.parameters(), lr=1e-3), None, None


def momentum(model, updates):
    optimizer = optim.SGD(model.parameters(), lr=0.03, momentum=0.9)
    return optimizer, optim.lr_scheduler.CosineAnnealingLR(optimizer, updates), 1.0


def rmsprop(model, updates):
    optimizer = optim.RMSprop(model.parameters(), lr=5e-4)
    return optimizer, optim.lr_scheduler.StepLR(optimizer, max(1, updates // 3), gamma=0.3), None


NETWORKS = {"keras-cnn": adam, "lenet": momentum, "mnist-net": rmsprop}


def main(epochs=10, batch_size=64, names=tuple(NETWORKS), data_dir=None):
    """{network: history}"""
    if data.available("mnist", data_dir):
        train, test = data.mnist(data_dir, download=False)
    else:
        train, test = data.digits(size=28)
    print(f"{train.source}: {len(train)} training and {len(test)} test images")
    histories, rows = {}, []
    for name in names:
        minigrad.manual_seed(0)
        model = models.build(name, train.images.shape[1:])
        normalize = data.Normalize(train.mean, train.std) if models.MODELS[name].normalised else None
        loader = data.Loader(train, batch_size, shuffle=True, transform=normalize)
        optimizer, schedule, clip = NETWORKS[name](model, epochs * len(loader))
        options = {"schedule": schedule, "clip": clip, "callbacks": [Progress(len(train), epochs)]}
        begin = time.perf_counter()
        test_loader = data.Loader(test, 256, transform=normalize)
        histories[name] = history = fit(model, loader, optimizer, epochs, test=test_loader, **options)
        parameters = sum(parameter.numel() for parameter in model.parameters())
        accuracy, seconds = 100 * history[-1]["test_accuracy"], time.perf_counter() - begin
        rows.append(f"{name:<10} {parameters:>9,} parameters  test accuracy {accuracy:.2f} %  {seconds:.0f} s")
    print(*rows, sep="\n")
    return histories


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="The three customary MNIST networks side by side.")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--models", dest="names", nargs="+", choices=NETWORKS, default=tuple(NETWORKS))
    parser.add_argument("--data-dir", help="the folder with the files of MNIST")
    main(**vars(parser.parse_args()))
