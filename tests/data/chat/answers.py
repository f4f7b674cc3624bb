#!/usr/bin/env python3
"""Write answers.json: what transformers' response parser, or Python itself, makes of models' answers.

    pip install transformers && python answers.py

Each case holds the form of the calls, what the prompt ends with, the answer, and the message that is in it: the
reasoning, the content and the calls. A response template says here what a form looks like; the parser is
transformers'. Calls in the form of Python are read by Python.
"""
import ast
import json
import pathlib

from transformers.utils.chat_parsing.response_parser import parse_response

HERE = pathlib.Path(__file__).parent
SCHEMA = {"type": "object", "properties": {
    "place": {"type": "string"}, "days": {"type": "integer"}, "share": {"type": "number"}, "sure": {"type": "boolean"},
    "list": {"type": "array"}, "more": {"type": "object"}, "maybe": {"type": "string", "nullable": True}, "either": {"anyOf": [{"type": "integer"}, {"type": "string"}]}}}
TOOLS = [{"type": "function", "function": {"name": name, "description": name, "parameters": SCHEMA}} for name in ("weather", "stop")]

SAID = {"content": {"repeats": True, "join": ""}}
THINK = {"reasoning_content": {"open": "<think>", "close": "</think>"}} | SAID
CALL = {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}}
TEMPLATES = {
    "TaggedJson": {"start_anchor": "assistant\n", "fields": THINK | {"tool_calls": {
        "open": "<tool_call>", "close": "</tool_call>", "repeats": True, "content": "json", "transform": {"type": "function", "function": "{content}"}}}},
    "Parameters": {"start_anchor": "assistant\n", "fields": THINK | {"tool_calls": {
        "open_pattern": r"<tool_call>\s*<function=(?P<name>[^>]+)>", "close_pattern": r"</function>\s*</tool_call>", "repeats": True, "content": "xml-inline",
        "content_args": {"tag_pattern": r"<parameter=(?P<key>[^>]+)>\n(?P<value>.*?)\n</parameter>"}, "transform": CALL}}},
    "Gemma4": {"start_anchor": "model\n", "fields": {
        "reasoning_content": {"open": "<|channel>thought", "close": "<channel|>"}} | SAID | {"tool_calls": {
            "open_pattern": r"<\|tool_call>call:(?P<name>\w+)", "close": "<tool_call|>", "repeats": True, "content": "json",
            "content_args": {"unquoted_keys": True, "string_delims": [['<|"|>', '<|"|>']]}, "transform": CALL}}},
    "FunctionGemma": {"start_anchor": "model\n", "fields": SAID | {"tool_calls": {
        "open_pattern": r"<start_function_call>call:(?P<name>\w+)", "close": "<end_function_call>", "repeats": True, "content": "json",
        "content_args": {"unquoted_keys": True, "string_delims": [["<escape>", "<escape>"]]}, "transform": CALL}}},
    "Mistral": {"start_anchor": "[/INST]", "fields": {
        "reasoning_content": {"open": "[THINK]", "close": "[/THINK]"}} | SAID | {"tool_calls": {
            "open_pattern": r"\[TOOL_CALLS\](?P<name>\w+)\[ARGS\]", "close_pattern": r"(?<=\})(?=\[TOOL_CALLS\]|$)", "repeats": True, "content": "json", "transform": CALL}}},
    "Json": {"start_anchor": "assistant\n", "fields": SAID | {"tool_calls": {
        "open": "<|python_tag|>", "close_pattern": r"(?<=\}\})", "repeats": True, "content": "json",
        "transform": {"type": "function", "function": {"name": "{content.name}", "arguments": "{content.parameters}"}}}}},
}
ARGUMENTS = {"place": 'Zoë\'s "town"\n\\ <b> é😀 [x] {y}', "days": -3, "share": 2.5, "sure": True, "list": [1, "two", None, {"x": []}], "more": {"deep": {"n": 1e3}}, "either": "a, b"}


def tagged(name, arguments):
    return "<tool_call>\n" + json.dumps({"name": name, "arguments": arguments}) + "\n</tool_call>"


def parameters(name, arguments):
    text = lambda value: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"<tool_call>\n<function={name}>\n" + "".join(f"<parameter={key}>\n{text(value)}\n</parameter>\n" for key, value in arguments.items()) + "</function>\n</tool_call>"


def gemma(quote):
    def of(value):
        if isinstance(value, str):
            return quote + value + quote
        if isinstance(value, dict):
            return "{" + ",".join(f"{key}:{of(item)}" for key, item in value.items()) + "}"
        return "[" + ",".join(map(of, value)) + "]" if isinstance(value, list) else json.dumps(value)
    return of


