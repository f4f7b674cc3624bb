"""Checks the API of Anthropic with its official client."""

import anthropic
from anthropic import Anthropic

from harness import PERSON, WEATHER, Checks, image_data, raises

messages = Checks()
tools = Checks()
images = Checks()
reasoning = Checks()

FOX = [{"role": "user", "content": "Tell me a story about a fox and a lantern"}]
TOOL = {"name": "weather", "description": "The weather", "input_schema": WEATHER}


def client(server):
    return Anthropic(base_url=server.url, api_key="none", max_retries=0)


def ask(server, conversation=FOX, **options):
    options.setdefault("max_tokens", 24)
    extra = {"temperature": 0, **options.pop("extra_body", {})}
    return client(server).messages.create(model=server.model, messages=conversation, extra_body=extra, **options)


@messages
def a_message_has_text_and_usage(server):
    message = ask(server)
    assert message.content[0].text.startswith("Once upon a time") and message.role == "assistant"
    assert message.stop_reason == "max_tokens" and message.usage.output_tokens == 24
    assert ask(server, [{"role": "user", "content": "Hello!"}], max_tokens=200).stop_reason == "end_turn"


@messages
def a_message_streams_with_named_events(server):
    events = list(ask(server, stream=True))
    kinds = [event.type for event in events if event.type != "ping"]
    assert kinds[:2] == ["message_start", "content_block_start"]
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    text = "".join(event.delta.text for event in events if event.type == "content_block_delta")
    assert text == ask(server).content[0].text
    assert events[-2].usage.output_tokens == 24 and events[-2].delta.stop_reason == "max_tokens"


@messages
def the_stream_helper_puts_a_message_together(server):
    with client(server).messages.stream(model=server.model, messages=FOX, max_tokens=12, extra_body={"temperature": 0}) as stream:
        text = "".join(stream.text_stream)
        message = stream.get_final_message()
    assert message.content[0].text == text and message.usage.output_tokens == 12


@messages
def the_cache_is_counted(server):
    ask(server)
    usage = ask(server).usage
    assert usage.cache_read_input_tokens > 0, usage
    total = usage.input_tokens + usage.cache_read_input_tokens
    assert total == client(server).messages.count_tokens(model=server.model, messages=FOX).input_tokens


@messages
def a_stop_sequence_is_reported(server):
    message = ask(server, stop_sequences=[" lived"], max_tokens=100)
    assert message.stop_reason == "stop_sequence" and message.stop_sequence == " lived"


@messages
def instructions_and_blocks_are_understood(server):
    system = [{"type": "text", "text": "Keep it short.", "cache_control": {"type": "ephemeral"}}]
    content = [{"type": "text", "text": "A story"}, {"type": "text", "text": "about a fox", "cache_control": {"type": "ephemeral"}}]
    assert ask(server, [{"role": "user", "content": content}], system=system, metadata={"user_id": "x"}).content
    assert ask(server, system="Keep it short.", extra_body={"top_k": 5, "top_p": 0.9, "temperature": 1}).content
    count = client(server).messages.count_tokens
    assert count(model=server.model, messages=FOX, system=system).input_tokens > count(model=server.model, messages=FOX).input_tokens


@messages
def json_follows_a_schema(server):
    import json

    config = {"format": {"type": "json_schema", "schema": PERSON}}
    person = json.loads(ask(server, output_config=config, max_tokens=100).content[0].text)
    assert set(person) == {"name", "age"}


@messages
def errors_have_the_form_of_the_api(server):
    error = raises(anthropic.BadRequestError, lambda: ask(server, extra_body={"temperature": -1}), "temperature")
    assert error.body["type"] == "error" and error.body["error"]["type"] == "invalid_request_error"
    raises(anthropic.BadRequestError, lambda: ask(server, extra_body={"creativity": 11}), "creativity")
    raises(anthropic.NotFoundError, lambda: client(server).messages.create(model="claude", messages=FOX, max_tokens=1), "claude")
    raises(anthropic.BadRequestError, lambda: ask(server, [{"role": "user", "content": "fox " * 5000}], stream=True), "context")
    status, body = server.post("/v1/messages", {"model": server.model, "messages": FOX})
    assert status == 400 and "max_tokens" in body["error"]["message"], body


@messages
def what_is_not_there_is_named(server):
    search = {"type": "web_search_20250305", "name": "web_search"}
    raises(anthropic.BadRequestError, lambda: ask(server, tools=[search]), "tools[0]")
    document = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "x"}}
    raises(anthropic.BadRequestError, lambda: ask(server, [{"role": "user", "content": [document]}]), "document")
    raises(anthropic.BadRequestError, lambda: ask(server, thinking={"type": "enabled", "budget_tokens": 1024}), "thinking")
    raises(anthropic.BadRequestError, lambda: ask(server, service_tier="priority"), "service_tier")
    raises(anthropic.BadRequestError, lambda: ask(server, [*FOX, {"role": "assistant", "content": "Once"}]), "messages")


