#!/usr/bin/env python3
"""Write draft2020-12.json: the groups of the JSON Schema Test Suite whose keywords `src/chat/schema` checks.

    git clone https://github.com/json-schema-org/JSON-Schema-Test-Suite && python make.py JSON-Schema-Test-Suite

The suite is under the licence beside this script. Left out are groups with keywords that are ignored here, and those
that refer to other documents or by names (`$id`, `$anchor`).
"""
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).parent
FILES = """additionalProperties allOf anyOf boolean_schema const default enum exclusiveMaximum exclusiveMinimum
infinite-loop-detection items maxItems maxLength maxProperties maximum minItems minLength minProperties minimum multipleOf
not oneOf pattern patternProperties prefixItems properties ref required type uniqueItems""".split()
IGNORED = {"$id", "$anchor", "$dynamicRef", "$dynamicAnchor", "if", "then", "else", "contains", "minContains", "propertyNames",
           "dependentSchemas", "dependentRequired", "unevaluatedItems", "unevaluatedProperties"}


def keys(schema):
    if isinstance(schema, dict):
        return set(schema).union(*map(keys, schema.values()))
    return set().union(*map(keys, schema)) if isinstance(schema, list) else set()


def refers_elsewhere(schema):
    if isinstance(schema, dict):
        reference = schema.get("$ref")
        return isinstance(reference, str) and not reference.startswith("#") or any(map(refers_elsewhere, schema.values()))
    return isinstance(schema, list) and any(map(refers_elsewhere, schema))


groups = []
for name in FILES:
    for group in json.loads((pathlib.Path(sys.argv[1]) / "tests/draft2020-12" / f"{name}.json").read_text()):
        schema = group["schema"]
        if not keys(schema) & IGNORED and not refers_elsewhere(schema):
            if isinstance(schema, dict):
                schema.pop("$schema", None)
            tests = [[test["description"], test["data"], test["valid"]] for test in group["tests"]]
            groups.append([f"{name}: {group['description']}", schema, tests])
lines = ",\n".join(json.dumps(group, ensure_ascii=False, separators=(",", ":")) for group in groups)
(HERE / "draft2020-12.json").write_text(f"[\n{lines}\n]\n")
print(len(groups), "groups", sum(len(tests) for *_, tests in groups), "tests")
