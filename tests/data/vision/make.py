#!/usr/bin/env python3
"""Write tiny random checkpoints with vision encoders, and what transformers computes with them in double precision.

    make.py [NAME ...]        needs numpy, Pillow, torch and transformers (all on PyPI)

For each model of `MODELS` a folder NAME, saved by transformers itself: `config.json`, `model.safetensors` (BF16), the
files of the tokenizer, and the settings of the image processor, in `preprocessor_config.json` as published checkpoints
have them or in `processor_config.json` as transformers 5 writes them. Beside them `info.json` (the prompt, with
`<__media__>` in the place of each image; the images of this folder; the ids that the prompt becomes; the most probable
ids after it and the least lead of one over the second), and as little-endian f32 `transformers.embd.f32` (the rows of
all images, one after the other) and `transformers.logits.f32` (after the prompt).

transformers' image processors (those that use Pillow) make the pixels, and the model is loaded from the folder.
"""
import json, pathlib, sys, zlib
import numpy as np, torch, transformers as T
from PIL import Image
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from torch.overrides import TorchFunctionMode

HERE = pathlib.Path(__file__).parent
GREEDY = 8
TEXT = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
            max_position_embeddings=1024, rms_norm_eps=1e-6, tie_word_embeddings=True)
QWEN = dict(depth=3, hidden_size=24, num_heads=2, patch_size=4, intermediate_size=40, out_hidden_size=32)
SIGLIP = dict(hidden_size=32, intermediate_size=40, num_hidden_layers=2, num_attention_heads=2, patch_size=4)
MROPE = dict(rope_type="default", rope_theta=1e4, mrope_section=[2, 3, 3])
INTERLEAVED = dict(rope_type="default", rope_theta=1e4, mrope_section=[3, 3, 2], mrope_interleaved=True)
MARKS = {
    "qwen": ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"],
    "gemma3": ["<start_of_image>", "<end_of_image>", "<image_soft_token>"],
    "gemma4": ["<|image>", "<image|>", "<|image|>"],
    "idefics3": ["<fake_token_around_image>", "<global-img>", "<image>", "\n\n"]
    + [f"<row_{r}_col_{c}>" for r in (1, 2, 3) for c in (1, 2, 3)],
    "internvl": ["<img>", "</img>", "<IMG_CONTEXT>"],
}
PLACEHOLDERS = {"qwen": "<|image_pad|>", "gemma3": "<image_soft_token>", "gemma4": "<|image|>", "idefics3": "<image>",
                "internvl": "<IMG_CONTEXT>"}
MEAN_STD = dict(image_mean=[0.48, 0.46, 0.41], image_std=[0.27, 0.26, 0.28])
QWEN_SIZES = dict(patch_size=4, merge_size=2, temporal_patch_size=2)


def qwen_text(**more):
    return TEXT | dict(head_dim=16, rope_parameters=INTERLEAVED) | more


def gemma_rope(**full):
    return dict(full_attention=dict(rope_type="default", rope_theta=1e5) | full,
                sliding_attention=dict(rope_type="default", rope_theta=1e3))


