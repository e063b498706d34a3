"""Train a residual network with batch norm on CIFAR-10.

python examples/train_cifar10_resnet.py --data-dir FOLDER [--epochs N] [--device cuda]

ResNet-18 for 32 x 32 images: 11 million parameters, batch norm after every convolution. SGD with momentum 0.9 and
weight decay 5e-4, a rate that rises and falls once (OneCycleLR), images shifted by up to 4 pixels and flipped. Weight
decay shrinks the weights of convolutions and of the last layer, and leaves batch norm and biases alone.

Expect hours on the cores of a laptop: the README's figures have the time of a step of 64 images, and an epoch of 50,000
images is as long as 782 of them. --limit makes it shorter. The folder holds cifar-10-binary.tar.gz, which
`minigrad train --data cifar10` downloads.
"""

import argparse

import minigrad
from minigrad import data, models, nn, optim
from minigrad.train import Progress, fit


def decayed(model, weight_decay):
    """Two groups of parameters: filters and matrices, which decay, and vectors, which do not."""
    parameters = list(model.parameters())
    return [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim == 1], "weight_decay": 0.0},
    ]


def main(epochs=30, batch_size=128, lr=0.1, data_dir=None, limit=None, device="cpu", model=None):
    minigrad.manual_seed(0)
    train, test = data.cifar10(data_dir, download=False)
    if limit:
        train, test = train.subset(range(limit)), test.subset(range(min(limit, len(test))))
    print(f"{train.source}: {len(train)} training and {len(test)} test images")
    model = (models.resnet18() if model is None else model).to(device)
    print(nn.summary(model, (1, 3, 32, 32)))

    normalize = data.Normalize(train.mean, train.std)
    augment = data.Compose([data.PadCrop(4), data.Flip(), normalize])
    loader = data.Loader(train, batch_size, shuffle=True, drop_last=True, transform=augment, device=device)
    optimizer = optim.SGD(decayed(model, 5e-4), lr=lr, momentum=0.9, nesterov=True)
    schedule = optim.lr_scheduler.OneCycleLR(optimizer, lr, epochs * len(loader))
    test_loader = data.Loader(test, min(256, len(test)), transform=normalize, device=device)
    options = {"schedule": schedule, "callbacks": [Progress(len(train), epochs)]}
    history = fit(model, loader, optimizer, epochs, test=test_loader, **options)
    print(f"test accuracy {100 * history[-1]['test_accuracy']:.2f} %")
    return history


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Train a residual network on CIFAR-10.")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--lr", type=float, default=0.1, help="highest rate of the schedule")
    parser.add_argument("--data-dir", help="the folder with cifar-10-binary.tar.gz")
    parser.add_argument("--limit", type=int, help="use the first N images")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1, ...")
    main(**vars(parser.parse_args()))