@messages
def the_models_are_listed(server):
    assert [model.id for model in client(server).models.list()] == [server.model]


@tools
def any_tool_is_called(server):
    message = ask(server, tools=[TOOL], tool_choice={"type": "any", "disable_parallel_tool_use": True}, max_tokens=200)
    [block] = message.content
    assert message.stop_reason == "tool_use" and block.name == "weather" and block.input["place"] in ["Oslo", "Rome"]


@tools
def a_call_streams_as_json(server):
    choice = {"type": "tool", "name": "weather", "disable_parallel_tool_use": True}
    with client(server).messages.stream(
        model=server.model, messages=FOX, tools=[TOOL], tool_choice=choice, max_tokens=200, extra_body={"temperature": 0}
    ) as stream:
        kinds = {event.type for event in stream}
        message = stream.get_final_message()
    assert "input_json" in kinds and 1 <= message.content[0].input["days"] <= 7


@tools
def a_conversation_of_claude_code_is_understood(server):
    call = ask(server, tools=[TOOL], tool_choice={"type": "any", "disable_parallel_tool_use": True}, max_tokens=200)
    result = {
        "type": "tool_result", "tool_use_id": call.content[0].id, "is_error": False, "cache_control": {"type": "ephemeral"},
        "content": [{"type": "text", "text": "fair"}],
    }
    conversation = [
        {"role": "user", "content": [{"type": "text", "text": "<system-reminder>x</system-reminder>"}, {"type": "text", "text": "Hi"}]},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm.", "signature": ""}, *call.content]},
        {"role": "user", "content": [result, {"type": "text", "text": "Go on."}]},
        {"role": "system", "content": "Be kind."},
    ]
    options = {
        "system": [{"type": "text", "text": "x-anthropic-billing-header: cc_version=1; cch=2;"}, {"type": "text", "text": "You help."}],
        "tools": [{**TOOL, "cache_control": {"type": "ephemeral"}, "eager_input_streaming": True}],
        "thinking": {"type": "adaptive"}, "metadata": {"user_id": "u"}, "output_config": {"effort": "high"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    }
    events = client(server).beta.messages.create(
        model=server.model, messages=conversation, max_tokens=8, stream=True, betas=["context-management-2025-06-27"], **options
    )
    assert [event.type for event in events][-1] == "message_stop"
    status, count = server.post("/v1/messages/count_tokens?beta=true", {"model": server.model, "messages": [
        {"role": m["role"], "content": [b if isinstance(b, dict) else b.to_dict() for b in m["content"]]} for m in conversation[:3]
    ], "tools": options["tools"]})
    assert status == 200 and count["input_tokens"] > 50, count


@tools
def results_need_their_call(server):
    result = {"type": "tool_result", "tool_use_id": "x", "content": "y"}
    raises(anthropic.BadRequestError, lambda: ask(server, [{"role": "user", "content": [result]}], tools=[TOOL]), "tool_use_id")


@images
def a_picture_is_seen(server):
    source = {"type": "base64", "media_type": "image/png", "data": image_data("seer/picture.png")}
    content = [{"type": "image", "source": source}, {"type": "text", "text": "What is in the picture?"}]
    message = ask(server, [{"role": "user", "content": content}])
    count = client(server).messages.count_tokens(model=server.model, messages=[{"role": "user", "content": content}])
    assert message.content[0].text
    assert count.input_tokens == message.usage.input_tokens + message.usage.cache_read_input_tokens
    url = {"type": "image", "source": {"type": "url", "url": "http://127.0.0.1:9/x.png"}}
    raises(anthropic.BadRequestError, lambda: ask(server, [{"role": "user", "content": [url]}]), "url")


@reasoning
def thinking_is_a_block(server):
    message = ask(server, max_tokens=8, thinking={"type": "enabled", "budget_tokens": 1024})
    assert message.content[0].type == "thinking" and message.content[0].thinking
    events = list(ask(server, max_tokens=8, stream=True))
    deltas = [event.delta.type for event in events if event.type == "content_block_delta"]
    assert deltas[0] == "thinking_delta" and deltas[-1] == "signature_delta"
    assert ask(server, max_tokens=8, thinking={"type": "disabled"}).content[0].type == "text"
    assert not ask(server, max_tokens=8, thinking={"type": "adaptive", "display": "omitted"}).content
