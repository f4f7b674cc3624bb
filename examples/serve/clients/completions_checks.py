"""Checks the completions API, and the refusal of embeddings, with the official client of OpenAI."""

import openai

from chat_checks import client
from harness import Checks, raises

completions = Checks()


@completions
def a_completion_continues_a_prompt(server):
    answer = client(server).completions.create(model=server.model, prompt="Once upon a time", max_tokens=12, temperature=0)
    assert answer.choices[0].text and answer.usage.completion_tokens == 12
    default = client(server).completions.create(model=server.model, prompt="Once upon a time", temperature=0)
    assert default.usage.completion_tokens == 16


@completions
def completions_take_lists_of_texts_and_ids(server):
    _, tokens = server.post("/tokenize", {"content": "Once upon a time", "add_special": True})
    create = lambda prompt, **options: client(server).completions.create(
        model=server.model, prompt=prompt, max_tokens=8, temperature=0, **options
    )
    text = create("Once upon a time").choices[0].text
    assert create(tokens["tokens"]).choices[0].text == text
    both = create(["Once upon a time", "The Fox and the Lantern"])
    assert both.choices[0].text == text and both.choices[1].text != text
    assert len(create([tokens["tokens"]] * 2, n=2).choices) == 4


@completions
def completions_stream_with_log_probabilities(server):
    options = {"model": server.model, "prompt": "Once upon a time", "max_tokens": 8, "temperature": 0, "logprobs": 2}
    choice = client(server).completions.create(**options).choices[0]
    assert "".join(choice.logprobs.tokens) == choice.text and choice.logprobs.text_offset[0] == 0
    assert all(len(top) == 2 for top in choice.logprobs.top_logprobs)
    chunks = list(client(server).completions.create(**options, stream=True, stream_options={"include_usage": True}))
    assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices) == choice.text
    assert chunks[-1].usage.completion_tokens == 8
    offsets = [offset for chunk in chunks for c in chunk.choices for offset in c.logprobs.text_offset]
    assert offsets == choice.logprobs.text_offset


@completions
def completions_name_what_is_not_there(server):
    create = lambda **options: client(server).completions.create(model=server.model, prompt="x", **options)
    for field, value in [("echo", True), ("suffix", "y"), ("best_of", 3), ("logprobs", 100)]:
        raises(openai.BadRequestError, lambda: create(**{field: value}), field)
    raises(openai.BadRequestError, lambda: client(server).completions.create(model=server.model, prompt=[]), "prompt")
    raises(openai.BadRequestError, lambda: client(server).completions.create(model=server.model, prompt=[10**6]), "vocabulary")


@completions
def embeddings_are_refused(server):
    raises(openai.BadRequestError, lambda: client(server).embeddings.create(model=server.model, input="x"), "embeddings")
