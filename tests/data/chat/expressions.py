#!/usr/bin/env python3
"""Write expressions.json: what jinja2, as transformers sets it up, makes of expressions, and of a few statements.

    pip install transformers jinja2 && python expressions.py

Each entry is a template and its text. Those that jinja2 refuses are left out, and so is what minijinja does otherwise:
numbers, booleans and dicts where there should be lists or texts, texts formatted by `%`, and what is multiplied by a
negative number.
"""
import itertools
import json
import pathlib

from transformers.utils.chat_template_utils import _compile_jinja_template

VALUES = [
    "none", "true", "false", "0", "1", "-3", "2.5", "''", "'abc'", "'A b\\nC'", "' x '", "'12'", "'-7'", "'é<b>'", "'a,b,,c'",
    "[]", "[1,'a']", "[3,1,2]", "['b','A']", "{}", "{'a':1,'b':[2]}", "missing", "{'a':1}.b", "('a','b')",
    "[{'k':1,'v':'x'},{'k':2,'v':'y'}]"]
TEXTS = [value for value in VALUES if value.startswith("'")]
TESTS = [
    "defined", "undefined", "none", "boolean", "true", "false", "integer", "float", "number", "string", "sequence", "iterable", "mapping",
    "sameas none", "in [1,'a','abc']", "eq 1", "ne 'abc'", "divisibleby 3"]
FILTERS = [
    "length", "count", "string", "list", "first", "join", "join(', ')", "upper", "lower", "capitalize", "title", "trim", "sort",
    "unique|list", "sum", "abs", "round", "round(1)", "default('d')", "default('d', true)", "d('x')", "tojson", "tojson(indent=2)",
    "items|list", "dictsort", "safe", "replace('a','b')", "indent", "indent(2)", "batch(2)|list", "slice(2)|list",
    "map('upper')|list", "select|list", "reject|list", "selectattr('k')|list", "selectattr('k','equalto',1)|list",
    "rejectattr('k','equalto',1)|list", "max", "min", "trim('x')", "string|length", "select('string')|list", "map('string')|join('-')",
    "sort(reverse=true)", "sort(attribute='k')|list", "join(attribute='k')", "sum(attribute='k')", "center(9)"]
METHODS = [
    "strip()", "lstrip()", "rstrip()", "strip('a')", "lstrip('A')", "rstrip('c')", "upper()", "lower()", "title()", "capitalize()", "split()",
    "split('b')", "split(' ',1)", "split(',')", "split(',',-1)", "split(none,1)", "split(sep=',')", "split(',',maxsplit=1)", "split(maxsplit=1)",
    "rsplit()", "rsplit(',')", "rsplit(',',1)", "rsplit(maxsplit=1)", "rsplit(none,0)", "splitlines()", "splitlines(true)", "splitlines(keepends=true)",
    "startswith('a')", "endswith('c')", "startswith(('a','b'))", "endswith(('c','x'))", "replace('a','x')", "replace('a','x',1)", "find('b')",
    "rfind('b')", "index('b')", "rindex('b')", "count('a')", "isdigit()", "isalpha()", "isalnum()", "isspace()", "islower()", "isupper()",
    "join(['x','y'])", "removeprefix('a')", "removesuffix('c')", "partition('b')", "rpartition('b')", "partition(',')", "rpartition(',')",
    "zfill(5)", "ljust(5)", "rjust(5)", "center(5)", "center(6)", "ljust(5,'-')", "rjust(6,'-')", "center(6,'-')", "swapcase()", "keys()|list",
    "values()|list", "items()|list", "get('a')", "get('z')", "get('z','d')", "index(1)", "count(1)", "copy()"]
SLICES = ["[0]", "[-1]", "['a']", "[1:]", "[:1]", "[:-1]", "[5]", "[-2:]"]
OPERATORS = ["+", "-", "*", "/", "//", "%", "~", "==", "!=", "in", "not in", "and", "or"]
STATEMENTS = [
    "{{ 'abc'[::-1] }}{{ [1,2]|last }}{{ missing|last }}{{ [1,2,3][::-1] }}",
    "{% for x in [1,2,3] if x > 1 %}{{ loop.index0 }}{{ loop.length }}{{ loop.revindex }}{{ x }}{% else %}none{% endfor %}",
    "{% for x in missing %}x{% else %}none{% endfor %}", "{% for k,v in {'a':1}.items() %}{{ k }}={{ v }}{% endfor %}",
    "{% for x in [1,2,3] %}{% if loop.changed(x) %}c{% endif %}{{ loop.cycle('a','b') }}{{ loop.previtem }}{{ loop.nextitem }}{% endfor %}",
    "{% for x in [1,2,3,4] %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 4 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "{% set ns = namespace(a=1) %}{% for x in [1,2] %}{% set ns.a = ns.a + x %}{% endfor %}{{ ns.a }}",
    "{% set x %}a{{ 1 }}b{% endset %}{{ x|length }}{{ x }}",
    "{% macro m(a, b='d', c=none) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }}{{ m(1, c=2) }}{{ m('x')|upper }}{{ m('x') ~ 'y' }}",
    "{% macro m(a) %}{{ a }}{{ caller() }}{% endmacro %}{% call m(1) %}x{% endcall %}", "{% filter upper %}abc{{ 'd' }}{% endfilter %}",
    "{% with a=1, b=2 %}{{ a+b }}{% endwith %}", "{% raw %}{{ x }}{% endraw %}", "{# c #}a{#- c -#}  b", "a  {%- if true -%}  b  {%- endif -%}  c",
    "  {% if true %}\n  x\n  {% endif %}\n  y\n", "{{ 'a' }}\n{{ 'b' }}\n", "{% set a, b = [1, 2] %}{{ a }}{{ b }}",
    "{% for x in range(3) %}{% set y = x %}{% endfor %}{{ y is defined }}", "{% if true %}{% set y = 2 %}{% endif %}{{ y }}",
    "{% set c = cycler('a','b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}", "{% set j = joiner(', ') %}{{ j() }}{{ j() }}{{ j() }}",
    "{% for a, b in [[1,2],[3,4]] %}{{ a }}-{{ b }};{% endfor %}", "{{ 1 < 2 < 3 }}{{ 'a' 'b' }}{{ [] == [] }}{{ 1 == 1.0 }}{{ '1' == 1 }}"]


def expressions():
    for value in VALUES:
        yield from (f"({value}) is {test}" for test in TESTS)
        if value not in ("none", "true", "false", "0"):
            yield from (f"({value})|{name}" for name in FILTERS)
        if value.startswith(("'", "[", "(")):
            yield from (f"({value}){part}" for part in SLICES)
        yield from (f"not ({value})", f"({value}) if missing", f"namespace(a={value}).a", f"[{value}]|tojson")
        yield from (f"({value}).{method}" for method in METHODS)
    for a, b in itertools.product(VALUES, VALUES):
        unlike = ["%"] * (a in TEXTS) + ["*"] * ("-3" in (a, b))
        yield from (f"({a}) {operator} ({b})" for operator in OPERATORS if operator not in unlike)


def main():
    cases = []
    for template in ["{{ " + expression + " }}" for expression in expressions()] + STATEMENTS:
        try:
            cases.append([template, _compile_jinja_template(template).render()])
        except Exception:  # noqa: BLE001 - whatever it refuses
            continue
    lines = ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases if " object at 0x" not in case[1])
    pathlib.Path(__file__).with_suffix(".json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    print(len(cases))


if __name__ == "__main__":
    main()
