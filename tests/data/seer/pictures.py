#!/usr/bin/env python3
"""Draws pictures of coloured shapes, and knows what is in them.

    pictures.py show --seed 7 --out DIR          a PNG file of the scene, and its sentence on the screen
    pictures.py held-out --out held_out          the 50 pictures of the tests and truth.json

A scene follows from its seed alone and is drawn with integer arithmetic, so the pixels are the same everywhere.
Needs numpy; Pillow only to write PNG files.
"""
import argparse, json, os
from dataclasses import dataclass

import numpy as np

import sentences
from sentences import SHAPES

COLORS = {"red": (214, 40, 40), "orange": (244, 130, 28), "yellow": (248, 208, 36), "green": (36, 150, 72),
          "blue": (40, 92, 210), "purple": (128, 56, 168), "pink": (244, 148, 190), "black": (32, 32, 32)}
BACKGROUNDS = ((250, 250, 250), (250, 241, 218), (216, 231, 246), (222, 240, 222), (226, 226, 226))
SIDES = (256, 384)                       # shortest and longest side of a picture, in pixels
MOST_PIXELS = 384 * 320
RADII = (16, 42)                         # smallest and largest half width of a shape, in pixels
HELD_OUT_SEED = 9_000_000_000            # training draws from seeds below this one
HELD_OUT = 50
MASK_64 = (1 << 64) - 1


class Dice:
    """Draws integers from a seed, with the generator splitmix64."""

    def __init__(self, seed):
        self.state = seed
        self.state = self.bits()         # neighbouring seeds would otherwise give the same numbers one place apart

    def bits(self):
        self.state = self.state + 0x9E3779B97F4A7C15 & MASK_64
        z = self.state
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK_64
        z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK_64
        return z ^ z >> 31

    def between(self, low, high):
        """An integer from low to high, both included."""
        return low + (self.bits() >> 16) % (high - low + 1)

    def choice(self, options):
        return options[self.between(0, len(options) - 1)]

    def percent(self, chance):
        return self.between(1, 100) <= chance

    def shuffled(self, items):
        items = list(items)
        for i in range(len(items) - 1, 0, -1):
            j = self.between(0, i)
            items[i], items[j] = items[j], items[i]
        return items


# ---------------------------------------------------------------- scenes
@dataclass
class Thing:
    """One shape: centre and half width in pixels, the third of the picture it is in (0 to 8, row by row)."""
    shape: str
    color: str
    cell: int
    x: int
    y: int
    radius: int
    rgb: tuple


@dataclass
class Scene:
    """Things in reading order, and the background: four tones, one for each quarter of the height."""
    width: int
    height: int
    tones: tuple
    things: list


def size_of(dice):
    """Width and height of a picture."""
    while True:
        width, height = dice.between(*SIDES), dice.between(*SIDES)
        if dice.percent(30):             # sizes that need no resize
            width, height = width // 32 * 32, height // 32 * 32
        half = 16 in (width % 32, height % 32)           # readers do not agree how to round those to multiples of 32
        if width * height <= MOST_PIXELS and not half:
            return width, height


def near(dice, rgb, spread):
    return tuple(min(255, max(0, c + dice.between(-spread, spread))) for c in rgb)


def place(dice, width, height, cell, others):
    """A centre well inside the cell and a radius that touches neither a border nor another shape."""
    column, row = cell % 3, cell // 3
    while True:
        radius = dice.between(RADII[0], dice.choice((22, 32, RADII[1])))
        x = (width * (100 * column + dice.between(20, 80))) // 300
        y = (height * (100 * row + dice.between(20, 80))) // 300
        inside = radius + 3 <= min(x, y) and x + radius + 3 < width and y + radius + 3 < height
        if inside and all(max(abs(x - o.x), abs(y - o.y)) > radius + o.radius + 4 for o in others):
            return x, y, radius


