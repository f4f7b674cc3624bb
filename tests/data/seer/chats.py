"""Conversations about pictures, for training: the chat template, what is said, and which of it is learnt.

A conversation is a list of pieces: text that is given, text that is learnt, and pictures.
"""
import sentences

END, IM_START, IM_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
VISION_START, VISION_END, IMAGE, VIDEO = "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"
SPECIAL = (END, IM_START, IM_END, VISION_START, VISION_END, IMAGE, VIDEO)       # the last ids of the vocabulary
CHAT_TEMPLATE = (
    "{%- for message in messages %}{{- '<|im_start|>' + message.role + '\\n' }}"
    "{%- if message.content is string %}{{- message.content }}{%- else %}{%- for item in message.content %}"
    "{%- if item.type == 'image' %}{{- '<|vision_start|><|image_pad|><|vision_end|>' }}"
    "{%- elif item.type == 'text' %}{{- item.text }}{%- endif %}{%- endfor %}{%- endif %}{{- '<|im_end|>\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}")
SYSTEM = ("You are a helpful assistant.", "You look at pictures.", "Answer the questions about the picture.")


class Piece:
    """Text, learnt or given, or the picture of that number; `what` names the kind of question of a learnt text."""

    def __init__(self, text=None, what=None, picture=None):
        self.text, self.what, self.picture = text, what, picture


class Conversation:
    def __init__(self):
        self.pieces = []

    def given(self, text):
        self.pieces.append(Piece(text))

    def turn(self, question, answer, what, pictures=(), question_first=False):
        """A question, the pictures before or after it, and the answer."""
        self.given(f"{IM_START}user\n" + (question if question_first else ""))
        for number in pictures:
            self.given(VISION_START)
            self.pieces.append(Piece(picture=number))
            self.given(VISION_END)
        self.given(("" if question_first else question) + f"{IM_END}\n{IM_START}assistant\n")
        self.pieces.append(Piece(answer + IM_END, what))
        self.given("\n")


def question_about(scene, dice, description):
    """Question, answer and kind; the description is asked for with the given chance in percent."""
    if dice.percent(description):
        return dice.choice(sentences.DESCRIBE), sentences.describe(scene), "describe"
    ask = dice.choice(sentences.KINDS)
    return *ask(scene, dice), ask.__name__


def about_one(scene, dice, talk, picture=0):
    """Questions about one picture: the picture comes with the first.

    A description is asked for seldom, since with one before it an answer needs no look at the picture.
    """
    for i in range(dice.choice((1, 2, 3, 4, 5, 6))):
        question, answer, what = question_about(scene, dice, 35 if i == 0 else 12)
        talk.turn(question, answer, what, (picture,) if i == 0 else (), i == 0 and dice.percent(10))


def about_two(scenes, dice, talk):
    """Two pictures: one after the other, where questions mean the last, or both at once, first and second by name."""
    if dice.percent(50):
        for picture, scene in enumerate(scenes):
            about_one(scene, dice, talk, picture)
        return
    for i in range(dice.between(1, 3)):
        k = dice.between(0, 1)
        question = f"What is in the {('first', 'second')[k]} picture?"
        talk.turn(question, sentences.describe(scenes[k]), "first or second", (0, 1) if i == 0 else ())


def conversation(scenes, dice):
    """A conversation about one or two scenes, now and then with small talk before, or without a picture."""
    talk = Conversation()
    if dice.percent(8):
        talk.given(f"{IM_START}system\n{dice.choice(SYSTEM)}{IM_END}\n")
    if dice.percent(4):
        if dice.percent(50):
            talk.turn(*dice.choice(sentences.GREETINGS), "greeting")
        else:
            talk.turn(question_about(scenes[0], dice, 50)[0], sentences.NO_PICTURE, "no picture")
        if dice.percent(50):
            return talk.pieces
    if len(scenes) == 2:
        about_two(scenes, dice, talk)
    else:
        about_one(scenes[0], dice, talk)
    return talk.pieces
