#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that NumPy and lockstep use each other's arrays where they are, by DLPack.

    check_dlpack.py LIBRARY

LIBRARY is dlpack_exchange, lockstep's side. Exits with 77 and a reason where numpy is missing or too
old for DLPack's versioned struct. Where torch can be imported and takes that, too, the same is done
with torch.
"""

import ctypes
import gc
import sys

SKIPPED = 77
UNUSED = b"dltensor_versioned"
USED = b"used_dltensor_versioned"

try:
    import numpy as np
except ImportError as error:
    print(f"skipped: {sys.executable}: {error}")
    sys.exit(SKIPPED)
if tuple(int(part) for part in np.__version__.split(".")[:2]) < (2, 1):
    print(f"skipped: numpy {np.__version__} knows no versioned DLPack, 2.1 does")
    sys.exit(SKIPPED)

python = ctypes.pythonapi
python.PyCapsule_New.restype = ctypes.py_object
python.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
python.PyCapsule_GetPointer.restype = ctypes.c_void_p
python.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
python.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]


def expect(condition, *message):
    if not condition:
        sys.exit("check_dlpack.py: " + " ".join(str(part) for part in message))


class Lockstep:
    """The functions of dlpack_exchange.cpp."""

    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        for name, result, arguments in (
            ("error", ctypes.c_char_p, []),
            ("numbers", ctypes.c_int, [ctypes.c_char_p, ctypes.c_int]),
            ("blob", ctypes.c_int, []),
            ("blobs", ctypes.c_int, []),
            ("export", ctypes.c_void_p, [ctypes.c_int]),
            ("delete", None, [ctypes.c_void_p]),
            ("import", ctypes.c_int, [ctypes.c_void_p, ctypes.c_int]),
            ("dtype", ctypes.c_char_p, [ctypes.c_int]),
            ("values", ctypes.c_int, [ctypes.c_int, ctypes.POINTER(ctypes.c_double)]),
            ("fill", ctypes.c_int, [ctypes.c_int, ctypes.c_double]),
            ("drop", None, [ctypes.c_int]),
        ):
            function = getattr(self.library, "exchange_" + name)
            function.restype = result
            function.argtypes = arguments

    def call(self, name, *arguments):
        result = getattr(self.library, "exchange_" + name)(*arguments)
        expect(result is not None and result != -1, name, "failed:", self.error())
        return result

    def error(self):
        return self.library.exchange_error().decode()


class Exported:
    """A tensor of lockstep's as Python's libraries ask for it."""

    def __init__(self, lockstep, place):
        self.lockstep = lockstep
        self.place = place

    def __dlpack_device__(self):
        return (1, 0)  # kDLCPU

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        expect(max_version is not None and max_version[0] >= 1, "asked for DLPack", max_version)
        return python.PyCapsule_New(self.lockstep.call("export", self.place), UNUSED, None)


def take(lockstep, array, copy=-1):
    """The place of a tensor on the memory of `array`."""
    capsule = array.__dlpack__(max_version=(1, 0))
    pointer = python.PyCapsule_GetPointer(capsule, UNUSED)
    place = lockstep.library.exchange_import(pointer, copy)
    if place >= 0:
        python.PyCapsule_SetName(capsule, USED)
    return place  # a capsule that was not used gives the array back by itself


def values_of(lockstep, place):
    values = (ctypes.c_double * 12)()
    count = lockstep.call("values", place, values)
    return list(values)[:count]


def check_export(lockstep, from_dlpack, to_numpy, dtypes):
    for name, dtype in dtypes.items():
        wanted = np.arange(12).reshape(3, 4).astype(dtype)
        for strided, expected in (0, wanted), (1, wanted[:, 1:3].T):
            place = lockstep.call("numbers", name.encode(), strided)
            array = from_dlpack(Exported(lockstep, place))
            found = to_numpy(array)
            expect(found.dtype == dtype, name, "came as", found.dtype)
            expect(np.array_equal(found, expected), name, "came as", found)
            lockstep.call("fill", place, 1)
            expect((to_numpy(array) == np.ones((), dtype)).all(), name, "was copied")
            lockstep.library.exchange_drop(place)
            expect((to_numpy(array) == np.ones((), dtype)).all(), name, "was freed too early")

    place = lockstep.call("blob")
    array = from_dlpack(Exported(lockstep, place))
    array[1] = 7
    expect(values_of(lockstep, place) == [1, 7, 3, 4], "a change was not seen")
    lockstep.library.exchange_drop(place)
    expect(lockstep.library.exchange_blobs() == 1, "memory in use was given back")
    del array
    gc.collect()
    expect(lockstep.library.exchange_blobs() == 0, "memory was not given back")


def check_import(lockstep, make, dtypes):
    for name, dtype in dtypes.items():
        array = make(np.arange(12).reshape(3, 4).astype(dtype))
        for part in array, array[:, 1:3], array[1:, ::2].T:
            before = sys.getrefcount(array)
            place = take(lockstep, part, copy=0)
            expect(place >= 0, name, "was refused:", lockstep.error())
            expect(lockstep.library.exchange_dtype(place).decode() == name, "expected", name)
            expected = [float(x) for x in np.asarray(part).reshape(-1)]
            expect(values_of(lockstep, place) == expected, name, "has other values")
            lockstep.library.exchange_drop(place)
            expect(sys.getrefcount(array) == before, name, "was not given back")
        place = take(lockstep, array, copy=0)
        lockstep.call("fill", place, 1)
        expect((np.asarray(array) == np.ones((), dtype)).all(), name, "was copied")
        lockstep.library.exchange_drop(place)


def check_refused(lockstep):
    for array, message in (
        (np.arange(3, dtype=np.int16), "got int16"),
        (np.zeros(3, dtype=np.complex64), "got complex64"),
        (np.arange(3.0)[::-1], "negative stride"),
    ):
        before = sys.getrefcount(array)
        expect(take(lockstep, array) == -1, array.dtype, "was not refused")
        expect(message in lockstep.error(), "expected", message, "got", lockstep.error())
        expect(sys.getrefcount(array) == before, array.dtype, "is still held")

    read_only = np.arange(3.0)
    read_only.flags.writeable = False
    expect(take(lockstep, read_only, copy=0) == -1, "read-only memory was shared")
    expect("read-only" in lockstep.error(), lockstep.error())
    place = take(lockstep, read_only)
    lockstep.call("fill", place, 9)
    expect(list(read_only) == [0, 1, 2], "read-only memory was written")
    lockstep.library.exchange_drop(place)


def check_torch(lockstep, torch, dtypes):
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    if version < (2, 9):
        print(f"torch: not tried: {torch.__version__} has no versioned DLPack")
        return
    check_export(lockstep, torch.from_dlpack, lambda tensor: tensor.numpy(), dtypes)
    for name, dtype in {**dtypes, "bf16": None}.items():
        tensor = torch.arange(12).reshape(3, 4)
        kind = torch.bfloat16 if dtype is None else torch.from_numpy(np.zeros(1, dtype)).dtype
        tensor = tensor.to(kind)
        for part in tensor, tensor[:, 1:3], tensor[1:, ::2].T:
            place = take(lockstep, part, copy=0)
            expect(place >= 0, name, "was refused:", lockstep.error())
            expect(lockstep.library.exchange_dtype(place).decode() == name, "expected", name)
            expected = [float(x) for x in part.reshape(-1)]
            expect(values_of(lockstep, place) == expected, name, "has other values")
            lockstep.library.exchange_drop(place)
        place = take(lockstep, tensor, copy=0)
        lockstep.call("fill", place, 1)
        expect(bool((tensor == 1).all()), name, "was copied")
        lockstep.library.exchange_drop(place)
    print(f"torch {torch.__version__} and lockstep use each other's memory")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    lockstep = Lockstep(sys.argv[1])
    dtypes = {
        "f32": np.dtype(np.float32),
        "f64": np.dtype(np.float64),
        "f16": np.dtype(np.float16),
        "i64": np.dtype(np.int64),
        "i32": np.dtype(np.int32),
        "u8": np.dtype(np.uint8),
        "bool": np.dtype(np.bool_),
    }
    check_export(lockstep, np.from_dlpack, np.asarray, dtypes)
    check_import(lockstep, np.asarray, dtypes)
    check_refused(lockstep)
    print(f"numpy {np.__version__} and lockstep use each other's memory")
    try:
        import torch
    except ImportError as error:
        print(f"torch: not tried: {error}")
    else:
        check_torch(lockstep, torch, dtypes)


if __name__ == "__main__":
    main()
