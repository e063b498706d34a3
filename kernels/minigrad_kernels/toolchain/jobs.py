from .product import *  # noqa: F403
