"""Checks the responses API with the official client of OpenAI."""

import json

import openai
from openai import OpenAI
from pydantic import BaseModel

from harness import PERSON, WEATHER, Checks, image_url, raises

responses = Checks()
tools = Checks()
images = Checks()
reasoning = Checks()

FOX = "Tell me a story about a fox and a lantern"
TOOL = {"type": "function", "name": "weather", "description": "The weather", "parameters": WEATHER, "strict": False}


def client(server):
    return OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)


def ask(server, items=FOX, **options):
    options.setdefault("max_output_tokens", 24)
    options.setdefault("temperature", 0)
    return client(server).responses.create(model=server.model, input=items, **options)


@responses
def a_response_has_items_and_usage(server):
    response = ask(server)
    assert response.output_text.startswith("Once upon a time")
    assert response.status == "incomplete" and response.incomplete_details.reason == "max_output_tokens"
    assert response.usage.output_tokens == 24 and response.store is False
    assert ask(server, "Hello!", max_output_tokens=200).status == "completed"


@responses
def a_response_streams_with_named_events(server):
    events = list(ask(server, stream=True))
    kinds = [event.type for event in events]
    assert kinds[:4] == ["response.created", "response.in_progress", "response.output_item.added", "response.content_part.added"]
    assert kinds[-4:] == [
        "response.output_text.done", "response.content_part.done", "response.output_item.done", "response.incomplete",
    ]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == ask(server).output_text == events[-1].response.output_text


@responses
def the_stream_helper_puts_a_response_together(server):
    with client(server).responses.stream(model=server.model, input="Hello!", temperature=0, max_output_tokens=200) as stream:
        list(stream)
        response = stream.get_final_response()
    assert response.output_text and response.status == "completed"


@responses
def a_conversation_is_sent_as_items(server):
    first = ask(server, "Hello!", max_output_tokens=200)
    items = [{"role": "user", "content": "Hello!"}, *first.output, {"role": "user", "content": [{"type": "input_text", "text": "Thanks"}]}]
    response = ask(server, items, instructions="Keep it short.")
    assert response.output_text and response.instructions == "Keep it short."
    developer = {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be kind."}]}
    assert ask(server, [developer, *items[:1]], instructions="Keep it short.").output_text


@responses
def the_request_of_codex_is_understood(server):
    body = {
        "model": server.model, "instructions": "You are a coding agent.", "stream": True, "store": False,
        "input": [
            {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "<permissions>"}]},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
        ],
        "tools": [], "tool_choice": "auto", "parallel_tool_calls": False, "reasoning": None,
        "include": ["reasoning.encrypted_content"], "prompt_cache_key": "0193", "client_metadata": {"a": "b"},
    }
    status, text = server.post("/v1/responses", body)
    assert status == 200 and "event: response.completed" in text, text
    status, text = server.post("/v1/responses", {**body, "reasoning": {"summary": "auto"}})
    assert status == 200, text


@responses
def json_follows_a_schema(server):
    form = {"format": {"type": "json_schema", "name": "person", "schema": PERSON, "strict": True}}
    person = json.loads(ask(server, text=form, max_output_tokens=100).output_text)
    assert set(person) == {"name", "age"}

    class Answer(BaseModel):
        happy: bool

    parsed = client(server).responses.parse(model=server.model, input=FOX, text_format=Answer, temperature=0)
    assert isinstance(parsed.output_parsed.happy, bool)


@responses
def log_probabilities_are_included(server):
    response = ask(server, include=["message.output_text.logprobs"], top_logprobs=2)
    [part] = response.output[0].content
    assert "".join(token.token for token in part.logprobs) == part.text
    assert all(len(token.top_logprobs) == 2 for token in part.logprobs)


