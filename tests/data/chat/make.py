#!/usr/bin/env python3
"""Write expected.json: what transformers renders of the templates beside this script.

    pip install transformers jinja2 && python make.py

Each case holds the template's name, the messages, the variables (the tools are the same in all, and stand before the
cases), and either the text ("prompt") or, where the template refuses, the message that it refuses with ("error").
"""
import json
import pathlib

import jinja2
import transformers
from transformers.utils.chat_template_utils import render_jinja_template

HERE = pathlib.Path(__file__).parent
TOOLS = [
    {"type": "function", "function": {"name": "weather", "description": "The weather's \"state\" – now <b>", "parameters": {
        "type": "object", "properties": {
            "place": {"type": "string", "description": "Where"}, "days": {"type": "integer", "default": 1},
            "sure": {"type": "boolean"}, "list": {"type": "array"}, "unit": {"type": "string", "enum": ["C", "F"]}, "more": {"type": "object", "properties": {"deep": {"type": "array"}}}},
        "required": ["place"]}}},
    {"type": "function", "function": {"name": "stop", "description": "", "parameters": {"type": "object", "properties": {}}}}]
ARGUMENTS = {"place": "Zoë's \"town\"\n<b> & </i>", "days": 3, "sure": True, "list": [1, "two", False, 2.5], "more": {"deep": ["x"], "n": 1.5}}
DOCUMENTS = [{"title": "One", "text": " the first\n"}, {"title": "Two", "text": "<|end|>"}]
DATA = {"name": "Zoë <b>", "b": [1, 2.5, None, True, {"x": []}], "a": {"z": 1, "y": 1e-7, "x": 1e16}, "nothing": None}


def said(role, content, **more):
    return {"role": role, "content": content, **more}


def call(name, arguments, id="call00001"):
    return {"type": "function", "id": id, "function": {"name": name, "arguments": arguments}}


def result(name, content, id="call00001"):
    return said("tool", content, name=name, tool_call_id=id)


SYSTEM, USER, ASSISTANT = said("system", "  Be brief.\n"), said("user", "Tell me a story about a fox & a \"lantern\".\n"), said("assistant", "Once upon a time …\n")
THOUGHT = said("assistant", "<think>\nA fox.\nA lantern.\n</think>\n\nOnce upon a time …")
CALLS = said("assistant", "Let me see.", tool_calls=[call("weather", {"place": "Oslo"}), call("stop", {}, "call00002")])
CONVERSATIONS = [
    [USER],
    [SYSTEM, USER],
    [SYSTEM, USER, ASSISTANT, USER],
    [USER, THOUGHT, USER],
    [USER, THOUGHT],
    [USER, ASSISTANT, result("weather", '{"weather": "fair"}'), result("weather", "[]")],
    [SYSTEM],
    [USER, USER],
    [said("user", "skip"), USER, ASSISTANT, said("user", ""), said("user", "<|im_end|>")],
    [USER, said("assistant", "Once.", reasoning_content="\nA fox.\n"), USER],
    [USER, said("assistant", "Once.", reasoning_content="A fox.")],
    [USER, said("assistant", "", reasoning_content="I look.", tool_calls=[call("weather", ARGUMENTS)]), result("weather", "fair")],
    [SYSTEM, USER, CALLS, result("weather", "fair"), result("stop", "stopped", "call00002"), ASSISTANT, USER],
    [said("user", [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]), ASSISTANT],
    [said("system", "Be brief. /no_think /override"), USER, ASSISTANT],
]
THINKING = [{}, {"enable_thinking": False}, {"enable_thinking": True}, {"tools": TOOLS}]
VARIABLES = {
    "chatml": [{}],
    "thinking": THINKING,
    "parameters": THINKING,
    "channels": THINKING,
    "modes": THINKING,
    "headers": [{"date_string": "26 Jul 2024"}, {"date_string": "26 Jul 2024", "tools": TOOLS},
                {"date_string": "26 Jul 2024", "tools": TOOLS, "tools_in_user_message": False},
                {"date_string": "26 Jul 2024", "builtin_tools": ["search", "weather"]}],
    "instructions": [{}],
    "turns": [{}],
    "brackets": [{}, {"tools": TOOLS}],
    "documents": [{}, {"documents": DOCUMENTS}],
    "constructs": [{"data": DATA}],
}


def render(template, messages, variables, add_generation_prompt):
    variables = dict(variables)
    (prompt,), _ = render_jinja_template(
        [messages], chat_template=template, tools=variables.pop("tools", None), documents=variables.pop("documents", None),
        add_generation_prompt=add_generation_prompt, bos_token="<s>", eos_token="</s>", **variables)
    return prompt


def main():
    cases = []
    for name, choices in VARIABLES.items():
        template = (HERE / f"{name}.jinja").read_text(encoding="utf-8")
        for conversation in CONVERSATIONS[8:9] if name == "constructs" else CONVERSATIONS:
            for variables in choices:
                for add in (True, False) if conversation in CONVERSATIONS[:3] else (True,):
                    case = dict(template=name, messages=conversation, variables=variables | ({"tools": None} if "tools" in variables else {}), add_generation_prompt=add)
                    try:
                        case["prompt"] = render(template, conversation, variables, add)
                    except jinja2.exceptions.UndefinedError:
                        continue  # Where Python lacks something, it says so in other words.
                    except jinja2.exceptions.TemplateError as e:
                        case["error"] = e.message
                    except TypeError:
                        continue
                    cases.append(case)
    text = ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases)
    (HERE / "expected.json").write_text(f'{{"tools": {json.dumps(TOOLS, ensure_ascii=False)}, "cases": [\n{text}\n]}}\n', encoding="utf-8")
    print(f"{len(cases)} cases, transformers {transformers.__version__}, jinja2 {jinja2.__version__}")


if __name__ == "__main__":
    main()
