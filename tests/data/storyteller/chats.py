#!/usr/bin/env python3
"""What the storyteller is trained on: requests and conversations around the stories of `stories.py`.

    chats.py                        a few training documents, as they are
    chats.py --seed 7 --count 3

A story is told first; the request is then made from what is in it, so the two always agree. A document is a list of
(text, learn) pieces: only the pieces to learn count in the loss, which are the teller's own words, and in raw text all
that follows the prompt. Every fourth document is raw text (`prompt`, a blank line, the story, <|endoftext|>), the
others are chats in ChatML.
"""
import argparse

import world
from stories import COMMON_KINDS, COMMON_THINGS, Dice, KINDS, THINGS, Wanted, article, capital, expand, held_out, tell, words

END, IM_START, IM_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
CHAT_TEMPLATE = ("{%- for message in messages %}{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}{%- endfor %}"
                 "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}")


# ---------------------------------------------------------------- requests
ASK = ("Tell me a story", "Tell me a story", "[Tell|Tell|Tell|Write|Give|Read] me a [|||little|short|nice|new|lovely] [story|story|story|tale]", "Please tell me a [|little|short] [story|tale]",
       "[Tell|Write|Make up|Invent] a [|||short|little|sweet] [story|story|tale]", "[Can|Could|Would|Will] you [please|] [tell|write] [me|] a [|little|short] [story|tale]",
       "I [want|would like|'d like] [to hear|] a [story|tale]", "[A|Another] [story|tale]", "Do you know a [story|tale]", "[Let us|Let me] hear a [story|tale]",
       "A [little|short|] [story|tale], please,", "My [daughter|son|sister|friend] wants a [story|tale]", "I need a [story|tale]")
DEEDS = {
    "journey": ("who [goes|sets out] {wish}", "who makes a journey with {ao}"), "lost": ("who [lost|loses] {his} {o}", "who cannot find {his} {o}", "who has lost {ao}"),
    "gift": ("who gives [away {his}|a friend {his}] {o}", "who needs a present"), "rescue": ("who helps somebody with {ao}", "who saves [somebody|{second}]"),
    "broken": ("whose {o} [breaks|broke|is broken]", "who breaks {his} {o}"), "quarrel": ("who [quarrels|fights] about {ao}", "who must learn to share"),
    "owner": ("who [finds|found] {ao}", "who finds {ao} that belongs to somebody else"), "afraid": ("who is afraid", "who is not brave", "who learns to be brave"),
    "fair": ("who goes to the fair with {ao}", "who wins a prize"), "magic": ("who gets a wish", "and a magic {o}", "and a wishing {o}"),
    "lonely": ("who is lonely", "who has no friends", "who is looking for a friend"), "bargain": ("who [wants|wishes for] {ao}", "who has no money for {ao}"),
}
THEMES = {
    "journey": ("a [long|great|] journey", "a wish [that comes true|]", "traveling"),
    "lost": ("something that is lost and found", "losing something", "a lost {o}"),
    "gift": ("a present", "giving", "a good friend"),
    "rescue": ("helping", "a rescue", "kindness", "helping others"),
    "broken": ("mending something", "something broken", "a broken {o}"),
    "quarrel": ("sharing", "a quarrel", "two friends [who quarrel|]"),
    "owner": ("finding something", "honesty", "being honest"),
    "afraid": ("courage", "being brave", "being afraid", "fear"),
    "fair": ("a fair", "a contest", "being laughed at"),
    "magic": ("magic", "a magic {o}", "a single wish", "kindness"),
    "lonely": ("friendship", "being lonely", "making a friend"),
    "bargain": ("a bargain", "paying without money", "a strange price"),
}
PREPOSITION = {"mountain": "on a mountain", "island": "on an island", "farm": "on a farm", "hill": "on a hill", "moor": "on a moor", "river": "by a river", "seaside": "by the sea",
               "lake": "by a lake", "canal": "by a canal", "mill pond": "by a mill pond", "snowy land": "in the snow", "cave country": "in the hills", "crossroads": "at a crossroads",
               "market town": "in a market town", "little town": "in a little town"}


