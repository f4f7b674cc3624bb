#!/usr/bin/env python3
"""Write transcripts.json: answers with thoughts and tool calls, as the chat templates of several families write them.

    transcripts.py FOLDER        needs jinja2; FOLDER has the templates in models/templates of llama.cpp's repository

Each case holds the form of the calls, the end of the prompt, the answer, the message that it says, and the marks of
`MARKS` that the template shows, by which its form is found. Of the templates themselves nothing is kept.
"""
import json, pathlib, sys
import jinja2

HERE = pathlib.Path(__file__).parent
TYPES = {"place": "string", "days": "integer", "share": "number", "sure": "boolean", "list": "array", "more": "object"}
SCHEMA = {"type": "object", "properties": {key: {"type": kind} for key, kind in TYPES.items()}}
TOOLS = [{"type": "function", "function": {"name": name, "description": name, "parameters": SCHEMA}} for name in ("weather", "stop")]
PLAIN = {"place": "Zoë town, <b> é😀", "days": -3, "share": 2.5}
ARGUMENTS = {"place": 'Zoë\'s "town"\n\\ <b> é😀 [x] {y}', "days": -3, "share": 2.5, "sure": True, "list": [1, "two", {"x": []}], "more": {"deep": {"n": 1000}}}

# Template, form, what begins and ends the answer, the arguments, and what the template wants otherwise.
CASES = [
    ("GLM-4.6", "Glm", "<|assistant|>", "", ARGUMENTS, {}),
    ("GLM-4.7-Flash", "Glm", "<|assistant|>", "", ARGUMENTS, {}),
    ("unsloth-MiniMax-M2", "MiniMax", "]~b]ai\n", "[e~[", ARGUMENTS, {}),
    ("deepseek-ai-DeepSeek-V3.1", "DeepSeek", "</think>", "<｜end▁of▁sentence｜>", ARGUMENTS, {"thinks": False}),
    ("llama-cpp-deepseek-r1", "DeepSeek", "<｜Assistant｜>", "<｜end▁of▁sentence｜>", ARGUMENTS, {"content": None, "thinks": False}),
    ("Kimi-K2-Thinking", "KimiK2", "<|im_assistant|>assistant<|im_middle|>", "<|im_end|>", ARGUMENTS, {}),
    ("Kimi-K2-Instruct", "KimiK2", "<|im_assistant|>assistant<|im_middle|>", "<|im_end|>", ARGUMENTS, {"thinks": False}),
    ("CohereForAI-c4ai-command-r7b-12-2024-tool_use", "Cohere", "<|CHATBOT_TOKEN|>", "<|END_OF_TURN_TOKEN|>", ARGUMENTS, {"content": ""}),
    ("LFM2.5-8B-A1B", "Lfm2", "<|im_start|>assistant\n", "<|im_end|>", PLAIN, {"thoughts": "thinking"}),
    ("ibm-granite-granite-3.3-2B-Instruct", "Granite", "<|start_of_role|>assistant<|end_of_role|>", "<|end_of_text|>", ARGUMENTS, {"listed": True, "thinks": False}),
]
MARKS = [
    "<tool_call>", "<arg_key>", "<minimax:tool_call>", "<invoke name=", "<｜tool▁calls▁begin｜>", "<|tool_calls_section_begin|>",
    "<|START_ACTION|>", "<|tool_call_start|>", "<|tool_list_start|>", "<|tool_call|>", "<function=", '"arguments"', '{"name": ',
    '"parameters": ', "[TOOL_CALLS]", "<think>", "</think>", "<|START_THINKING|>", "[THINK]", "<|channel|>analysis",
]


def environment():
    env = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    env.filters["tojson"] = lambda value, ensure_ascii=False, indent=None, **_: json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, default=list)
    env.globals |= {"strftime_now": lambda _: "2026-01-01", "bos_token": "", "eos_token": ""}
    return env


def case(folder, name, form, begin, end, arguments, wants):
    calls = [("weather", arguments), ("stop", {})]
    # Part of a model's tokenizer, and unknown to jinja2.
    source = (folder / f"{name}.jinja").read_text(encoding="utf-8").replace("{%- generation -%}", "").replace("{%- endgeneration -%}", "")
    content, thoughts = wants.get("content", "Let me see."), "I look." if wants.get("thinks", True) else ""
    message = {"role": "assistant", "content": content}
    if thoughts:
        message[wants.get("thoughts", "reasoning_content")] = thoughts
    if wants.get("listed"):     # the template leaves calls to the content
        content = ""
        listed = [{"name": name, "arguments": arguments} for name, arguments in calls]
        message["content"] = "<|tool_call|>" + json.dumps(listed, ensure_ascii=False)
    else:
        message["tool_calls"] = [{"type": "function", "id": f"call{n}", "function": {"name": name, "arguments": arguments}} for n, (name, arguments) in enumerate(calls)]
    messages = [{"role": "user", "content": "Go."}, message]
    text = environment().from_string(source).render(messages=messages, tools=TOOLS, add_generation_prompt=False)
    answer = text[text.index(begin) + len(begin):]
    answer = answer[:answer.index(end)] if end else answer
    expected = {"reasoning_content": thoughts, "content": content or "", "tool_calls": [{"name": name, "arguments": arguments} for name, arguments in calls]}
    shown = source.replace('\\"', '"')
    return dict(template=name, form=form, prompt=begin, answer=answer, message=expected, shows=[mark for mark in MARKS if mark in shown])


def main():
    folder = pathlib.Path(sys.argv[1])
    cases = ",\n".join(json.dumps(case(folder, *row), ensure_ascii=False) for row in CASES)
    (HERE / "transcripts.json").write_text(f'{{"tools": {json.dumps(TOOLS)}, "cases": [\n{cases}\n]}}\n', encoding="utf-8")
    print(f"{len(CASES)} cases")


if __name__ == "__main__":
    main()