# Name: markers, transformers' classes, the config, and the settings of the image processor.
MODELS = {
    "qwen2_vl": ("qwen", "Qwen2VL", dict(
        text_config=TEXT | dict(rope_parameters=MROPE),
        vision_config=dict(depth=3, embed_dim=24, hidden_size=32, num_heads=2, patch_size=4, mlp_ratio=2)),
        MEAN_STD | QWEN_SIZES | dict(min_pixels=1200, max_pixels=1280)),
    "qwen2_5_vl": ("qwen", "Qwen2_5_VL", dict(
        text_config=TEXT | dict(rope_parameters=MROPE),
        vision_config=QWEN | dict(depth=4, fullatt_block_indexes=[1, 3], window_size=16, hidden_act="silu")),
        MEAN_STD | QWEN_SIZES | dict(min_pixels=1200, max_pixels=1280)),
    "qwen3_vl": ("qwen", "Qwen3VL", dict(
        text_config=qwen_text(num_hidden_layers=3),
        vision_config=QWEN | dict(num_position_embeddings=36, deepstack_visual_indexes=[0, 2])),
        MEAN_STD | QWEN_SIZES | dict(size=dict(shortest_edge=1200, longest_edge=1280))),
    "qwen3_vl_moe": ("qwen", "Qwen3VLMoe", dict(
        text_config=qwen_text(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24, norm_topk_prob=True),
        vision_config=QWEN | dict(num_position_embeddings=36, deepstack_visual_indexes=[1])),
        MEAN_STD | QWEN_SIZES | dict(size=dict(shortest_edge=1200, longest_edge=1280))),
    "qwen3_5": ("qwen", "Qwen3_5", dict(
        text_config=qwen_text(
            head_dim=32, layer_types=["linear_attention", "full_attention"], linear_key_head_dim=16,
            linear_value_head_dim=16, linear_num_key_heads=2, linear_num_value_heads=2,
            rope_parameters=INTERLEAVED | dict(partial_rotary_factor=0.5)),
        vision_config=QWEN | dict(num_position_embeddings=36)),
        MEAN_STD | QWEN_SIZES | dict(size=dict(shortest_edge=1200, longest_edge=1280))),
    "qwen3_5_moe": ("qwen", "Qwen3_5Moe", dict(
        text_config=qwen_text(
            head_dim=32, layer_types=["linear_attention", "full_attention"], linear_key_head_dim=16,
            linear_value_head_dim=16, linear_num_key_heads=2, linear_num_value_heads=2, num_experts=4,
            num_experts_per_tok=2, moe_intermediate_size=16, shared_expert_intermediate_size=16,
            rope_parameters=INTERLEAVED | dict(partial_rotary_factor=0.5)),
        vision_config=QWEN | dict(depth=2, num_position_embeddings=36)),
        MEAN_STD | QWEN_SIZES | dict(size=dict(shortest_edge=1200, longest_edge=1280))),
    "gemma3": ("gemma3", "Gemma3", dict(
        text_config=TEXT | dict(head_dim=16, query_pre_attn_scalar=16, sliding_window=12, rope_parameters=gemma_rope(),
                                layer_types=["sliding_attention", "full_attention"]),
        vision_config=SIGLIP | dict(image_size=32, vision_use_head=False), mm_tokens_per_image=16),
        dict(size=dict(height=32, width=32), image_mean=[0.5] * 3, image_std=[0.5] * 3)),
    "gemma4": ("gemma4", "Gemma4", dict(
        text_config=TEXT | dict(
            num_hidden_layers=4, head_dim=16, global_head_dim=32, sliding_window=24, num_kv_shared_layers=2,
            layer_types=["sliding_attention", "full_attention"] * 2, hidden_size_per_layer_input=8,
            final_logit_softcapping=30.0, use_bidirectional_attention="vision",
            rope_parameters=gemma_rope(rope_type="proportional", partial_rotary_factor=0.25)),
        vision_config=dict(hidden_size=32, intermediate_size=40, num_hidden_layers=2, num_attention_heads=2,
                           num_key_value_heads=2, head_dim=16, patch_size=4, position_embedding_size=80,
                           use_clipped_linears=True, standardize=True),
        audio_config=None),
        dict(patch_size=4, max_soft_tokens=70, pooling_kernel_size=3)),
    "idefics3": ("idefics3", "Idefics3", dict(
        text_config=TEXT | dict(model_type="llama", head_dim=16, rope_parameters=dict(rope_type="default", rope_theta=1e4)),
        vision_config=SIGLIP | dict(image_size=32), scale_factor=2),
        dict(size=dict(longest_edge=64), max_image_size=dict(longest_edge=32), image_mean=[0.5] * 3, image_std=[0.5] * 3)),
    "smolvlm": ("idefics3", "SmolVLM", dict(
        text_config=TEXT | dict(model_type="llama", head_dim=16, rope_parameters=dict(rope_type="default", rope_theta=1e4)),
        vision_config=SIGLIP | dict(image_size=48), scale_factor=4),
        dict(size=dict(longest_edge=96), max_image_size=dict(longest_edge=48), image_mean=[0.5] * 3, image_std=[0.5] * 3)),
    "internvl": ("internvl", "InternVL", dict(
        text_config=TEXT | dict(model_type="qwen2", rope_parameters=dict(rope_type="default", rope_theta=1e4)),
        vision_config=SIGLIP | dict(image_size=[32, 32], patch_size=[4, 4], attention_bias=True, hidden_act="gelu"),
        image_seq_length=16),
        MEAN_STD | dict(size=dict(height=32, width=32), crop_to_patches=True, min_patches=1, max_patches=4)),
}
# Seeds of weights with which the most probable ids lead clearly.
SEEDS = {"gemma3": 31, "gemma4": 31}
# Those whose processor is saved as transformers 5 does.
NESTED = {"qwen3_5", "qwen3_5_moe", "gemma4", "internvl", "smolvlm"}
PROCESSORS = {"qwen": ("qwen2_vl", "Qwen2VL"), "gemma3": ("gemma3", "Gemma3"), "gemma4": ("gemma4", "Gemma4"),
              "idefics3": ("idefics3", "Idefics3"), "internvl": ("got_ocr2", "GotOcr2")}