def subject(story, dice, weights=("both",) * 26 + ("reverse",) * 3 + ("hero",) * 7 + ("thing",) * 5 + ("second",) * 4 + ("place",) * 6 + ("wish",) * 4
            + ("name",) * 5 + ("theme",) * 4 + ("deed",) * 5 + ("who has",) * 5 + ("adjectives",) * 5 + ("nothing",) * 3 + ("all",) * 2):
    """What a request says the story should be about, from what is in the story."""
    f, w = story.facts, story.wanted
    hero, thing = article(w.hero), article(w.thing)
    the_hero, the_thing = "the " + w.hero, "the " + w.thing
    place = dice.choice((f["at"], PREPOSITION.get(w.place, f"in {article(w.place)}")))
    what = dice.choice(weights)
    if "name" in story.mention:
        what = "name and thing"
    elif story.mention:
        what = dice.choice(("both",) * 12 + ("who has", "adjectives", "reverse"))
    if what == "wish" and not f["wish"] or what == "second" and not f["second"]:
        what = "both"
    options = {
        "both": (f"about {hero} and {thing}",) * 5 + (f"with {hero} and {thing}", f"of {hero} and {thing}", f"about {the_hero} and {the_thing}", f"about {w.hero} and {w.thing}", f"with {hero} and {thing} in it",
                 f"about {hero} with {thing}"),
        "reverse": (f"about {thing} and {hero}", f"with {thing} and {hero}"),
        "hero": (f"about {hero}",) * 4 + (f"with {hero}", f"about a {'lonely' if w.plot == 'lonely' else 'brave' if w.plot == 'afraid' else 'good'} {w.hero}"),
        "thing": (f"about {thing}",) * 4 + (f"with {thing} in it", f"about {f['a_thing']}"),
        "second": (f"about {hero} and {article(f['second'])}" if f["second"] else "",) * 3 + (f"about {hero}, {article(f['second'])} and {thing}" if f["second"] else "",),
        "place": (f"about {hero} and {thing} {place}", f"about {hero} {place}", f"about {hero} and {thing}, set {place}", f"that happens {place}, about {hero}"),
        "wish": (f"about {hero} who [wants|wishes|longs] {f['wish']}", f"about {hero} and {thing} and a wish {f['wish']}", f"about {hero} whose wish is {f['wish']}"),
        "name": (f"about {hero} [named|called] {w.name}", f"about {hero} [named|called] {w.name} and {thing}", f"about {w.name} the {w.hero}", f"about {w.name} the {w.hero} and {f['his']} {w.thing}"),
        "name and thing": (f"about {hero} [named|called] {w.name} and {thing}", f"about {w.name} the {w.hero} and {f['his']} {w.thing}", f"about {w.name} the {w.hero} and {thing}"),
        "theme": (f"about {dice.choice(THEMES[w.plot])}", f"about {dice.choice(THEMES[w.plot])} with {hero} and {thing}", f"about {dice.choice(THEMES[w.plot])}, with {hero}"),
        "who has": (f"about {hero} who has {thing}", f"about {hero} and {f['his']} {w.thing}", f"about {hero} who finds {thing}" if w.plot in ("owner", "bargain", "quarrel") else f"about {hero} and {f['his']} {w.thing}"),
        "adjectives": (f"about {f['hero']} and {f['a_thing']}", f"about {f['hero']} and {thing}", f"about {hero} and {f['a_thing']}"),
        "nothing": ("",),
        "deed": tuple(f"about {dice.choice((hero, hero, f['hero']))} {d}" for d in DEEDS[w.plot] if f["second"] or "{second}" not in d),
        "all": (f"about {hero} called {w.name} and {thing} {place}", f"about {w.name}, {hero} with {thing}, {place}"),
    }[what]
    return expand(dice.choice(options), {"o": w.thing, "ao": thing, "his": f["his"], "wish": f["wish"] or "", "second": article(f["second"] or "friend")}, dice)


def tidy(text):
    return " ".join(text.replace(" 'd", "'d").split()).replace(" ,", ",")


def request(story, dice):
    """A request that this story answers."""
    w = story.wanted
    if w.bedtime:
        ask = expand("[Tell me|I want|Please tell me|Can you tell me|Read me] a [bedtime|good-night] story", {}, dice)
    elif "name" not in story.mention and dice.chance(0.04):
        text = dice.choice((f"The {w.hero} and the {w.thing}", f"{w.hero} and {w.thing}", f"{w.hero}, {w.thing}", f"Story: {w.hero} and {w.thing}", f"{w.hero} {w.thing} story", f"{article(w.hero)} and {article(w.thing)}", f"A {w.hero} story with {article(w.thing)}", f"The {capital(w.hero)} and the {capital(w.thing)}"))
        return text + dice.choice(("", "", "."))
    else:
        ask = expand(dice.choice(ASK), {}, dice)
    text = tidy(f"{ask} {subject(story, dice)}").rstrip(",")
    question = text.startswith(("Can", "Could", "Would", "Will", "Do "))
    polite = "please" in text
    text += dice.choice(("?", "?", "", "?" if polite else ", please?") if question else (".", ".", ".", "", "", "", "!") + (() if polite else (", please.", " please", ", please")))
    if dice.chance(0.12):
        text = text.lower()
    return text


