"""The choices of the command, and what options become that are left out."""

__all__ = ["BY_DATA", "BY_MODEL", "DEFAULTS", "DEFAULT_MODEL", "MOMENTUM", "OPTIMIZERS", "RATES", "SCHEDULES"]

OPTIMIZERS = ("adam", "adamw", "sgd", "rmsprop", "adagrad")
SCHEDULES = ("none", "cosine", "onecycle", "step", "restore")
DEFAULT_MODEL = {"digits": "digits-cnn", "mnist": "keras-cnn", "cifar10": "resnet"}
DEFAULTS = {
    "optimizer": "adam",
    "lr": 3e-3,
    "schedule": "cosine",
    "weight_decay": 0.0,
    "augment": False,
    "accumulate": 1,
    "clip": None,
    "precision": "float32",
    "eager": False,
    "seed": 0,
    "device": "cpu",
}
BY_DATA = {
    "digits": {"epochs": 20, "batch_size": 32, "augment": True},
    "mnist": {"epochs": 10, "batch_size": 64},
    "cifar10": {"epochs": 30, "batch_size": 128, "augment": True},
}
BY_MODEL = {"resnet": {"optimizer": "sgd", "lr": 0.1, "schedule": "onecycle", "weight_decay": 5e-4}}
RATES = {
    "adam": 3e-3,
    "adamw": 3e-3,
    "rmsprop": 1e-3,
    "adagrad": 0.01,
    "sgd": 0.03,
}  # of an optimiser that is not the default
MOMENTUM = 0.9  # of SGD, in Nesterov's form
