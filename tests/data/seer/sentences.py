"""Says what is in a scene of pictures.py: questions with the one right answer to each.

Every answer follows from the scene by a fixed rule, so an answer is right when its text is equal.
"""
SHAPES = ("circle", "square", "triangle", "star", "heart", "cross", "diamond")
COLORS = ("red", "orange", "yellow", "green", "blue", "purple", "pink", "black")
PLACES = ("at the top left", "at the top", "at the top right", "on the left", "in the middle", "on the right",
          "at the bottom left", "at the bottom", "at the bottom right")
NUMBERS = ("no", "one", "two", "three", "four", "five")

DESCRIBE = ("What is in the picture?",) * 8 + (
    "What do you see?", "Describe the picture.", "What is this?", "What can you see?", "What is in this picture?",
    "Describe this picture.", "What does the picture show?", "What is in the image?", "Describe the image.",
    "What's in the picture?", "What is shown here?")
GREETINGS = (("Hello!", "Hello! Show me a picture."), ("Hello", "Hello! Show me a picture."),
             ("Hi", "Hello! Show me a picture."), ("Who are you?", "I am a very small model that looks at pictures."),
             ("What can you do?", "I say which shapes are in a picture, and where they are."))
NO_PICTURE = "I see no picture."


# ---------------------------------------------------------------- grammar
def plural(noun):
    return noun + ("es" if noun.endswith("s") else "s")


def article(words):
    return ("an " if words[0] in "aeiou" else "a ") + words


def number(count, noun):
    """ "no stars", "one star", "two stars" """
    return f"{NUMBERS[count]} {noun if count == 1 else plural(noun)}"


def listed(parts):
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]


def places(things):
    return listed([PLACES[t.cell] for t in things])


def sentence(text):
    return text[0].upper() + text[1:] + "."


def kind_name(shape, color):
    """ "red circle", or "circle" or "red shape" where the other one is None. """
    return " ".join(filter(None, (color, shape or "shape")))


def matching(scene, shape, color):
    return [t for t in scene.things if shape in (None, t.shape) and color in (None, t.color)]


def describe(scene):
    """ "Two red circles on the left and at the top, and a blue star in the middle." Things alike are one group; groups
    and the places of a group are in reading order. """
    groups = {}
    for t in scene.things:
        groups.setdefault(kind_name(t.shape, t.color), []).append(t)
    parts = [(article(name) if len(group) == 1 else number(len(group), name)) + " " + places(group)
             for name, group in groups.items()]
    return sentence(parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + ", and " + parts[-1])


# ---------------------------------------------------------------- questions
def some_kind(scene, dice):
    """A shape and a colour, one of which may be None: mostly of the scene, sometimes not in it."""
    t = dice.choice(scene.things)
    shape = t.shape if dice.percent(75) else dice.choice(SHAPES)
    color = t.color if dice.percent(75) else dice.choice(COLORS)
    return dice.choice(((shape, color), (shape, None), (None, color)))


def how_many(scene, dice):
    shape, color = some_kind(scene, dice) if dice.percent(70) else (None, None)
    count, name = len(matching(scene, shape, color)), kind_name(shape, color)
    return f"How many {plural(name)} are there?", f"There {'is' if count == 1 else 'are'} {number(count, name)}."


def which_color(scene, dice):
    shape = some_kind(scene, dice)[0] or dice.choice(scene.things).shape
    things, word = matching(scene, shape, None), dice.choice(("color", "colour"))
    colors = list(dict.fromkeys(t.color for t in things))
    if len(things) > 1:
        return f"What {word} are the {plural(shape)}?", f"The {plural(shape)} are {listed(colors)}."
    return f"What {word} is the {shape}?", f"The {shape} is {colors[0]}." if things else f"There is no {shape}."


def where(scene, dice):
    shape, color = some_kind(scene, dice)
    things, name = matching(scene, shape, color), kind_name(shape, color)
    if len(things) > 1:
        return f"Where are the {plural(name)}?", f"The {plural(name)} are {places(things)}."
    return f"Where is the {name}?", f"The {name} is {places(things)}." if things else f"There is no {name}."


def is_there(scene, dice):
    shape, color = some_kind(scene, dice)
    found = matching(scene, shape, color)
    return f"Is there {article(kind_name(shape, color))}?", f"Yes, {places(found)}." if found else "No."


def what_is_at(scene, dice):
    cell = dice.choice(scene.things).cell if dice.percent(70) else dice.between(0, 8)
    here = [t for t in scene.things if t.cell == cell]
    return f"What is {PLACES[cell]}?", sentence(article(kind_name(here[0].shape, here[0].color))) if here else "Nothing."


KINDS = (how_many, which_color, where, is_there, what_is_at)


def some_questions(scene, dice):
    """One question of each kind, with the answers."""
    return [ask(scene, dice) for ask in KINDS]
