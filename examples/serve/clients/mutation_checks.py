"""Checks that no request, however odd, is a fault of the server."""

import copy
import random

from harness import PERSON, WEATHER, Checks

mutations = Checks()

VALUES = [
    None, True, False, -1, 0, 1, 3, 17, 2**31, 2**63, 2**64, -(2**63), 1.5, 1e300, "", "x", "auto", "none", "required", "text",
    "\u0000", "\U0001f98a" * 40, [], {}, [None], [[]], [1, 2], ["x"], {"type": "x"}, {"type": "function"}, {"a": {"b": [1]}},
    {"type": "object", "properties": {"a": {"$ref": "#"}}}, {"type": "string", "pattern": "("}, "data:image/png;base64,AAAA",
]
TURN = [{"role": "user", "content": "Hello!"}]
CALL = {"id": "c", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
BODIES = {
    "/v1/chat/completions": {
        "messages": [
            {"role": "system", "content": "Be kind."}, *TURN,
            {"role": "assistant", "content": None, "reasoning_content": "Hm.", "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "fair"}]},
            {"role": "user", "content": [{"type": "text", "text": "Go on."}]},
        ],
        "max_tokens": 3, "n": 2, "temperature": 1, "top_p": 0.9, "top_k": 3, "min_p": 0.1, "seed": 1, "stop": ["x"],
        "logit_bias": {"7": 1}, "logprobs": True, "top_logprobs": 2, "stream": True, "stream_options": {"include_usage": True},
        "tools": [{"type": "function", "function": {"name": "weather", "description": "", "parameters": WEATHER}}],
        "tool_choice": "auto", "parallel_tool_calls": False, "repetition_penalty": 1.1, "frequency_penalty": 0.1,
    },
    "/v1/chat/completions ": {
        "messages": TURN, "max_tokens": 30,
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": PERSON}},
    },
    "/v1/completions": {"prompt": ["Once", [1, 2, 3]], "max_tokens": 3, "n": 2, "logprobs": 2, "stop": "x", "seed": 1},
    "/v1/responses": {
        "input": [
            *TURN, {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
            {"type": "function_call", "call_id": "c", "name": "weather", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "fair"},
        ],
        "instructions": "Be kind.", "max_output_tokens": 3, "include": ["message.output_text.logprobs"], "top_logprobs": 2,
        "tools": [{"type": "function", "name": "weather", "parameters": WEATHER}], "tool_choice": "required",
        "text": {"format": {"type": "text"}}, "metadata": {"a": "b"}, "store": False,
    },
    "/v1/messages": {
        "messages": [
            *TURN, {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "weather", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "fair", "is_error": True}]},
        ],
        "system": [{"type": "text", "text": "Be kind."}], "max_tokens": 3, "stop_sequences": ["x"], "temperature": 1,
        "tools": [{"name": "weather", "input_schema": WEATHER}], "tool_choice": {"type": "any"}, "thinking": {"type": "adaptive"},
    },
    "/tokenize": {"content": "Hi", "with_pieces": True, "add_special": True},
}


def places(value):
    """Returns the containers and keys of everything in a value."""
    found = []
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        found += [(value, key), *places(value[key])]
    return found


@mutations
def odd_requests_are_answered_or_refused(server):
    numbers, statuses = random.Random(7), {}
    for path, body in BODIES.items():
        for _ in range(250):
            changed = copy.deepcopy(body)
            for _ in range(numbers.choice([1, 1, 2])):
                container, key = numbers.choice(places(changed))
                container[key] = copy.deepcopy(numbers.choice(VALUES))
                if numbers.random() < 0.2:
                    del container[key]
                if numbers.random() < 0.1 and isinstance(container, dict):
                    container[numbers.choice(["x", "type", "role", "content"])] = copy.deepcopy(numbers.choice(VALUES))
            if path != "/tokenize":
                changed["model"] = server.model
            status, answer = server.post(path.strip(), changed)
            assert status in (200, 400, 413), (status, answer, changed)
            statuses[status] = statuses.get(status, 0) + 1
    assert min(statuses.get(200, 0), statuses.get(400, 0)) > 100, statuses
    server.wait_for(lambda: server.metric("requests_admitted") == 0, "the end of all requests")
