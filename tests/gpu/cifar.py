"""The documents' network: a ResNet with batch norm on CIFAR-10, beside PyTorch with the same recipe on the same GPU.

20 epochs, SGD with momentum 0.9 and weight decay 5e-4, images shifted by up to 4 pixels and flipped, in bfloat16 where
autocast says so, as one graph. The rows hold the curve: seconds of training and test accuracy after each epoch.
"""

from minigrad import data
from minigrad.data import available

from .race import Recipe, ours, theirs

RECIPE = Recipe(
    "resnet", "SGD", {"momentum": 0.9, "weight_decay": 5e-4}, epochs=20, batch=128, rate=0.1, padding=4, flip=True,
    precision="bfloat16",
)  # fmt: skip
CONTENDERS = {"minigrad, graph": ours, "torch graph": theirs}
WORSE = 0.02  # of the test images, that minigrad may know fewer than PyTorch: one seed each


def run(found):
    found["rows"] = rows = []
    folder = available("cifar10")
    if folder is None:
        found["why"] = "CIFAR-10 is not on disk: MINIGRAD_DATA names a folder with it"
        return
    parts = data.cifar10(folder, download=False)
    for name, contender in CONTENDERS.items():
        contender(parts, 0, RECIPE, epochs=1)  # so that kernels are compiled and chosen
        curve = contender(parts, 0, RECIPE)
        row = {"contender": name, "images": len(parts[0]), "test_images": len(parts[1]), "epochs": RECIPE.epochs}
        row |= {"precision": RECIPE.precision, "seconds": round(curve[-1][0], 2), "accuracy": curve[-1][1]}
        rows.append(row | {"curve": [(round(seconds, 2), accuracy) for seconds, accuracy in curve]})
        print(f"  {row}", flush=True)
    accuracies = [row["accuracy"] for row in rows]
    found["failed"] = accuracies[0] < accuracies[-1] - WORSE
