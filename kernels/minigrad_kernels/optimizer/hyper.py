"""Where each hyper-parameter stands in the float64 array that an update reads. Switches are 0 or 1."""

from enum import IntEnum

__all__ = ["Adagrad", "Adam", "RMSprop", "SGD"]


class Adagrad(IntEnum):
    RATE = 0  # of the first update
    LR_DECAY = 1
    EPS = 2
    WEIGHT_DECAY = 3
    STEP = 4  # of this update, counted from 1
    MAXIMIZE = 5  # switch


class SGD(IntEnum):
    RATE = 0
    MOMENTUM = 1
    DAMPENING = 2
    WEIGHT_DECAY = 3
    NESTEROV = 4  # switch
    MAXIMIZE = 5  # switch
    FIRST = 6  # switch: the momentum buffers have no value yet and begin as the gradients


class Adam(IntEnum):
    RATE = 0
    BETA1 = 1
    BETA2 = 2
    EPS = 3
    WEIGHT_DECAY = 4
    STEP = 5  # of this update, counted from 1
    DECOUPLED = 6  # switch: the weight decay of AdamW
    MAXIMIZE = 7  # switch


class RMSprop(IntEnum):
    RATE = 0
    ALPHA = 1
    EPS = 2
    WEIGHT_DECAY = 3
    MOMENTUM = 4
    MAXIMIZE = 5  # switch
