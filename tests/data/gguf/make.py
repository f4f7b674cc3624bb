"""Writes the files that tests/it/gguf/ reads, with gguf-py (PyPI `gguf` 0.19), an independent writer of the format.

    python3 make.py        # into this folder

everything.gguf       every type of metadata value, alone and in an array, and tensors of several types
part-0000?-of-00003   the same tensors, split into three files
types.txt             number, name, weights and bytes of a block of every tensor type that gguf-py knows
"""

import os

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFValueType, GGUFWriter
from gguf.quants import quantize

V = GGUFValueType

SCALARS = [
    ("u8", V.UINT8, 255), ("i8", V.INT8, -128), ("u16", V.UINT16, 65535), ("i16", V.INT16, -32768),
    ("u32", V.UINT32, 2**32 - 1), ("i32", V.INT32, -2**31), ("f32", V.FLOAT32, 0.1), ("bool", V.BOOL, True),
    ("string", V.STRING, "Grüße, 世界 🦊"), ("u64", V.UINT64, 2**64 - 1), ("i64", V.INT64, -2**63), ("f64", V.FLOAT64, 0.1),
]
ARRAYS = [
    ("u8", V.UINT8, [0, 1, 255]), ("i8", V.INT8, [-128, 127]), ("u16", V.UINT16, [65535, 1]), ("i16", V.INT16, [-32768]),
    ("u32", V.UINT32, [1, 2**32 - 1]), ("i32", V.INT32, [-2**31, 7]), ("f32", V.FLOAT32, [0.5, -1e-30]),
    ("bool", V.BOOL, [True, False, True]), ("string", V.STRING, ["", "a", "Ġfox"]), ("u64", V.UINT64, [2**64 - 1]),
    ("i64", V.INT64, [-2**63, 0]), ("f64", V.FLOAT64, [1e300]), ("array", V.ARRAY, [[[1, 2], [3]], [[4]]]),
]


def add_tensors(writer):
    writer.add_tensor("matrix.f32", np.arange(6, dtype=np.float32).reshape(2, 3))
    writer.add_tensor("vector.f16", np.array([0.5, -2.0, 65504.0], dtype=np.float16))
    writer.add_tensor("cube.i32", np.arange(24, dtype=np.int32).reshape(2, 3, 4))
    q8_0 = quantize(np.full((2, 32), 127.0, dtype=np.float32), GGMLQuantizationType.Q8_0)
    writer.add_tensor("matrix.q8_0", q8_0, raw_dtype=GGMLQuantizationType.Q8_0)
    iq2_xxs = np.zeros((1, 66), dtype=np.uint8)
    writer.add_tensor("listed.iq2_xxs", iq2_xxs, raw_dtype=GGMLQuantizationType.IQ2_XXS)


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    folder = os.path.dirname(os.path.abspath(__file__))
    writer = GGUFWriter(os.path.join(folder, "everything.gguf"), "qwen3")
    writer.add_custom_alignment(64)
    for name, kind, value in SCALARS:
        writer.add_key_value(f"one.{name}", value, kind)
    for name, kind, values in ARRAYS:
        writer.add_key_value(f"many.{name}", values, V.ARRAY, sub_type=kind)
    add_tensors(writer)
    finish(writer)

    writer = GGUFWriter(os.path.join(folder, "part.gguf"), "qwen3", split_max_tensors=2)
    add_tensors(writer)
    finish(writer)

    with open(os.path.join(folder, "types.txt"), "w") as types:
        for kind, (weights, size) in sorted(GGML_QUANT_SIZES.items()):
            types.write(f"{int(kind)} {kind.name} {weights} {size}\n")


main()
