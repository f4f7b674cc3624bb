#!/usr/bin/env python3
"""Make the tiny models of this folder from their configs, and what llama.cpp computes with them.

    make.py MAKE_TINY PEER        needs numpy and gguf (both on PyPI)

MAKE_TINY is the script `models/make_tiny.py` and PEER the built `peer` (llama.cpp behind one command line) of the
folder `shared` that lies beside the project. Writes NAME.gguf and NAME.expected for each NAME.json, whose `keys` are
metadata that MAKE_TINY does not know, and which may have its matrices `joined` and `rope_factors` for contexts of two kinds.
llama.cpp is asked with a context of 8192. NAME.expected holds `key: comma-separated numbers`, one a line, all with an f32
cache and no flash attention:

    prompt         70 ids, so that the continuation crosses a page of the cache
    greedy         the 40 most probable ids after it, each fed back
    gaps           by how much each of them led the second best logit
    prompt_logits  the logits after the prompt
    end_logits     the logits after the prompt and the 40 ids

Those that transformers has are then written anew by ../checkpoints/make.py, with its own logits beside these.
"""
import importlib.util, json, pathlib, subprocess, sys, tempfile
import numpy as np

PROMPT = [(i * 7919 + 13) % 300 for i in range(70)]


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    make_tiny, peer = sys.argv[1:]
    for config in sorted(pathlib.Path(__file__).parent.glob("*.json")):
        model = config.with_suffix(".gguf")
        write(make_tiny, config, model)
        prompt = join(PROMPT)
        command = [peer, "generate", model, prompt, "40", "--exact", "--gaps"]
        greedy, gaps = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
        lines = {
            "prompt": prompt,
            "greedy": greedy,
            "gaps": gaps,
            "prompt_logits": logits(peer, model, prompt),
            "end_logits": logits(peer, model, f"{prompt},{greedy}"),
        }
        config.with_suffix(".expected").write_text("".join(f"{k}: {v}\n" for k, v in lines.items()))


def write(make_tiny, config, model):
    spec = importlib.util.spec_from_file_location("make_tiny", make_tiny)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    known = module.add_metadata

    def add_metadata(writer, config):
        known(writer, config)
        for key, value in config.get("keys", {}).items():
            add = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32}[type(value)]
            add(f"{config['arch']}.{key}", value)

    module.add_metadata = add_metadata
    tiny, separate = json.loads(config.read_text()), module.tensors
    if tiny.get("joined"):
        factors = [(f"rope_factors_{kind}.weight", np.array(row, np.float32), False)
                   for kind, row in tiny.get("rope_factors", {}).items()]
        module.tensors = lambda config, seed: [*joined(separate(config, seed)), *factors]
    sys.argv = [make_tiny, str(config), str(model)]
    module.main()


def joined(tensors):
    """Queries, keys and values in one tensor, and gate and up."""
    groups = {"attn_q": "attn_qkv", "attn_k": "attn_qkv", "attn_v": "attn_qkv", "ffn_gate": "ffn_up", "ffn_up": "ffn_up"}
    found = {}
    for name, x, matrix in tensors:
        layer, _, part = name.rpartition(".")[0].rpartition(".")
        found.setdefault(name.replace(part, groups.get(part, part)) if part else name, []).append((x, matrix))
    for name, parts in found.items():
        yield name, np.concatenate([x for x, _ in parts]), parts[0][1]


def logits(peer, model, ids):
    with tempfile.NamedTemporaryFile() as out:
        subprocess.run([peer, "logits", model, ids, out.name, "--exact"], check=True)
        return join(np.fromfile(out.name, "<f4"))


def join(numbers):
    return ",".join(str(n) for n in numbers)


if __name__ == "__main__":
    main()
