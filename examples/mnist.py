"""MNIST in 40 lines, with the training loop written out. Without MNIST on disk: the digits that ship with the package.

python examples/mnist.py [EPOCHS] [FOLDER WITH MNIST]

The loss falls in every epoch. 5 epochs of 10,000 images of MNIST reach 97.8 %, of the 1,438 digits 94 %.
"""

import sys

import minigrad
from minigrad import data, nn, optim


def main(epochs=5, folder=None):
    minigrad.manual_seed(0)
    found = data.available("mnist", folder)
    train, test = data.mnist(folder, download=False) if found else data.digits(size=28)
    model = nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64 * 5 * 5, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip
    optimizer, batches = optim.Adam(model.parameters(), lr=1e-3), data.Loader(train, 64, shuffle=True)
    print(f"{train.source}: {len(train)} images, {sum(p.numel() for p in model.parameters()):,} parameters")
    for epoch in range(epochs):
        total = 0.0
        for images, labels in batches:
            loss = nn.functional.cross_entropy(model(images), labels)  # forward, on the tape
            optimizer.zero_grad()
            loss.backward()  # dL/dw of every parameter, by the chain rule
            optimizer.step()
            total += loss.item() * len(labels)
        with minigrad.no_grad():
            right = sum((model(x).argmax(1) == y).sum().item() for x, y in data.Loader(test, 256))
        print(f"epoch {epoch + 1}: loss {total / len(train):.4f}, test accuracy {100 * right / len(test):.2f} %")
    return right / len(test)


if __name__ == "__main__":
    main(*(int(word) if word.isdigit() else word for word in sys.argv[1:]))