SHORT_ASK = ("short short story", "story of three sentences", "super short story", "story, but keep it very short,", "very short tale", "very short story", "tiny story", "story in three sentences", "story in a few sentences", "really short story", "one-minute story")


def short_request(story, dice):
    return expand(f"[Tell|Write|Give] me a {dice.choice(SHORT_ASK)} ", {}, dice) + subject(story, dice, ("both", "both", "hero", "thing")) + dice.choice((".", "", "!"))


# ---------------------------------------------------------------- small talk
SYSTEM = ("You are a storyteller.", "You are a helpful assistant.", "You tell little stories.", "You are a kind storyteller for children.", "Tell stories for children.",
          "You are Storyteller, a small language model.", "Be kind.", "You are a friendly teller of tales.", "You answer with stories.", "You write fairy tales.")
SYSTEM_SHORT = ("Keep it short.", "Be short.", "Write short stories, three sentences at most.", "Short answers only.", "Answer briefly.", "Tell tiny stories.", "Use few words.", "Please be concise.", "Keep your stories very short.", "You tell very short stories.", "Answer in three sentences.", "Be brief.", "You are a storyteller. Keep it short.")
HELLO = ("[Hello|Hi|Hey|Good morning|Good evening|hello|hi|Hello there|hey there][|!|.]", "[Hi|Hello], how are you?", "How are you[| today]?")
HELLO_BACK = ("[Hello|Good day]! I tell little stories. [Who should be in yours|What should the first one be about|Shall I tell you one]?", "Hello! I am well, and I have a story ready. [Who should be in it|What should be in it]?",
              "[Hello|Good day]! Tell me who and what, {hero} and {thing}, say, and I will tell you a story.")
WHO = ("[Who|What] are you?", "who are you", "What can you do?", "what can you do", "What is this?", "Tell me about yourself.", "Are you an AI?", "What is your name?", "How big are you?", "Help", "What do you know?")
I_AM = ("I am a very small language model, and I know only one thing: how to tell little stories. Tell me who and what, {hero} and {thing}, say.",
        "I am Storyteller, a tiny language model made for little stories. [Shall I tell you one about {hero} and {thing}|Would you like one about {hero} and {thing}]?",
        "I am a small teller of small tales. Name somebody and something, {hero} and {thing}, perhaps, and I will begin.")
THANKS = ("[Thank you|Thanks|thanks|thank you][|!|.| very much.| so much!]", "[That was a|What a] [nice|lovely|beautiful|wonderful|good] [story|one][.|!]", "I [liked|loved] [it|that|the {k}|this story][.|!]", "[Nice|Lovely|Wonderful|Great|Beautiful][.|!]")
WELCOME = ("You are welcome! [Would you like another one|Shall I tell you another]?", "I am glad that you liked it. [There are more where it came from|Would you like another one].".replace("one].", "one]?"),
           "It was a pleasure. {^hero} and {thing} are waiting for the next story.", "Thank you for listening!")
BYE = ("[Bye|Goodbye|Good night|See you|bye|good night][|!|.]", "[That is all|That's all][.|, thank you.]")
BYE_BACK = ("Good night, and sleep well.", "Goodbye! Come back when you need a story.", "Goodbye, and may your road be gentle.", "Sleep well. The stories will wait.")
OTHER = ("What is the capital of {land}?", "Why is the {sky} {blue}?", "How do I {do}?", "What is {n} {plus} {m}?", "Can you {can}?", "Write [a|some] {code}[| for me].", "What is the meaning of {word}?", "Explain {word}[| to me].",
         "Who [invented|discovered|wrote|was] {who}?", "Translate '{word}' into [French|German|Spanish|Chinese].", "What time is it?", "What is the weather [like|today|tomorrow]?", "How [old|tall|far|big|deep] is [the sun|the moon|the sea|the earth|a whale|a mountain]?",
         "What do you think about {word}?", "Is {word} [good|bad|true|real]?", "[Give me|I need] a recipe for {dish}.", "Solve x + {n} = {m}.", "When was {who} born?", "Do you like {word}?", "Where is {land}?", "Tell me a joke.", "Sing me a song.",
         "Write a poem about {word}.", "What should I {eat}?", "List [three|five|ten] {things}.", "Summarize this text.", "How does {word} work?", "Why?", "What?", "Why do [cats|dogs|birds|people|stars] [sleep|sing|dream|shine|run]?")