class Float64(TorchFunctionMode):
    """Leaves double precision where transformers casts to single precision."""
    def __torch_function__(self, f, types, args=(), kwargs=None):
        up = lambda x: torch.float64 if x is torch.float32 else x
        kwargs = {k: up(v) for k, v in (kwargs or {}).items()}
        return args[0].double() if f is torch.Tensor.float else f(*[up(a) for a in args], **kwargs)


def tokenizer(marks, folder):
    """A token for each byte, and for each mark."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    t = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens([AddedToken(text, normalized=False) for text in ["<|end|>", *marks]])
    T.PreTrainedTokenizerFast(tokenizer_object=t, eos_token="<|end|>").save_pretrained(folder)
    # Without the indentation, which is half of the file.
    (folder / "tokenizer.json").write_text(json.dumps(json.loads((folder / "tokenizer.json").read_text())))
    return t


def randomize(model, seed):
    """Sets each parameter to random numbers that BF16 holds. Norms are far from 1, so that a wrong one shows."""
    for name, x in model.state_dict().items():
        random = np.random.default_rng([seed, zlib.crc32(name.encode())])
        normal = lambda scale: scale * random.standard_normal(tuple(x.shape))
        part = name.rsplit(".", 2)[-2] + "." + name.rsplit(".", 1)[-1] if "." in name else name
        if name.endswith(("input_min", "output_min")):
            new = np.full(tuple(x.shape), -1.75)
        elif name.endswith(("input_max", "output_max")):
            new = np.full(tuple(x.shape), 1.5)
        elif "norm" in part or "ln_q" in part or part.endswith(("lambda_1", "lambda_2", "std_scale", "layer_scalar")):
            new = normal(0.2) if name.endswith("bias") else random.uniform(0.5, 1.5, tuple(x.shape))
            if name.endswith(("language_model.norm.weight", "text_model.norm.weight")):
                # Without mixed signs, models whose output matrix is the embedding repeat their last token.
                new *= random.choice([-1, 1], new.shape)
            new = new - 1 if name.endswith("weight") and plus_one(model, name) else new
        elif name.endswith("A_log"):
            new = random.uniform(-1, 1, tuple(x.shape))
        elif x.dim() < 2:
            new = normal(0.2)
        elif "embed_tokens" in name or "lm_head" in name:
            # Gemma multiplies embeddings by the root of their width.
            new = normal(0.3 if type(model).__name__.startswith("Gemma") else 0.7)
        elif "position" in name or "pos_embed" in name or "cls_token" in name:
            new = normal(0.5)
        else:
            outer = 1 if x.dim() < 3 or "experts" not in name else 2
            new = normal(1.4 / np.sqrt(np.prod(x.shape[outer:])))
        x.copy_(torch.from_numpy(np.asarray(new)).to(torch.bfloat16))


def plus_one(model, name):
    kind = type(model).__name__
    if kind.startswith("Gemma3"):
        return "language_model" in name or "mm_soft_emb_norm" in name
    return kind.startswith("Qwen3_5") and "language_model" in name and "linear_attn.norm" not in name


def images(name):
    """Two images of different sizes, with a shape on noise."""
    for number, (width, height) in enumerate([(52, 31), (26, 44)]):
        random = np.random.default_rng([number, 5])
        y, x = np.mgrid[:height, :width]
        pixels = random.integers(0, 256, (height, width, 3)) // 4
        pixels += np.stack([x * 255 // width, y * 255 // height, ((x // 7 + y // 5) % 2) * 255], -1) * 3 // 4
        path = HERE / f"{number}.png"
        Image.fromarray(pixels.astype(np.uint8)).save(path, optimize=True)
        yield path


def parts(family, grids, counts):
    """The text that stands for an image: `counts` has the number of rows of each picture."""
    place = PLACEHOLDERS[family]
    rows = [place * count for count in counts]
    if family == "idefics3":
        lines, frame = "", "<fake_token_around_image>"
        r, c = grids
        for y in range(r):
            lines += "".join(f"{frame}<row_{y + 1}_col_{x + 1}>{rows.pop(0)}" for x in range(c)) + ("\n" if y < r - 1 else "\n\n")
        return f"{lines}{frame}<global-img>{rows[0]}{frame}"
    before, after = MARKS[family][:2]
    return before + "".join(rows) + after


def processor(family, name, settings, folder):
    module, kind = PROCESSORS[family]
    if name == "smolvlm":
        module, kind = "smolvlm", "SmolVLM"
    module = __import__(f"transformers.models.{module}.image_processing_pil_{module}", fromlist=["x"])
    p = getattr(module, f"{kind}ImageProcessorPil")(**settings)
    written = p.to_dict()
    if name in NESTED:
        (folder / "processor_config.json").write_text(json.dumps({"image_processor": written}, indent=1, default=str))
    else:
        (folder / "preprocessor_config.json").write_text(json.dumps(written, indent=1, default=str))
    return p


def inputs(family, p, pictures, config):
    """The pixels of all pictures as the model takes them, and the grid and the numbers of rows of each image."""
    many = [[picture] for picture in pictures] if family == "idefics3" else pictures
    if family == "qwen":
        out = p(images=many, return_tensors="pt")
        grid = out["image_grid_thw"]
        sizes = [(None, [int(g.prod()) // 4]) for g in grid]
        return dict(pixel_values=out["pixel_values"], image_grid_thw=grid), sizes
    if family == "gemma3":
        out = p(images=many, return_tensors="pt")
        return dict(pixel_values=out["pixel_values"]), [(None, [config.mm_tokens_per_image])] * len(pictures)
    if family == "gemma4":
        out = p(images=many, return_tensors="pt")
        counts = [int(n) for n in out["num_soft_tokens_per_image"]]
        return dict(pixel_values=out["pixel_values"], image_position_ids=out["image_position_ids"]), [(None, [n]) for n in counts]
    v = config.vision_config
    side = v.image_size[0] if isinstance(v.image_size, (list, tuple)) else v.image_size
    patch = v.patch_size[0] if isinstance(v.patch_size, (list, tuple)) else v.patch_size
    if family == "idefics3":
        out = [p(images=[picture], return_tensors="pt", return_row_col_info=True) for picture in many]
        pixels = [o["pixel_values"][0] for o in out]
        count = (side // patch // config.scale_factor) ** 2
        grids = [(int(np.ravel(o["rows"])[0]), int(np.ravel(o["cols"])[0])) for o in out]
        return dict(pixel_values=torch.cat(pixels)[None]), [(g, [count] * len(x)) for g, x in zip(grids, pixels)]
    out = p(images=many, return_tensors="pt", crop_to_patches=True)
    count = int((side // patch * config.downsample_ratio) ** 2)
    return dict(pixel_values=out["pixel_values"]), [(None, [count] * int(n)) for n in out["num_patches"]]


def embeddings(family, model, given):
    if family == "qwen":
        out = model.model.visual(given["pixel_values"], grid_thw=given["image_grid_thw"])
        return torch.cat([out.pooler_output, *(getattr(out, "deepstack_features", None) or [])], -1)
    if family == "gemma4":
        e = model.model.get_image_features(given["pixel_values"], given["image_position_ids"]).pooler_output
    else:
        e = model.model.get_image_features(given["pixel_values"]).pooler_output
    e = torch.cat(list(e)) if isinstance(e, (tuple, list)) else e
    return e.reshape(-1, e.shape[-1])


def expected(name, folder, family, p, t):
    config = T.AutoConfig.from_pretrained(folder)
    pictures = [Image.open(path) for path in images(name)]
    given, sizes = inputs(family, p, pictures, config)
    given = {k: v.double() if v.is_floating_point() else v for k, v in given.items()}
    prompt = "see <__media__> and <__media__> now" if family != "gemma3" else "see \n\n<__media__>\n\n and <__media__> now"
    text = prompt
    for grid, counts in sizes:
        text = text.replace("<__media__>", parts(family, grid, counts), 1)
    ids = t.encode(text).ids
    place = t.token_to_id(PLACEHOLDERS[family])
    with Float64(), torch.no_grad():
        torch.set_default_dtype(torch.float64)
        model, loading = T.AutoModelForImageTextToText.from_pretrained(
            folder, dtype=torch.float64, attn_implementation="eager", experts_implementation="eager", output_loading_info=True)
        assert not any(loading.values()), loading
        model.eval()
        rows = embeddings(family, model, given)
        assert len(rows) == ids.count(place), (len(rows), ids.count(place))
        greedy, leads = [], []
        for _ in range(GREEDY):
            all_ids = torch.tensor([ids + greedy])
            types = (all_ids == place).long()
            more = dict(token_type_ids=types) if family == "gemma3" else \
                dict(mm_token_type_ids=types) if family in ("qwen", "gemma4") else {}
            out = model(input_ids=all_ids, **given, **more, use_cache=False).logits[0, -1]
            logits = out if not greedy else logits
            best = out.topk(2)
            leads.append(float(best.values[0] - best.values[1]))
            greedy.append(int(best.indices[0]))
        torch.set_default_dtype(torch.float32)
    rows.numpy().astype("<f4").tofile(folder / "transformers.embd.f32")
    logits.numpy().astype("<f4").tofile(folder / "transformers.logits.f32")
    shown = [0 if id == place else id for id in ids]
    info = dict(prompt=prompt, images=["0.png", "1.png"], ids=shown, rows=len(rows), transformers=dict(greedy=greedy, lead=min(leads)))
    old = folder / "info.json"
    if old.exists() and "llama.cpp" in (before := json.loads(old.read_text())):
        info["llama.cpp"] = before["llama.cpp"]
    old.write_text(json.dumps(info))
    size = (folder / "model.safetensors").stat().st_size
    print(f"{name}: {len(ids)} ids, {len(rows)} rows of {rows.shape[1]}, least lead {min(leads):.3f}, {size} bytes, greedy {greedy}")


def make(name):
    family, kind, config, settings = MODELS[name]
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    t = tokenizer(MARKS[family], folder)
    id = lambda mark: t.token_to_id(mark)
    marks = MARKS[family]
    special = {
        "qwen": lambda: dict(zip(["vision_start_token_id", "vision_end_token_id", "image_token_id", "video_token_id"], map(id, marks))),
        "gemma3": lambda: dict(zip(["boi_token_index", "eoi_token_index", "image_token_index"], map(id, marks))),
        "gemma4": lambda: dict(zip(["boi_token_id", "eoi_token_id", "image_token_id"], map(id, marks))),
        "idefics3": lambda: dict(image_token_id=id("<image>")),
        "internvl": lambda: dict(image_token_id=id("<IMG_CONTEXT>")),
    }[family]()
    text = config["text_config"] | dict(vocab_size=t.get_vocab_size(), pad_token_id=0 if family == "gemma4" else None,
                                        bos_token_id=None, eos_token_id=id("<|end|>"))
    if family == "gemma4":
        text["vocab_size_per_layer_input"] = t.get_vocab_size()
    c = getattr(T, f"{kind}Config")(**config | dict(text_config=text, tie_word_embeddings=True), **special)
    model = getattr(T, f"{kind}ForConditionalGeneration")(c).to(torch.bfloat16).eval()
    with torch.no_grad():
        randomize(model, SEEDS.get(name, sorted(MODELS).index(name)))
    model.tie_weights()
    model.save_pretrained(folder)
    (folder / "model.safetensors").chmod(0o644)
    expected(name, folder, family, processor(family, name, settings, folder), t)


if __name__ == "__main__":
    for name in sys.argv[1:] or MODELS:
        make(name)
