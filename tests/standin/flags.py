"""What CuPy says about the layout of an array, and no more."""

__all__ = ["Flags"]


class Flags:
    def __init__(self, array):
        self.c_contiguous, self.f_contiguous = array._x.flags.c_contiguous, array._x.flags.f_contiguous
        self.owndata = array.base is None

    forc = property(lambda self: self.c_contiguous or self.f_contiguous)
    fnc = property(lambda self: self.f_contiguous and not self.c_contiguous)

    def _all(self):
        return {"C_CONTIGUOUS": self.c_contiguous, "F_CONTIGUOUS": self.f_contiguous, "OWNDATA": self.owndata}

    def __getitem__(self, name):
        if name not in self._all():
            raise KeyError(f"{name} is not defined for cupy.ndarray.flags")
        return self._all()[name]

    def __repr__(self):
        return "\n".join(f"  {name} : {value}" for name, value in self._all().items())