@responses
def what_is_not_there_is_named(server):
    fields = {
        "store": True, "background": True, "previous_response_id": "resp_1", "truncation": "auto", "max_tool_calls": 2,
        "conversation": "conv_1", "include": ["file_search_call.results"], "prompt": {"id": "p"}, "service_tier": "flex",
    }
    for field, value in fields.items():
        error = raises(openai.BadRequestError, lambda: ask(server, **{field: value}), field)
        assert field in error.param, (field, error.param)
    raises(openai.BadRequestError, lambda: ask(server, tools=[{"type": "web_search"}]), "tools[0]", "web_search")
    item = {"type": "item_reference", "id": "x"}
    raises(openai.BadRequestError, lambda: ask(server, [item]), "item_reference")
    raises(openai.BadRequestError, lambda: ask(server, "fox " * 5000, stream=True), "context")


@tools
def a_call_and_its_result_are_items(server):
    options = {"tools": [TOOL], "parallel_tool_calls": False}
    first = ask(server, tool_choice="required", max_output_tokens=200, **options)
    [call] = first.output
    assert call.type == "function_call" and json.loads(call.arguments)["place"] in ["Oslo", "Rome"]
    items = [{"role": "user", "content": FOX}, call, {"type": "function_call_output", "call_id": call.call_id, "output": "fair"}]
    assert ask(server, items, tool_choice="none", **options).output_text
    named = ask(server, tool_choice={"type": "function", "name": "weather"}, max_output_tokens=200, **options)
    assert named.output[0].name == "weather" and named.tools[0].name == "weather"


@tools
def a_call_streams(server):
    events = list(ask(server, tools=[TOOL], tool_choice="required", parallel_tool_calls=False, max_output_tokens=200, stream=True))
    kinds = [event.type for event in events]
    for kind in ["output_item.added", "function_call_arguments.delta", "function_call_arguments.done", "output_item.done", "completed"]:
        assert "response." + kind in kinds, kinds
    done = next(event for event in events if event.type == "response.function_call_arguments.done")
    assert done.arguments == events[-1].response.output[0].arguments


@tools
def a_tool_of_a_namespace_is_called(server):
    space = {"type": "namespace", "name": "sky", "description": "The sky", "tools": [TOOL]}
    options = {"tools": [space], "parallel_tool_calls": False, "tool_choice": "required"}
    [call] = ask(server, max_output_tokens=200, **options).output
    assert call.name == "weather" and call.namespace == "sky", call
    items = [{"role": "user", "content": FOX}, call, {"type": "function_call_output", "call_id": call.call_id, "output": "fair"}]
    assert ask(server, items, **{**options, "tool_choice": "none"}).output_text


@images
def a_picture_is_seen(server):
    content = [{"type": "input_image", "image_url": image_url("seer/picture.png"), "detail": "auto"}, {"type": "input_text", "text": "What is it?"}]
    assert ask(server, [{"role": "user", "content": content}]).output_text


@reasoning
def reasoning_is_an_item_that_goes_back(server):
    response = ask(server, max_output_tokens=8, include=["reasoning.encrypted_content"])
    [item] = response.output
    assert item.type == "reasoning" and item.content[0].text and item.encrypted_content
    assert response.usage.output_tokens_details.reasoning_tokens == 8
    sealed = {"type": "reasoning", "summary": [], "encrypted_content": item.encrypted_content}
    user = {"role": "user", "content": FOX}
    answer = {"role": "assistant", "content": "Once."}
    tokens = [ask(server, [user, i, answer, user], max_output_tokens=4).usage.input_tokens for i in (item, sealed)]
    assert tokens[0] == tokens[1]
    kinds = [event.type for event in ask(server, max_output_tokens=8, stream=True)]
    assert "response.reasoning_text.delta" in kinds and "response.reasoning_text.done" in kinds


@reasoning
def effort_switches_reasoning(server):
    assert ask(server, reasoning={"effort": "none"}).output_text
    assert ask(server, reasoning={"effort": "high", "summary": "auto"}).output[0].type == "reasoning"
