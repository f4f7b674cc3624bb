#!/usr/bin/env python3
"""Write the logits that llama.cpp's heads for multi-token prediction compute for tiny models of ../models: NAME.mtp.f32.

    heads.py PROGRAM        a program around llama.cpp:

    PROGRAM head MODEL IDS OUT 1 --skip-first    writes OUT.mtp.f32, the head's logits for every id but the first,
                                                 little-endian f32, with an f32 cache and no flash attention
"""
import pathlib, subprocess, sys, tempfile

NAMES = ["deepseek2", "glm4moe", "nemotron_h_moe", "qwen3next_pairs"]
# The prompt of ../models/make.py.
IDS = [(i * 7919 + 13) % 300 for i in range(12)]


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = pathlib.Path(__file__).parent
    for name in NAMES:
        with tempfile.TemporaryDirectory() as out:
            model = folder.parent / "models" / f"{name}.gguf"
            command = [sys.argv[1], "head", model, ",".join(map(str, IDS)), f"{out}/y", "1", "--skip-first"]
            subprocess.run(command, check=True)
            (folder / f"{name}.mtp.f32").write_bytes(pathlib.Path(f"{out}/y.mtp.f32").read_bytes())


main()
