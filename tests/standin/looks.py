"""What arrays say of themselves without any work on a device: expressions that the real CuPy answers on any machine.

Their outcomes on the real one are kept in names.json; the stand-in must give the same.
"""

__all__ = ["EXPRESSIONS", "outcomes"]

# N makes an array of float32 on some memory, which begins at P.
EXPRESSIONS = """
N((2, 3)).strides
N((2, 3)).T.strides
N((3, 0)).strides
N((2, 0, 4)).strides
N((0, 3)).T.strides
N((0, 3), (4, 0)).strides
N((0, 3)).reshape(3, 0).strides
N((2, 1, 3)).strides
N((1, 3), (400, 4)).flags.f_contiguous, N((1, 3), (400, 4)).flags.c_contiguous
N((4,), (0,)).flags.c_contiguous, N((0, 3)).flags.f_contiguous
N((2, 3)).flags.forc, N((2, 3)).flags.fnc, N((2, 3)).T.flags.fnc
str(N((2, 3)).T.flags)
N((2, 3)).flags['WRITEABLE']
N((2, 3)).flags.writeable
N((2, 3)).T.base is None, N((2, 3)).base is None
N((2, 3))[::-1].strides, N((2, 3))[::-1].data.ptr - P
N((2, 3))[0:1].strides
N((2, 3))[0:0].strides
N((2, 3))[:, 1:1].strides
N((2, 3))[..., 0].shape
N((2, 3))[1, 2].shape, N((2, 3))[1, 2].data.ptr - P
N((2, 3))[1, ...].shape
N((2, 3))[-1, 1:].data.ptr - P
N((2, 3))[5]
N((2, 3))[0, 0, 0]
N((2, 3)).transpose([]).shape, N((1,)).transpose([]).shape
N((2, 3)).transpose(-1, 0).shape
N((2, 3)).transpose(None).strides
N((2, 3)).transpose(np.array([1, 0])).shape
N((2, 3)).transpose([0])
N((2, 3)).transpose(0)
N((2, 3)).transpose((0, 0))
N((2, 3)).swapaxes(0, 1).strides
N((2, 3)).swapaxes(0, 2)
N(()).T.shape, N(()).ravel().shape, N(()).reshape(1).shape, N(()).reshape(()).shape
N((2, 3)).reshape(1, 2, 3).strides
N((2, 3)).reshape(2, 1, 3).strides
N((2, 3)).reshape([3, 2]).shape
N((2, 3)).reshape(4)
N((2, 3)).reshape(7, -1)
N((2, 3)).reshape(-1, -1)
N((2, 3)).view('i2').shape
N((2, 3)).view('f8')
N((2, 3)).T.view('i4').strides
N((2, 3)).T.view('i2')
N((1, 3, 1)).squeeze().shape
N((1, 3)).squeeze(1)
N((2, 3)).mT.shape
N((2, 3)).diagonal().strides
N((2, 3)).ravel().base is None
N((2, 3)).astype('f4', copy=False).base is None
N((2, 3)).astype('f8', casting='safe')
N((2, 3)).astype(object)
N((2, 3)).real.base is None
N((2, 3)).nbytes, N((2, 3)).itemsize, N((2, 3)).size, N((2, 3)).ndim, len(N((2, 3)))
len(N(()))
iter(N(()))
hash(N((2, 3)))
bool(N((2, 3)))
N((2, 3)).item()
N((2, 3)).ctypes
N((2, 3)).__array_interface__
N((2, 3)).__array_priority__
N((2, 3)).data.device_id, int(N((2, 3)).device)
N((2, 3)).sum(where=1)
N((2, 3)).max(initial=0)
N((2, 3)).sort(order=1)
N((2, 3)).fill(N((2, 3)))
N((2, 3)).fill(np.ones(3))
N((2, 3)).fill([1])
N((2, 3)).__setitem__(slice(None), np.ones((2, 3)))
N((2, 3)).set(1)
N((2, 3)).set(np.ones((2, 3)))
N((2, 3)) @ np.ones((3, 2))
N((2, 3)).dot(np.ones(3))
N((2, 3)).label
np.asarray(N((2, 3)))
np.array([N((2, 3))])
np.shape(N((2, 3))), np.ndim(N((2, 3))), np.size(N((2, 3)))
np.sum(N((2, 3)), where=True)
cupy.add(1, 2, order='C')
cupy.add(1, 2, where=True)
cupy.add(1)
cupy.sum(N((2, 3)), where=1)
cupy.bogus
cupy.float128
cupy.errstate
cupy.cuda.OutOfMemoryError
cupy.cuda.runtime.bogus
cupy.empty(3, object)
cupy.array(N((2, 3)), subok=True)
cupy.copyto(N((2, 3)), np.ones((2, 3)))
cupy.copyto(N((2, 3)), [1])
cupy.matmul(N((2, 3)), np.ones((3, 2)))
cupy.where(True, N((2, 3)), 1)
cupy.ascontiguousarray(np.ones(3))
cupy.ascontiguousarray(N(())).shape
cupy.ascontiguousarray(N((2, 3))).base is None
cupy.broadcast_to(N((2, 3)), (4, 2, 3)).strides
cupy.broadcast_to(N((2, 3)), (3, 2))
cupy.broadcast_to(np.ones(3), (2, 3))
cupy.broadcast_arrays(N((2, 1)), N((3,)))[0].strides
cupy.broadcast_shapes((1, 2), (3, 1))
cupy.squeeze(N((1, 3, 1))).shape
cupy.expand_dims(N((2, 3)), (0, 3)).shape
cupy.moveaxis(N((2, 3)), 0, -1).shape
cupy.flip(N((2, 3)), 1).strides
cupy.rot90(N((2, 3))).strides
cupy.split(N((6,)), [2, 4])[1].data.ptr - P
cupy.split(N((2, 3)), 3, 1)[0].strides
cupy.array_split(N((6,)), 4)[0].shape
cupy.reshape(N((2, 3)), (3, 2)).base is None
cupy.result_type(N((2,)), np.float64), cupy.result_type(N((2,)), 2.5), cupy.promote_types('f4', 'f8')
cupy.can_cast(N((2,)), 'i4'), cupy.issubdtype(N((2,)).dtype, cupy.floating)
cupy.get_array_module(N((2,))) is cupy
cupy.asnumpy(np.ones(2)).tolist(), cupy.asnumpy(3).tolist()
cupy.iscomplexobj(N((2,))), cupy.ndim(N((2,))), cupy.shape(N((2,))), cupy.size(N((2,))), cupy.isscalar(3)
cupy.ndarray((2,), object)
cupy.ndarray((2, -1), 'f4')
""".strip().splitlines()


def outcomes(cupy, pointer, expressions=EXPRESSIONS):
    """{expression: what it gives, as text; for errors the name of the built-in one}"""
    import numpy as np

    make = lambda shape, strides=None: cupy.ndarray(shape, "f4", pointer, strides)
    space, found = {"cupy": cupy, "np": np, "N": make, "P": pointer.ptr}, {}
    for expression in expressions:
        try:
            found[expression] = repr(eval(expression, space))
        except Exception as error:
            kinds = [kind for kind in type(error).__mro__ if kind.__module__ == "builtins"]
            found[expression] = kinds[0].__name__
    return found