def scene_of(dice, width, height, count):
    """A scene of `count` things in as many different cells; kinds repeat often enough to be worth counting."""
    ground = near(dice, dice.choice(BACKGROUNDS), 4)
    step = dice.choice((0, 0, 0, -3, 3))
    tones = tuple(tuple(min(255, max(0, c + step * i)) for c in ground) for i in range(4))
    kinds, things = [], []
    for _ in range(count):
        if kinds and dice.percent(35):
            kinds.append(dice.choice(kinds))
        elif kinds and dice.percent(25):                     # the same shape or colour again, the other one not
            shape, color = dice.choice(kinds)
            kinds.append((shape, dice.choice(list(COLORS))) if dice.percent(50) else (dice.choice(SHAPES), color))
        else:
            kinds.append((dice.choice(SHAPES), dice.choice(list(COLORS))))
    for cell, (shape, color) in zip(sorted(dice.shuffled(range(9))[:count]), kinds):
        x, y, radius = place(dice, width, height, cell, things)
        things.append(Thing(shape, color, cell, x, y, radius, near(dice, COLORS[color], 12)))
    return Scene(width, height, tones, things)


def scene_from_seed(seed):
    dice = Dice(seed)
    width, height = size_of(dice)
    return scene_of(dice, width, height, dice.between(1, 5))


# ---------------------------------------------------------------- drawing
def mask(shape, radius):
    """(2 radius + 1) squared booleans: the pixels of a shape, by integer arithmetic."""
    y, x = np.mgrid[-radius:radius + 1, -radius:radius + 1].astype(np.int64)
    r = radius
    if shape == "circle":
        return x * x + y * y <= r * r
    if shape == "square":
        return np.maximum(abs(x), abs(y)) * 10 <= 9 * r
    if shape == "triangle":
        return (abs(x) * 2 <= y + r) & (y * 10 <= 8 * r)
    if shape == "diamond":
        return abs(x) * 4 + abs(y) * 3 <= 3 * r
    if shape == "cross":
        return np.minimum(abs(x), abs(y)) * 3 <= r
    if shape == "heart":                 # (x² + y² - 1)³ <= x² y³, y upwards, scaled by 10 r / 12 and lowered a little
        x, y, unit = 12 * x, r - 12 * y, 10 * r
        return (x * x + y * y - unit * unit) ** 3 <= x * x * y ** 3 * unit
    points = ((0, -1000), (951, -309), (588, 809), (-588, 809), (-951, -309))
    return sum((x * px + y * py <= 309 * r).astype(int) for px, py in points) >= 4       # a star, inside 4 of 5 lines


def draw(scene):
    """(height, width, 3) uint8."""
    picture = np.empty((scene.height, scene.width, 3), np.uint8)
    for quarter, tone in enumerate(scene.tones):
        picture[scene.height * quarter // 4:scene.height * (quarter + 1) // 4] = tone
    for t in scene.things:
        area = picture[t.y - t.radius:t.y + t.radius + 1, t.x - t.radius:t.x + t.radius + 1]
        area[mask(t.shape, t.radius)] = t.rgb
    return picture


# ---------------------------------------------------------------- files
def save(scene, path):
    """A PNG file with a palette: a kilobyte or two."""
    from PIL import Image
    picture = draw(scene)
    colors, indices = np.unique(picture.reshape(-1, 3), axis=0, return_inverse=True)
    image = Image.fromarray(indices.reshape(picture.shape[:2]).astype(np.uint8), "P")
    image.putpalette(colors.astype(np.uint8).tobytes())
    image.save(path, optimize=True, bits=4)


def truth(seed):
    """The seed's scene as JSON values, with the questions about it and their answers."""
    scene = scene_from_seed(seed)
    ask = sentences.some_questions(scene, Dice(seed + 1_000_000))
    return dict(seed=seed, width=scene.width, height=scene.height,
                things=[dict(shape=t.shape, color=t.color, place=sentences.PLACES[t.cell], x=t.x, y=t.y, radius=t.radius)
                        for t in scene.things],
                description=sentences.describe(scene), questions=[dict(question=q, answer=a) for q, a in ask])


def write_held_out(folder):
    os.makedirs(folder, exist_ok=True)
    rows = []
    for i in range(HELD_OUT):
        save(scene_from_seed(HELD_OUT_SEED + i), f"{folder}/{i:02}.png")
        rows.append(dict(file=f"{i:02}.png", **truth(HELD_OUT_SEED + i)))
    with open(f"{folder}/truth.json", "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("command", choices=("show", "held-out"))
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--out", default=".", help="the folder to write to")
    args = p.parse_args()
    if args.command == "held-out":
        return write_held_out(args.out)
    os.makedirs(args.out, exist_ok=True)
    save(scene_from_seed(args.seed), f"{args.out}/{args.seed}.png")
    print(sentences.describe(scene_from_seed(args.seed)))


if __name__ == "__main__":
    main()
