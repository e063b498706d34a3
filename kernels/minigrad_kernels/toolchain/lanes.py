from .pooling import *  # noqa: F403