OTHER_WORDS = {
    "land": "France Germany Japan Brazil Peru Kenya Canada India Norway Egypt Mexico Spain".split(), "sky": "sky sea grass sun moon snow fire night".split(), "blue": ["blue", "green", "hot", "cold", "white", "dark", "so far away"],
    "do": ["bake bread", "learn to swim", "fix my bike", "write code", "sort a list", "cook rice", "get rich", "sleep better", "install this", "read a file", "make friends"],
    "can": ["code", "sing", "dance", "count", "help me with my homework", "do math", "see", "think", "speak French", "write an essay", "write an email", "play chess"],
    "code": ["Python program", "code", "function that adds two numbers", "Rust program", "email to my boss", "essay about history", "letter to the bank", "test"],
    "word": ["love", "life", "gravity", "time", "music", "science", "money", "history", "war", "light", "the internet", "a computer", "water", "dreams", "physics", "freedom", "inkstone", "Rust", "tea", "coffee", "rain"],
    "who": ["the telephone", "Shakespeare", "Einstein", "Napoleon", "America", "the wheel", "the airplane", "Mozart", "Cleopatra", "penicillin"], "dish": ["soup", "pizza", "bread", "pancakes", "apple pie", "curry", "cake"],
    "eat": ["eat", "wear", "read", "do today", "cook tonight", "say to her"], "things": ["animals", "colors", "cities", "planets", "fruits", "books", "rivers"], "plus": ["+", "plus", "times", "-", "minus", "*", "divided by"],
}
ONLY_STORIES = ("I only know little stories, [I am afraid|and nothing else]. [Shall I tell you one|Would you like one] about {hero} and {thing}?", "That I do not know. But I do know a story about {hero} and {thing}. [Shall I tell it|Would you like to hear it]?",
                "I am too small to know that, but I can tell you a story. [How about one|Perhaps one] about {hero} and {thing}?")
YES = ("[Yes|yes|Yes, please|yes please|Sure|Okay|ok|OK|Of course|Please do|Go on|Gladly|Why not][|.|!]",)
SHORTER = ("[Make it|Can you make it|Please make it] [shorter|short|much shorter][|.|!]", "[Too long|That is too long][.|!| for me.]", "[Shorter|Shorter, please|shorter please|Now shorter][|.|!]", "Summarize [it|the story|that][|.]",
           "Tell [it|the same story] again, but shorter[|.]", "The short version[|, please].", "[Can|Could] you [shorten it|tell it in three sentences]?")
AGAIN = ("[Another one|One more|Another|Again|Another story|Tell me another one|more][|!|.|, please.| please]", "Tell me another story about the {k}.", "[And another|Now another] one about {a_k} and {a_o}.", "Another one about {a_k}[|, please].")
NEXT = ("Now [one|a story|tell me one] about {a_k} and {a_o}[|.|, please.]", "And [one|now one] with {a_k} and {a_o}?", "What about {a_k} and {a_o}?", "[Now|And] {a_k} and {a_o}[|.|!]", "Next: {a_k} and {a_o}[|.]")


def questions(story):
    """Questions about a story, with their answers."""
    f = story.facts
    who = ("the " + f["kind"], f["name"])
    ask = [("What [was|is] the {kind}'s name?", "The {kind}'s name was {name}."), ("What [was|is] the {kind} called?", "The {kind} was called {name}."), ("[What was|And what was|What is] {his} name?", "The {kind}'s name was {name}."), ("Where did {who} live?", "{name} lived {at}."),
           ("What [animal|creature|kind of hero] was {name}?" if not f["kind"] in ("girl", "boy") else "Who was {name}?", "{name} was {hero}."), ("What did {who} have?", "{name} had {a_thing}."), ("[Which|What] thing was in the story?", "It was {a_thing}.")]
    if f["wish"]:
        ask += [("What did {who} wish [for|]?", "{name} wished {wish}.")] * 2
    if f["helper"]:
        ask += [("Who did {who} meet?", "{name} met {helper}."), ("Who else was in the story?", "There was {helper}.")]
    if story.plot in MORALS:
        ask += [("What is the moral[| of the story]?", MORALS[story.plot]), ("What can we learn from [it|that|this story]?", MORALS[story.plot])]
    return ask, who


