#!/usr/bin/env python3
"""Writes this folder's fixtures: image files, and the pixels, resized pixels and sizes that others compute.

    make.py        # needs Python 3.9+, numpy, Pillow 13.0, and the package transformers 5.23 (its sources: no torch)

*.png *.jpg *.webp *.gif   small images of every kind; PNG and GIF from the writers below, the others from Pillow
files.json     per file, what Pillow decodes (turned upright by ImageOps.exif_transpose, on white, as transformers'
               convert_to_rgb does): size, and the CRC-32 of the RGB bytes; with alpha dropped, if it has any, as well;
               for JPEG, whose decoding the standard leaves open by a level, the bytes themselves
resize.json    per case the source image, filter, target size, method, and the CRC-32 of the resulting RGB bytes.
               `resize` is Pillow's; `letterbox` and `width_first` are the rules of llama.cpp's mtmd-image.cpp, with Pillow
               run once for each pass
sizes.json     arguments and results of transformers' functions for sizes and grids, and of llama.cpp's rules

Source images of resize.json are made of a linear congruential generator, so that tests make them too.
"""
import ast
import importlib.util
import io
import json
import math
import random
import struct
import zlib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from PIL import Image, ImageOps

FOLDER = Path(__file__).parent
FILTERS = {"bilinear": Image.BILINEAR, "bicubic": Image.BICUBIC, "lanczos": Image.LANCZOS}


def noise(width, height, extreme=False, channels=3):
    """Noise of 8 bits; only 0 and 255 if extreme, which makes filters overshoot everywhere."""
    state, out = width * 65536 + height, bytearray()
    for _ in range(width * height * channels):
        state = (state * 1664525 + 1013904223) % 2**32
        out.append((state >> 31) * 255 if extreme else state >> 24)
    return np.frombuffer(bytes(out), np.uint8).reshape(height, width, channels)