CASES = [
    ("TaggedJson", "assistant\n", "Fair and mild.\n"),
    ("TaggedJson", "assistant\n", "<think>\nA sum,\n\nsay.\n</think>\n\nIt is 4."),
    ("TaggedJson", "assistant\n", "<think>\nI look.\n</think>\n\nLet me see.\n" + tagged("weather", ARGUMENTS) + "\n" + tagged("stop", {})),
    ("TaggedJson", "assistant\n", tagged("weather", {"place": "<tool_call> is a mark, </think> too"})),
    ("TaggedJson", "assistant\n<think>\n", "I look.\n</think>\n\n" + tagged("weather", {"place": "\ud83d\ude00\u0000"})),
    ("Parameters", "assistant\n<think>\n", "I look.\n</think>\n\n" + parameters("weather", ARGUMENTS)),
    ("Parameters", "assistant\n<think>\n\n</think>\n\n", "Both.\n\n" + parameters("weather", {"days": 7, "either": 12, "maybe": "null", "place": "7"}) + "\n" + parameters("stop", {})),
    ("Parameters", "assistant\n<think>\n\n</think>\n\n", parameters("weather", {"place": "two\n\nlines\n", "more": {}, "list": []})),
    ("Gemma4", "model\n", "<|channel>thought\nI look.<channel|><|tool_call>call:weather" + gemma('<|"|>')(ARGUMENTS) + "<tool_call|><|tool_call>call:stop{}<tool_call|>"),
    ("Gemma4", "model\n<|channel>thought\n<channel|>", "It is 4, {a:b}."),
    ("Gemma4", "model\n", '<|tool_call>call:weather{place:<|"|>a<tool_call|>, b<|"|>}<tool_call|>'),
    ("FunctionGemma", "model\n", "<start_function_call>call:weather" + gemma("<escape>")(ARGUMENTS) + "<end_function_call>"),
    ("Mistral", "[/INST]", "[THINK]I look.[/THINK]Let me see.[TOOL_CALLS]weather[ARGS]" + json.dumps(ARGUMENTS) + "[TOOL_CALLS]stop[ARGS]{}"),
    ("Json", "assistant\n", "<|python_tag|>" + json.dumps({"name": "weather", "parameters": ARGUMENTS | {"more": {"a": 1}}})),
]
# What the parser of transformers, which looks for the first mark, is not asked about.
QUOTED = ('<tool_call> is a mark, </think> too', 'a<tool_call|>, b')
PYTHON = [
    ("Pythonic", "", "[weather(place='Oslo', days=3), stop()]"),
    ("Pythonic", "", "[" + "weather(" + ", ".join(f"{key}={value!r}" for key, value in ARGUMENTS.items()) + ")]"),
    ("Pythonic", "", r"""[ weather( place = "it's \"a\" \\ \x41\u00e9\U0001F600 )]", days=-3 , share=.5e1, sure=False, list=('a', [None]), more={'k': {1: 'v'}} ) ]"""),
    ("ToolCode", "```tool_code", "\nweather(place=\"a\", list=[1, 'b'])\nstop()\n"),
]


def python_calls(text):
    text = text.strip()
    body = ast.parse(text).body
    nodes = [node.value for node in body]
    nodes = nodes[0].elts if isinstance(nodes[0], ast.List) else nodes
    plain = lambda value: json.loads(json.dumps(value))
    return [{"type": "function", "function": {"name": node.func.id, "arguments": {key.arg: plain(ast.literal_eval(key.value)) for key in node.keywords}}} for node in nodes]


def main():
    cases = []
    for form, prompt, answer in CASES:
        case = dict(form=form, prompt=prompt, answer=answer)
        if any(text in answer for text in QUOTED):
            name = "weather"
            arguments = {"place": next(text for text in QUOTED if text in answer)}
            case["message"] = {"tool_calls": [{"type": "function", "function": {"name": name, "arguments": arguments}}]}
        else:
            case["message"] = parse_response(answer, TEMPLATES[form], prefix=prompt, tools=TOOLS)
        cases.append(case)
    for form, mark, answer in PYTHON:
        end = "```" if mark else ""
        cases.append(dict(form=form, prompt="", answer=mark + answer + end, message={"tool_calls": python_calls(answer)}))
    text = ",\n".join(json.dumps(case) for case in cases)
    (HERE / "answers.json").write_text(f'{{"tools": {json.dumps(TOOLS)}, "cases": [\n{text}\n]}}\n', encoding="utf-8")
    print(f"{len(cases)} cases")


if __name__ == "__main__":
    main()