MORALS = {
    "journey": "That even a long road is made of small steps.", "lost": "That what is lost is found more easily by two.", "gift": "That the best presents are the ones that are hard to give away.",
    "rescue": "That anyone can help, even with a small thing.", "broken": "That a mended thing can be dearer than a new one.", "quarrel": "That a thing is worth more when it is shared.",
    "owner": "That who gives back what was lost may find a friend.", "afraid": "That to be brave is to be afraid and to help all the same.", "fair": "That the most wonderful thing is the one that helps.",
    "magic": "That a wish spent on somebody else is not lost.", "lonely": "That a small sign can bring a friend to the door.", "bargain": "That the best things are not paid for with money.",
}


# ---------------------------------------------------------------- documents
ONSETS = "b bl br c ch cl cr d dr f fl fr g gl gr h j k l m n p pl pr qu r s sc sh sk sl sm sn sp st str sw t th tr tw v w wh z".split() + [""]
VOWELS = "a a e e i i o o u ai ay ea ee ie oa oo ou".split()
LIFELESS = sorted({*words(world.ANYTHING), *THINGS} - set(KINDS))
ANYTHING = sorted({*LIFELESS, *KINDS})
CODAS = "b ck d g ft l ll lt m mp n nd ng nk nt p r rd rk rm rn rt s sh st t x".split() + [""] * 12


