"""Where each hyper-parameter stands in the float64 array that an update reads. Switches are 0 or 1.

What a device changes by itself from step to step, STEP or FIRST, stands last: all before it can be sent anew without
touching it.
"""

from enum import IntEnum

__all__ = ["Adagrad", "Adam", "RMSprop", "SGD"]


class Adagrad(IntEnum):
    RATE = 0  # of the first update
    LR_DECAY = 1
    EPS = 2
    WEIGHT_DECAY = 3
    MAXIMIZE = 4  # switch
    STEP = 5  # of this update, counted from 1


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
    DECOUPLED = 5  # switch: the weight decay of AdamW
    MAXIMIZE = 6  # switch
    STEP = 7  # of this update, counted from 1


class RMSprop(IntEnum):
    RATE = 0
    ALPHA = 1
    EPS = 2
    WEIGHT_DECAY = 3
    MOMENTUM = 4
    MAXIMIZE = 5  # switch
    STEP = 6  # of this update, counted from 1; the rule does not depend on it
