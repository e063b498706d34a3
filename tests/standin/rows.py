"""Rows for the tests of the stand-in: expressions that CuPy refuses, and others with what it gives.

a is a 2 x 3 array of float32, from 1 to 6; half is one of float16, i one of int64, flags one of bools, host NumPy's.
"""

import numpy as np

__all__ = ["GIVEN", "HOST", "REFUSED", "space"]

HOST = np.ones((2, 3), np.float32)


def space(machine):
    """What the expressions may use."""
    import cupy
    import cupyx

    a = cupy.asarray(HOST * [[1, 2, 3], [4, 5, 6]]).astype("f4")
    half, flags = cupy.asarray(HOST, np.float16), a > 2
    return dict(cupy=cupy, cupyx=cupyx, np=np, a=a, host=HOST, half=half, flags=flags, i=cupy.arange(3), m=machine)


HOSTS = "Unsupported type <class 'numpy.ndarray'>"
REFUSED = [
    # arrays of the host
    ("np.asarray(a)", TypeError, "Implicit conversion to a NumPy array is not allowed"),
    ("np.array([a, a])", TypeError, "Implicit conversion"),
    ("np.float32(a)", TypeError, "Implicit conversion"),
    ("a + host", TypeError, HOSTS),
    ("host + a", TypeError, HOSTS),
    ("np.add(a, host)", TypeError, HOSTS),
    ("np.add(host, host, out=a)", TypeError, HOSTS),
    ("cupy.maximum(a, host)", TypeError, HOSTS),
    ("cupy.maximum(a, None)", TypeError, "Unsupported type <class 'NoneType'>"),
    ("cupy.concatenate([a, host])", TypeError, HOSTS),
    ("cupy.where(flags, a, host)", TypeError, HOSTS),
    ("cupy.where(True, a, a)", AttributeError, "astype"),
    ("cupy.matmul(a.T, host)", TypeError, "Argument 'b' has incorrect type"),
    ("a.T @ host", TypeError, "Argument 'b' has incorrect type"),
    ("cupy.ascontiguousarray(host)", TypeError, "Argument 'a' has incorrect type"),
    ("cupy.copyto(a, host)", ValueError, "non-scalar numpy.ndarray cannot be used for copyto"),
    ("cupy.sum([1, 2])", TypeError, "wants an array of CuPy"),
    ("a.fill(host)", ValueError, "non-scalar numpy.ndarray cannot be used for fill"),
    ("a.fill(a)", ValueError, "non-scalar cupy.ndarray cannot be used for fill"),
    ("a.__setitem__(slice(None), host)", ValueError, "non-scalar numpy.ndarray"),
    ("a.set(a)", TypeError, "Only numpy.ndarray can be set"),
    ("a.set(np.ones((2, 3)))", TypeError, "float64 array cannot be set to float32 array"),
    ("a.T[:, 1:].set(host[:, :1])", ValueError, "Shape mismatch"),
    ("a[:, :2].set(host[:, :2])", RuntimeError, "Cannot set to non-contiguous array"),
    ("a.get(out=a)", TypeError, "Only numpy.ndarray can be obtained"),
    # names and arguments that it has not
    ("cupy.bogus", AttributeError, "module 'cupy' has no attribute 'bogus'"),
    ("cupy.float128", AttributeError, "float128"),
    ("cupy.errstate", AttributeError, "errstate"),
    ("cupy.cuda.OutOfMemoryError", AttributeError, "module 'cupy.cuda' has no attribute"),
    ("cupy.cuda.runtime.bogus", AttributeError, "module 'cupy_backends.cuda.api.runtime' has no attribute"),
    ("a.ctypes", AttributeError, "'ndarray' object has no attribute 'ctypes'"),
    ("a.__array_interface__", AttributeError, "__array_interface__"),
    ("a.tostring", AttributeError, "tostring"),
    ("setattr(a, 'label', 1)", AttributeError, "label"),
    ("a.flags.writeable", AttributeError, "'Flags' object has no attribute 'writeable'"),
    ("a.flags.aligned", AttributeError, "aligned"),
    ("a.flags['WRITEABLE']", KeyError, "WRITEABLE"),
    ("cupy.add(a, a, where=flags)", TypeError, "Wrong arguments"),
    ("cupy.add(a, a, order='C')", TypeError, "Wrong arguments"),
    ("np.add(a, a, where=True)", TypeError, "Wrong arguments"),
    ("cupy.add(a)", TypeError, "Wrong number of arguments"),
    ("cupy.sum(a, where=flags)", TypeError, "unexpected keyword argument 'where'"),
    ("np.sum(a, where=True)", TypeError, "unexpected keyword argument 'where'"),
    ("a.sum(where=flags)", TypeError, "unexpected keyword argument 'where'"),
    ("a.max(initial=0)", TypeError, "unexpected keyword argument 'initial'"),
    ("a.T.sort()", NotImplementedError, "Sorting non-contiguous array is not supported"),
    ("a.sort(kind='quicksort')", ValueError, "kind can only be None or 'stable'"),
    ("a.sort(order=1)", TypeError, "unexpected keyword argument 'order'"),
    ("a.astype('f8', casting='safe')", TypeError, "casting is not supported yet"),
    ("cupy.array(a, subok=True)", NotImplementedError, "^$"),
    ("cupy.maximum.reduce(a)", NotImplementedError, "reduce"),
    # types, shapes and values
    ("cupy.empty(3, object)", ValueError, "Unsupported dtype object"),
    ("a.astype('U1')", ValueError, "Unsupported dtype"),
    ("cupy.asarray(['x'])", ValueError, "Unsupported dtype"),
    ("-flags", TypeError, "Wrong type"),
    ("flags - flags", TypeError, "Wrong type"),
    ("cupy.bitwise_and(a, a)", TypeError, "Wrong type"),
    ("cupy.add(a, a, out=i)", ValueError, "Out shape is mismatched"),
    ("cupy.add(i, 0.5, out=i)", TypeError, "Cannot cast"),
    ("cupy.add(i, i, out=np.ones(3))", TypeError, "Output arguments type must be cupy.ndarray"),
    ("a.sum(0, out=i)", TypeError, "Cannot cast"),
    ("cupy.asarray(host, np.int8) + 300", OverflowError, "300"),
    ("a.__iadd__(cupy.ones((2, 2, 3)))", ValueError, "mismatch"),
    ("a.reshape(4)", ValueError, r"cannot reshape array of size 6 into shape \(4,\)"),
    ("bool(a)", ValueError, "truth value of an array with more than one element is ambiguous"),
    ("a.item()", ValueError, "only|size 1"),
    ("hash(a)", TypeError, "unhashable"),
    ("len(a.sum())", TypeError, "unsized"),
    ("a[5]", IndexError, "Index 5 is out of bounds for axis 0 with size 2"),
    ("a[0, 0, 0]", IndexError, "too many indices"),
    ("a[a]", IndexError, "integer or boolean type"),
    ("cupy.cuda.Device(2).use()", RuntimeError, "cudaErrorInvalidDevice"),
    ("cupy.cuda.get_elapsed_time(cupy.cuda.Event(), cupy.cuda.Event())", RuntimeError, "InvalidResourceHandle"),
    ("cupy.cuda.runtime.memcpy(a.data.ptr, a.data.ptr, 24, 1)", RuntimeError, "cudaErrorInvalidValue"),
    ("cupy.cuda.runtime.memcpy(a.data.ptr, a.data.ptr, 25, 3)", RuntimeError, "cudaErrorIllegalAddress"),
    ("cupy.cuda.runtime.deviceEnablePeerAccess(0)", RuntimeError, "cudaErrorInvalidDevice"),
    ("np.mgrid is cupy.mgrid", NotImplementedError, "mgrid"),
    ("cupy.fft.fft(a)", NotImplementedError, "cupy.fft"),
    # what CuPy has and the stand-in has not says so
    ("cupy.fuse", NotImplementedError, "cupy.fuse is one of CuPy's names, but is not modelled"),
]  # fmt: skip