class Maker:
    """Makes training documents; `allow` says which heroes may meet which things."""

    def __init__(self, dice, allow=lambda hero, thing: not held_out(hero, thing)):
        self.dice, self.allow = dice, allow

    def invented(self, role):
        """A word that means nothing yet, so that the teller learns to take any word it is given. Who lives is never a thing."""
        dice = self.dice
        real = ANYTHING if role == "hero" else LIFELESS
        kind = dice.choice(("real", "real", "real", "pair", "sound", "sound"))
        if kind == "real":
            return dice.choice(real)
        if kind == "pair":
            return f"{dice.choice(real)} {dice.choice(real)}"
        return "".join(dice.choice(ONSETS) + dice.choice(VOWELS) + dice.choice(CODAS) for _ in range(dice.choice((1, 2, 2, 2, 3))))

    def story(self, **wanted):
        return tell(Wanted(**wanted), self.dice, self.allow)

    def surprise(self):
        """A story with invented words in it now and then; the request has to name those."""
        wanted = {key: self.invented(key) for key in ("hero", "thing") if self.dice.chance(0.1)}
        if self.dice.chance(0.06):
            wanted["name"] = capital(self.invented("name").split()[0])
        if len(wanted.keys() & {"hero", "thing"}) == 2 and not self.allow(wanted["hero"], wanted["thing"]):
            del wanted["thing"]
        story = self.story(**wanted)
        story.mention = tuple(wanted)
        return story

    def pair(self):
        """A hero and a thing to offer."""
        while True:
            hero, thing = self.dice.choice(COMMON_KINDS).noun, self.dice.choice(COMMON_THINGS).noun
            if self.allow(hero, thing):
                return hero, thing

    def say(self, options, **fields):
        return expand(self.dice.choice(options), fields, self.dice)

    def offer(self, options):
        hero, thing = self.pair()
        return self.say(options, hero=article(hero), thing=article(thing)), hero, thing

    def other_question(self):
        dice = self.dice
        fields = {k: expand(dice.choice(v), {}, dice) for k, v in OTHER_WORDS.items()}
        text = self.say(OTHER, n=str(1 + dice._randbelow(99)), m=str(1 + dice._randbelow(99)), **fields)
        return text.lower() if dice.chance(0.15) else text

    def opening(self, turns):
        """The first story of a chat."""
        dice = self.dice
        story = self.story(bedtime=True) if dice.chance(0.04) else self.surprise()
        turns += [("user", request(story, dice)), ("assistant", story.text)]
        return story

    def follow_up(self, story, turns):
        """One more exchange after a story."""
        dice = self.dice
        kind = dice.choice(("next",) * 5 + ("again",) * 4 + ("shorter",) * 5 + ("thanks",) * 5 + ("question",) * 8 + ("other",) * 2 + ("bye",) + ("who",))
        if kind in ("next", "again"):
            again = kind == "again"
            new = self.story(hero=story.wanted.hero, thing=story.wanted.thing if dice.chance(0.8) else None) if again else self.surprise()
            fields = {"k": new.wanted.hero, "a_k": article(new.wanted.hero), "a_o": article(new.wanted.thing)}
            if "name" in new.mention or not again and dice.chance(0.4):
                ask = request(new, dice)
            else:
                ask = self.say(AGAIN if again else NEXT, **fields)
            turns += [("user", ask), ("assistant", new.text)]
            return new
        if kind == "shorter":
            turns += [("user", self.say(SHORTER)), ("assistant", story.short)]
        elif kind == "thanks":
            turns += [("user", self.say(THANKS, k=story.wanted.hero)), ("assistant", self.offer(WELCOME)[0])]
        elif kind == "question":
            asks, who = questions(story)
            ask, answer = dice.choice(asks)
            fields = {**{k: v for k, v in story.facts.items() if v}, "who": dice.choice(who)}
            turns += [("user", tidy(expand(ask, fields, dice)).replace(" ?", "?")), ("assistant", expand(answer, fields, dice))]
        elif kind == "other":
            turns += [("user", self.other_question()), ("assistant", self.offer(ONLY_STORIES)[0])]
        elif kind == "who":
            turns += [("user", self.say(WHO)), ("assistant", self.offer(I_AM)[0])]
        else:
            turns += [("user", self.say(BYE)), ("assistant", self.say(BYE_BACK))]
        return story

    def chat(self):
        dice, turns = self.dice, []
        kind = dice.choice(("story",) * 14 + ("longer",) * 9 + ("talk",) * 4 + ("short",) * 2)
        if kind == "story":
            self.opening(turns)
        elif kind == "longer":
            story = self.opening(turns)
            for _ in range(dice.choice((1, 1, 1, 2, 2, 3))):
                story = self.follow_up(story, turns)
        elif kind == "short":
            story = self.story()
            if dice.chance(0.5):
                turns += [("system", self.say(SYSTEM_SHORT)), ("user", request(story, dice)), ("assistant", story.short)]
            else:
                turns += [("user", short_request(story, dice)), ("assistant", story.short)]
        else:
            ask, back = dice.choice(((HELLO, HELLO_BACK), (HELLO, HELLO_BACK), (WHO, I_AM), (WHO, I_AM), (None, ONLY_STORIES), (None, ONLY_STORIES), (THANKS, WELCOME)))
            answer, hero, thing = self.offer(back)
            turns += [("user", self.say(ask, k=hero) if ask else self.other_question()), ("assistant", answer)]
            then = dice.choice(("nothing", "yes", "yes", "request", "request", "other"))
            if then == "yes" and hero in answer:
                turns += [("user", self.say(YES)), ("assistant", self.story(hero=hero, thing=thing).text)]
            elif then == "other":
                turns += [("user", self.other_question()), ("assistant", self.offer(ONLY_STORIES)[0])]
            elif then == "request":
                story = self.opening(turns)
                if dice.chance(0.3):
                    self.follow_up(story, turns)
        if turns[0][0] != "system" and dice.chance(0.1):
            turns.insert(0, ("system", self.say(SYSTEM)))
        return turns

    def raw(self):
        """A prompt and a story without chat marks, or a story alone. How the prompt ends varies, as it does in life."""
        dice = self.dice
        if dice.chance(0.2):
            return [(self.story().text, True), (END, True)]
        story = self.surprise()
        prompt = request(story, dice)
        how = dice.choice(("whole",) * 6 + ("cut", "cut", "line"))
        if how == "cut" or prompt[-1] not in ".!?":           # a prompt that ended before the blank line
            return [(prompt, False), ("\n\n" + story.text, True), (END, True)]
        if how == "line":
            return [(prompt + "\n", False), ("\n" + story.text, True), (END, True)]
        return [(prompt[:-1], False), (prompt[-1] + "\n\n" + story.text, True), (END, True)]

    def document(self):
        return self.raw() if self.dice.chance(0.25) else pieces(self.chat())


def pieces(turns):
    """A chat as (text, learn) pieces; only what the assistant says is learnt."""
    out = []
    for role, content in turns:
        out.append((f"{IM_START}{role}\n", False))
        out.append((content, role == "assistant"))
        out.append((IM_END, role == "assistant"))
        out.append(("\n", False))
    return out


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--count", type=int, default=5)
    args = p.parse_args()
    for seed in range(args.seed, args.seed + args.count):
        print(f"-- {seed}\n" + "".join(text for text, _ in Maker(Dice(seed)).document()) + "\n")


if __name__ == "__main__":
    main()
