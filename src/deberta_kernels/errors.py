"""The error of this package."""


class KernelError(ValueError):
    """The kernels cannot do what was asked; the sentence says what to do instead."""
