# SPDX-License-Identifier: Apache-2.0
"""What lockstep's programs of `compare` save, for peers to be checked with: are they the same networks?"""

import json

import numpy

DTYPES = {"F32": numpy.float32, "I64": numpy.int64}


def read(path):
    """The tensors of a safetensors file by name."""
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = file.read()
    tensors = {}
    for name, what in header.items():
        if name != "__metadata__":
            begin, end = what["data_offsets"]
            tensors[name] = numpy.frombuffer(data[begin:end], DTYPES[what["dtype"]]).reshape(what["shape"]).copy()
    return tensors


def below(tensors, prefix):
    """Those whose names begin so, by the rest of their names."""
    return {name[len(prefix) :]: tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def must_agree(what, theirs, ours, most=1e-4):
    """Differences are measured by the greatest number of ours, and may be those of f32's rounding."""
    theirs, ours = numpy.asarray(theirs), numpy.asarray(ours)
    if theirs.shape != ours.shape:
        raise SystemExit(f"{what}: of shape {theirs.shape}, not {ours.shape} as lockstep's")
    difference = numpy.abs(theirs - ours).max() / max(numpy.abs(ours).max(), 1e-30)
    if not difference <= most:
        raise SystemExit(f"{what}: {difference:.2g} from lockstep's")