def scene(width, height):
    """Smooth colours that differ in every corner, which JPEG keeps."""
    y, x = np.mgrid[0:height, 0:width]
    red, green = x * 255 // max(width - 1, 1), y * 255 // max(height - 1, 1)
    return np.stack([red, green, 255 - (red + green) // 2], 2).astype(np.uint8)


def crc(array):
    return zlib.crc32(np.ascontiguousarray(array, np.uint8).tobytes())


# ---------------------------------------------------------------- files
def png(samples, colour, depth=8, interlaced=False, chunks=(), late=()):
    """A PNG file of samples [height, width, channels]; colour is PNG's colour type."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    def rows(a):
        out = b""
        for row in a if a.size else []:
            if depth == 16:
                data = row.astype(">u2").tobytes()
            elif depth == 8:
                out += b"\1" + np.diff(row, axis=0, prepend=row[:1] * 0).astype(np.uint8).tobytes()
                continue
            else:
                bits = np.unpackbits(row.astype(np.uint8).reshape(-1, 1), axis=1)[:, 8 - depth:]
                data = np.packbits(bits.reshape(-1)).tobytes()
            out += b"\0" + data
        return out

    height, width = samples.shape[:2]
    passes = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
    data = b"".join(rows(samples[y::dy, x::dx]) for x, y, dx, dy in passes) if interlaced else rows(samples)
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, int(interlaced))
    body = [(b"IHDR", header), *chunks, (b"IDAT", zlib.compress(data, 9)), *late, (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(kind, data) for kind, data in body)


def exif(orientation, order="<"):
    """EXIF data with the orientation between two other tags."""
    entries = [(0x0110, 2, 4, b"abc\0"), (0x0112, 3, 1, struct.pack(order + "HH", orientation, 0)),
               (0x0128, 3, 1, struct.pack(order + "HH", 2, 0))]
    body = b"".join(struct.pack(order + "HHI", *entry[:3]) + entry[3] for entry in entries)
    mark = b"II" if order == "<" else b"MM"
    return mark + struct.pack(order + "HIH", 42, 8, len(entries)) + body + struct.pack(order + "I", 0)


def saved(image, kind, **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def gif_of_part(transparent):
    """A GIF of 12 x 10 pixels whose first picture has 5 x 4, at (3, 2)."""
    part = Image.fromarray(noise(5, 4) // 64 * 64).quantize(8)
    data = bytearray(saved(part, "GIF", **({"transparency": 1} if transparent else {})))
    at = data.index(b"\x2c\0\0\0\0\x05\0\x04\0")
    data[6:10] = struct.pack("<HH", 12, 10)
    data[at + 1:at + 5] = struct.pack("<HH", 3, 2)
    return bytes(data)


def files():
    rgb, a16 = noise(13, 9), noise(13, 9, channels=8).view(np.uint16).astype(int)
    every = np.stack(np.meshgrid(np.arange(256), np.arange(256)), 2)
    palette = noise(16, 1).tobytes()
    indices = noise(13, 9, channels=1) >> 4
    out = {
        "rgb.png": png(rgb, 2),
        "rgb_interlaced.png": png(rgb, 2, interlaced=True),
        "rgb_16.png": png(a16[..., :3], 2, 16),
        "rgb_16_interlaced.png": png(a16[..., :3], 2, 16, interlaced=True),
        "rgb_key.png": png(rgb, 2, chunks=[(b"tRNS", struct.pack(">HHH", *map(int, rgb[4, 5])))]),
        "rgba.png": png(noise(13, 9, channels=4), 6),
        "rgba_16.png": png(a16, 6, 16),
        "grey.png": png(rgb[..., :1], 0),
        "grey_1.png": png(rgb[..., :1] >> 7, 0, 1),
        "grey_2_interlaced.png": png(rgb[..., :1] >> 6, 0, 2, interlaced=True),
        "grey_4.png": png(rgb[..., :1] >> 4, 0, 4),
        "grey_16.png": png(a16[..., :1], 0, 16),
        "grey_key.png": png(rgb[..., :1], 0, chunks=[(b"tRNS", b"\0" + bytes([rgb[4, 5, 0]]))]),
        "grey_4_key.png": png(rgb[..., :1] >> 4, 0, 4, chunks=[(b"tRNS", b"\0\5")]),
        # Every value with every opacity.
        "grey_alpha.png": png(every, 4),
        "grey_alpha_16.png": png(a16[..., :2], 4, 16),
        "palette.png": png(indices, 3, 4, chunks=[(b"PLTE", palette)]),
        "palette_8_interlaced.png": png(indices, 3, 8, interlaced=True, chunks=[(b"PLTE", palette)]),
        "palette_alpha.png": png(indices, 3, 4, chunks=[(b"PLTE", palette), (b"tRNS", bytes(range(0, 220, 20)))]),
        "one_pixel.png": png(rgb[:1, :1], 2),
        "exif_at_end.png": png(rgb, 2, late=[(b"eXIf", exif(6))]),
        "animated.png": saved(Image.fromarray(rgb), "PNG", save_all=True,
                              append_images=[Image.fromarray(255 - rgb)], duration=50),
        "grey.jpg": saved(Image.fromarray(scene(19, 13)).convert("L"), "JPEG", quality=90),
        "full.jpg": saved(Image.fromarray(scene(19, 13)), "JPEG", quality=90, subsampling="4:4:4"),
        "halved.jpg": saved(Image.fromarray(scene(35, 21)), "JPEG", quality=90, subsampling="4:2:0"),
        "halved_wide.jpg": saved(Image.fromarray(scene(35, 21)), "JPEG", quality=90, subsampling="4:2:2"),
        "progressive.jpg": saved(Image.fromarray(scene(35, 21)), "JPEG", quality=90, progressive=True),
        "restarts.jpg": saved(Image.fromarray(scene(35, 21)), "JPEG", quality=90, restart_marker_blocks=1),
        "stored_rgb.jpg": saved(Image.fromarray(scene(19, 13)), "JPEG", quality=90, keep_rgb=True),
        "cmyk.jpg": saved(Image.fromarray(scene(19, 13)).convert("CMYK"), "JPEG", quality=90),
        "lossy.webp": saved(Image.fromarray(scene(35, 21)), "WEBP", quality=80),
        "lossy_alpha.webp": saved(Image.fromarray(np.dstack([scene(35, 21), noise(35, 21)[..., 0]])), "WEBP", quality=80),
        "lossless.webp": saved(Image.fromarray(rgb), "WEBP", lossless=True),
        "lossless_alpha.webp": saved(Image.fromarray(noise(13, 9, channels=4)), "WEBP", lossless=True, exact=True),
        "animated.webp": saved(Image.fromarray(rgb), "WEBP", lossless=True, save_all=True,
                               append_images=[Image.fromarray(255 - rgb)], duration=50),
        "animated_lossy.webp": saved(Image.fromarray(scene(20, 14)), "WEBP", quality=80, save_all=True,
                                     append_images=[Image.fromarray(scene(20, 14)[::-1])], duration=50),
        "exif.webp": saved(Image.fromarray(rgb), "WEBP", lossless=True, exif=exif(8, ">")),
        "plain.gif": saved(Image.fromarray(rgb).quantize(32), "GIF"),
        "interlaced.gif": saved(Image.fromarray(noise(31, 33)).quantize(16), "GIF", interlace=True),
        "transparent.gif": saved(Image.fromarray(rgb).quantize(32), "GIF", transparency=3),
        "animated.gif": saved(Image.fromarray(rgb).quantize(32), "GIF", save_all=True,
                              append_images=[Image.fromarray(255 - rgb).quantize(32)], duration=50),
        "part.gif": gif_of_part(False),
        "part_transparent.gif": gif_of_part(True),
    }
    # Pillow writes no YCCK, but Adobe's marker says how the four channels are meant.
    out["ycck.jpg"] = out["cmyk.jpg"].replace(b"Adobe\0d\0\0\0\0\0", b"Adobe\0d\0\0\0\0\2")
    assert out["ycck.jpg"] != out["cmyk.jpg"]
    for number in range(1, 9):
        out[f"exif_{number}.png"] = png(rgb[:3, :5], 2, chunks=[(b"eXIf", exif(number, "<>"[number % 2]))])
        out[f"exif_{number}.jpg"] = saved(Image.fromarray(scene(24, 16)), "JPEG", quality=90, subsampling="4:4:4",
                                          exif=b"Exif\0\0" + exif(number, "<>"[number % 2]))
    return out


def opaque(image):
    """(on white, alpha dropped or None), as transformers' convert_to_rgb composites."""
    if "A" not in image.getbands() and image.info.get("transparency") is None:
        return image.convert("RGB"), None
    image = image.convert("RGBA")
    white = Image.new("RGBA", image.size, (255, 255, 255, 255))
    return Image.alpha_composite(white, image).convert("RGB"), Image.fromarray(np.asarray(image)[..., :3])


def expected(name, data):
    image = Image.open(io.BytesIO(data))
    if image.mode == "I;16":
        # Pillow would clip to 255; the upper byte is what it takes of 16-bit colours.
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if name == "grey_4_key.png":
        # Pillow compares the stored 4 bits with the expanded 8.
        image.info["transparency"] = 5 * 17
    image = ImageOps.exif_transpose(image)
    white, dropped = opaque(image)
    if name.startswith("part"):
        # Pillow fills the rest with a colour of the palette; browsers leave it transparent.
        inner = np.asarray(white)[2:6, 3:8]
        canvas = np.full((10, 12, 3), 255, np.uint8)
        canvas[2:6, 3:8] = inner
        white, dropped = Image.fromarray(canvas), None
    entry = {"width": white.width, "height": white.height, "crc": crc(np.asarray(white))}
    if dropped is not None:
        entry["crc_dropped"] = crc(np.asarray(dropped))
    if name.endswith(".jpg"):
        entry["rgb"] = np.asarray(white).tobytes().hex()
    return entry


# ---------------------------------------------------------------- resizing
def width_first(image, width, height, kind):
    return image.resize((width, image.height), kind).resize((width, height), kind)


def letterbox(image, width, height, kind):
    if image.size == (width, height):
        return image
    f = np.float32
    scale = min(f(width) / f(image.width), f(height) / f(image.height))
    inner = [min(math.ceil(f(side) * scale), limit) for side, limit in zip(image.size, (width, height))]
    out = Image.new("RGB", (width, height))
    out.paste(width_first(image, *inner, kind), ((width - inner[0]) // 2, (height - inner[1]) // 2))
    return out


METHODS = {"resize": lambda image, w, h, kind: image.resize((w, h), kind), "letterbox": letterbox, "width_first": width_first}


def resizes():
    fixed = [((30, 300), (28, 280)), ((50, 50), (100, 20)), ((1, 1), (7, 5)), ((7, 5), (1, 1)), ((1, 40), (3, 9)),
             ((40, 1), (9, 3)), ((61, 83), (61, 83)), ((61, 83), (61, 40)), ((61, 83), (90, 83)), ((200, 120), (192, 128)),
             ((2, 2), (64, 64)), ((64, 64), (3, 2)), ((300, 4), (5, 5)), ((16, 16), (17, 15)), ((5, 97), (6, 96))]
    chosen = random.Random(17)
    sides = lambda: (chosen.randint(1, 70), chosen.randint(1, 70))
    pairs = fixed + [(sides(), sides()) for _ in range(85)]
    for index, (source, target) in enumerate(pairs):
        for method in METHODS:
            # Each filter gets each fixed pair, and a third of the others.
            for number, kind in enumerate(FILTERS):
                if index >= len(fixed) and (index + number) % 3:
                    continue
                extreme = (index + number) % 2 == 0
                image = Image.fromarray(noise(*source, extreme))
                result = METHODS[method](image, *target, FILTERS[kind])
                yield [source, int(extreme), target, kind, method, crc(np.asarray(result))]


# ---------------------------------------------------------------- sizes
def source_of(module):
    return Path(importlib.util.find_spec("transformers").origin).parent / "models" / (module.replace(".", "/") + ".py")


def function(module, *names):
    """Functions of a file of transformers, run without the rest of the file, which needs torch."""
    path = source_of(module)
    wanted = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef) and node.name in names]
    for node in wanted:
        node.decorator_list = []
    scope = {"math": math}
    exec(compile(ast.Module(wanted, []), str(path), "exec"), scope)
    return [scope[name] for name in names]


def c_round(x):
    return math.floor(x + 0.5)


def llama_smart_resize(w, h, factor, least, most):
    f = np.float32
    W, H = (max(factor, c_round(f(side) / f(factor)) * factor) for side in (w, h))
    if W * H > most:
        b = np.sqrt(f(h) * f(w) / f(most))
        W, H = (max(factor, math.floor(f(side) / b / f(factor)) * factor) for side in (w, h))
    elif W * H < least:
        b = np.sqrt(f(least) / (f(h) * f(w)))
        W, H = (math.ceil(f(side) * b / f(factor)) * factor for side in (w, h))
    return W, H


def llama_internvl_grid(w, h, tile, least, most):
    f = np.float32
    if w <= tile and h <= tile:
        return None
    best, effective, wasted = None, 0, math.inf
    for a in range(least, most + 1):
        for b in range(max(-(-least // a), least), most // a + 1):
            k = min(f(a * tile) / f(w), f(b * tile) / f(h))
            area = min(int(f(w) * k) * int(f(h) * k), w * h)
            waste = a * b * tile * tile - area
            if area > effective or area == effective and waste < wasted:
                best, effective, wasted = (a, b), area, waste
    return best


def llama_idefics3(w, h, longest, tile):
    ratio = w / h
    W, H = (longest, int(longest / ratio)) if w >= h else (int(longest * ratio), longest)
    W, H = (W, H + H % 2) if w >= h else (W + W % 2, H)
    columns, rows = -(-W // tile), -(-H // tile)
    return [W, H, columns * tile, rows * tile, columns, rows]


def refusal(call):
    try:
        return call()
    except ValueError:
        return None


def sizes():
    (smart,) = function("qwen2_vl.image_processing_pil_qwen2_vl", "smart_resize")
    (gemma4,) = function("gemma4.image_processing_pil_gemma4", "get_aspect_ratio_preserving_size")
    got = function("got_ocr2.image_processing_pil_got_ocr2", "get_optimal_tiled_canvas", "get_all_supported_aspect_ratios")
    got[0].__globals__["get_all_supported_aspect_ratios"] = got[1]
    to_max, below = function("idefics3.image_processing_pil_idefics3", "_resize_output_size_rescale_to_max_len",
                             "_resize_output_size_scale_below_upper_bound")
    canvas = method_of_idefics3()

    def internvl(w, h, tile, least, most):
        columns, rows = got[0]((h, w), (tile, tile), least, most)
        return (columns, rows) if columns * rows > 1 else None

    def idefics3(w, h, longest, tile):
        H, W = below(*to_max(h, w, max_len=longest), max_len=4096)
        CH, CW = canvas(H, W, tile)
        grid = [CW // tile, CH // tile] if CH > tile or CW > tile else [0, 0]
        return [W, H, CW, CH, *grid]

    chosen = random.Random(18)
    sides = [(80, 80), (48, 16), (16, 80), (7, 5), (1, 1), (200, 1), (201, 1), (1, 200), (1, 201), (4000, 3000), (3000, 4000),
             (65535, 400), (640, 448), (56, 57), (113, 56), (1000, 1000), (896, 448), (448, 896), (9000, 30)]
    sides += [(chosen.randint(1, 5000), chosen.randint(1, 5000)) for _ in range(60)]
    sides += [(chosen.randint(1, 300), chosen.randint(1, 300)) for _ in range(60)]
    out = {name: [] for name in ("smart_resize", "gemma4", "internvl", "idefics3")}
    for w, h in sides:
        for factor, least, most in ((28, 3136, 12845056), (32, 65536, 16777216), (32, 8 * 1024, 4096 * 1024)):
            result = refusal(lambda: smart(h, w, factor, least, most))
            out["smart_resize"].append([w, h, factor, least, most, result and result[::-1],
                                        llama_smart_resize(w, h, factor, least, most)])
        for tokens in (70, 280):
            result = refusal(lambda: gemma4(h, w, 16, tokens * 9, 3))
            out["gemma4"].append([w, h, 16, 3, tokens, result and result[::-1],
                                  llama_smart_resize(w, h, 48, 70 * 48 * 48, 1120 * 48 * 48)])
        for tile, least, most in ((448, 1, 12), (56, 1, 6), (448, 2, 9)):
            out["internvl"].append([w, h, tile, least, most, internvl(w, h, tile, least, most),
                                    llama_internvl_grid(w, h, tile, least, most)])
        for longest, tile in ((1456, 364), (2048, 512), (256, 64), (364, 364), (5000, 512)):
            if min(w, h) * longest >= max(w, h):
                out["idefics3"].append([w, h, longest, tile, idefics3(w, h, longest, tile), llama_idefics3(w, h, longest, tile)])
    return out


def method_of_idefics3():
    """transformers' resize_for_vision_encoder, as a function that returns the size it would resize to."""
    path = source_of("idefics3.image_processing_pil_idefics3")
    method = next(node for node in ast.walk(ast.parse(path.read_text()))
                  if isinstance(node, ast.FunctionDef) and node.name == "resize_for_vision_encoder")
    scope = {"math": math, "np": np, "SizeDict": lambda height, width: (height, width)}
    exec(compile(ast.Module([method], []), str(path), "exec"), scope)
    processor = SimpleNamespace(resize=lambda image, size, resample: size)
    return lambda h, w, tile: scope["resize_for_vision_encoder"](processor, np.zeros((3, h, w), bool), tile)


def write(name, rows):
    (FOLDER / name).write_text(rows + "\n")


def lines(rows):
    return "[\n" + ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows) + "\n]"


def main():
    entries = {}
    for name, data in files().items():
        (FOLDER / name).write_bytes(data)
        entries[name] = expected(name, data)
    write("files.json", "{\n" + ",\n".join(f"{json.dumps(n)}:{json.dumps(e, separators=(',', ':'))}" for n, e in entries.items()) + "\n}")
    write("resize.json", lines(resizes()))
    write("sizes.json", "{\n" + ",\n".join(f"{json.dumps(n)}:{lines(r)}" for n, r in sizes().items()) + "\n}")


main()