GIVEN = [
    ("type(a).__module__, type(a).__name__", ("cupy", "ndarray")),
    ("np.float32(2) * a.sum() == 42", True),
    ("type(a.sum()) is cupy.ndarray and a.sum().shape", ()),
    ("type(a[1, 2]) is cupy.ndarray and a[1, 2].base is a", True),
    ("type(cupy.allclose(a, a)) is cupy.ndarray", True),
    ("type(a == a) is cupy.ndarray and (a == None).any().item()", False),
    ("(a.T + a.T).flags.c_contiguous", True),
    ("(a + a.astype('f4', order='F')).strides", (12, 4)),
    ("a.T.copy().flags.c_contiguous, cupy.copy(a.T).flags.f_contiguous", (True, True)),
    ("cupy.empty_like(a.T).strides", (4, 12)),
    ("cupy.zeros_like(cupy.ones((2, 3, 4)).transpose(1, 0, 2)).strides", (32, 96, 8)),
    ("a.T.sum(0, keepdims=True).flags.c_contiguous", True),
    ("a.T.base is a, a.T.T.base is a, a.base", (True, True, None)),
    ("a.T.flags.owndata, a.flags.forc, a.T.flags.fnc", (False, True, True)),
    ("a.data.ptr + 4 == a[:, 1:].data.ptr == (a.data + 4).ptr", True),
    ("cupy.empty((0, 3)).data.ptr", 0),
    ("cupy.ndarray((3,), 'f4', a.data + 4, (4,)).get().tolist()", [2, 3, 4]),
    ("i[cupy.asarray([1, 5, -1])].tolist()", [1, 2, 2]),
    ("i[[0, 7]].tolist(), i[np.array([2])].tolist()", ([0, 1], [2])),
    ("a[flags].tolist(), a[:, i > 1].tolist()", ([3, 4, 5, 6], [[3], [6]])),
    ("i.take(cupy.asarray([4])).tolist()", [1]),
    ("str((half + 1.5).dtype), str((i + 1.5).dtype), str((half * a).dtype)", ("float16", "float64", "float32")),
    ("str((a > 2).sum().dtype), str(half.sum().dtype), str(i.mean().dtype)", ("int64", "float16", "float64")),
    ("str((flags * flags).dtype), str(cupy.sqrt(i).dtype), str((i / i).dtype)", ("bool", "float64", "float64")),
    ("np.exp(a[0, :1] * 0).tolist(), np.concatenate([a, a]).shape", ([1], (4, 3))),
    ("cupy.argmax(a, 1, dtype='i4').dtype.name, cupy.flip(a, axis=0).tolist()[0]", ("int32", [4, 5, 6])),
    ("cupy.reshape(a, newshape=(3, 2)).shape", (3, 2)),
    ("cupy.from_dlpack(a).data.ptr == a.data.ptr, a.__dlpack_device__()", (True, (2, 0))),
    ("cupy.newaxis is None and cupy.inf == np.inf and cupy.float32 is np.float32", True),
    ("cupy.lib.stride_tricks.sliding_window_view(i, 2).tolist()", [[0, 1], [1, 2]]),
    ("cupy.lib.stride_tricks.sliding_window_view(i, 2).base is i", True),
    ("[type(part).__module__ for part in cupy.linalg.qr(a)]", ["cupy", "cupy"]),
    ("cupy.vdot(a, a).item(), cupy.shares_memory(a, a.T)", (91, True)),
    ("a.astype('f4', copy=False) is a, cupy.ascontiguousarray(a) is a, cupy.asarray(a) is a", (True, True, True)),
    ("a.T.astype('f4').flags.f_contiguous, a.T.astype('f8', 'C').flags.c_contiguous", (True, True)),
    ("cupy.get_array_module(a) is cupy, cupy.get_array_module(host) is np", (True, True)),
    ("np.isnan(cupy.empty(5, 'f4').get()).all().item()", True),
    ("cupy.cuda.Device(0) == a.device, int(a.device), a.data.device_id", (True, 0, 0)),
    ("sorted(a.__cuda_array_interface__)", ["data", "descr", "shape", "stream", "strides", "typestr", "version"]),
    ("cupy.cuda.runtime.getDeviceCount(), cupy.cuda.Device().compute_capability", (2, "90")),
    ("cupyx.rsqrt(cupy.asarray([4.0])).tolist()", [0.5]),
]  # fmt: skip
