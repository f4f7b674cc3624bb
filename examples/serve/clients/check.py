"""Runs all checks of the server; `--help` explains the arguments."""

import sys
import tempfile
from pathlib import Path

import chat_checks
import completions_checks
import limit_checks
import messages_checks
import mutation_checks
import page_checks
import responses_checks
from harness import DATA, Server

# The template of the tests with tools, and with reasoning that has begun.
THINKING = (DATA / "chat" / "thinking.jinja").read_text()
REASONING = THINKING.replace(
    "    {%- endif %}\n{%- endif %}\n",
    "    {%- else %}\n        {{- '<think>\\n' }}\n    {%- endif %}\n{%- endif %}\n",
)


def main():
    results = []
    with tempfile.TemporaryDirectory() as folder:
        tools, reasoning = Path(folder, "tools.jinja"), Path(folder, "reasoning.jinja")
        tools.write_text(THINKING)
        assert REASONING != THINKING
        reasoning.write_text(REASONING)
        servers = {
            "the storyteller": (
                [],
                [
                    chat_checks.chat,
                    completions_checks.completions,
                    messages_checks.messages,
                    responses_checks.responses,
                ],
            ),
            "tools": (
                ["--template", tools],
                [chat_checks.tools, messages_checks.tools, responses_checks.tools, mutation_checks.mutations],
            ),
            "reasoning": (
                ["--template", reasoning],
                [chat_checks.reasoning, messages_checks.reasoning, responses_checks.reasoning],
            ),
            "images": (
                ["--model", DATA / "seer" / "seer.gguf"],
                [chat_checks.images, messages_checks.images, responses_checks.images],
            ),
        }
        for title, (arguments, suites) in servers.items():
            with Server(*arguments) as server:
                results += [checks.run(title, server) for checks in suites]
        results.append(limit_checks.limits.run("limits and ends"))
    results += page_checks.run()
    good, bad = (sum(numbers) for numbers in zip(*results))
    print(f"\n{good} checks passed, {bad} failed")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
