#!/usr/bin/env python3
"""Write expected.json: what transformers renders of the templates beside this script.

    pip install transformers jinja2 && python make.py

Each case holds the template's name, the messages, the variables, and either the text ("prompt") or, where the
template refuses, the message that it refuses with ("error").
"""
import json
import pathlib

import jinja2
import transformers
from transformers.utils.chat_template_utils import render_jinja_template

HERE = pathlib.Path(__file__).parent
SYSTEM, USER, ASSISTANT = ("system", "  Be brief.\n"), ("user", "Tell me a story about a fox & a \"lantern\".\n"), ("assistant", "Once upon a time …\n")
THOUGHT = ("assistant", "<think>\nA fox.\nA lantern.\n</think>\n\nOnce upon a time …")
TOOL = ("tool", '{"weather": "fair"}')
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "The weather's \"state\" – now", "parameters": {
    "type": "object", "properties": {"place": {"type": "string"}, "days": {"type": "integer", "default": 1}}, "required": ["place"]}}}]
DATA = {"name": "Zoë <b>", "b": [1, 2.5, None, True, {"x": []}], "a": {"z": 1, "y": 1e-7, "x": 1e16}, "nothing": None}
CONVERSATIONS = [
    [USER],
    [SYSTEM, USER],
    [SYSTEM, USER, ASSISTANT, USER],
    [USER, THOUGHT, USER],
    [USER, THOUGHT],
    [USER, ASSISTANT, TOOL, TOOL],
    [SYSTEM],
    [USER, USER],
    [("user", "skip"), USER, ASSISTANT, ("user", ""), ("user", "<|im_end|>")],
]
VARIABLES = {
    "chatml": [{}],
    "thinking": [{}, {"enable_thinking": False}, {"enable_thinking": True}, {"tools": TOOLS}],
    "headers": [{"date_string": "26 Jul 2024"}, {"date_string": "26 Jul 2024", "tools": TOOLS},
                {"date_string": "26 Jul 2024", "tools": TOOLS, "tools_in_user_message": False},
                {"date_string": "26 Jul 2024", "builtin_tools": ["search", "code_interpreter"]}],
    "instructions": [{}],
    "constructs": [{"data": DATA}],
}


def render(template, messages, variables, add_generation_prompt):
    variables = dict(variables)
    (prompt,), _ = render_jinja_template(
        [messages], chat_template=template, tools=variables.pop("tools", None), add_generation_prompt=add_generation_prompt,
        bos_token="<s>", eos_token="</s>", **variables)
    return prompt


def main():
    cases = []
    for name, choices in VARIABLES.items():
        template = (HERE / f"{name}.jinja").read_text(encoding="utf-8")
        for conversation in CONVERSATIONS[-1:] if name == "constructs" else CONVERSATIONS:
            for variables in choices:
                for add in (True, False):
                    messages = [{"role": role, "content": content} for role, content in conversation]
                    case = dict(template=name, messages=messages, variables=variables, add_generation_prompt=add)
                    try:
                        case["prompt"] = render(template, messages, variables, add)
                    except jinja2.exceptions.TemplateError as e:
                        case["error"] = e.message
                    cases.append(case)
    text = ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases)
    (HERE / "expected.json").write_text(f"[\n{text}\n]\n", encoding="utf-8")
    print(f"{len(cases)} cases, transformers {transformers.__version__}, jinja2 {jinja2.__version__}")


if __name__ == "__main__":
    main()
