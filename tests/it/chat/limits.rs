//! Tests of the limits on hostile templates.

use inkstone::{
    Error,
    chat::{ChatOptions, ChatTemplate, Message},
};
use minijinja::{Environment, value::Serde};
use serde_json::{Value, json};

use crate::support::allocation::peak_of_all_during;

/// The memory in bytes that a rendering may not exceed.
const MOST: usize = 1 << 30;

/// Returns the error of a template. Checks that it names a line and that the rendering stays within
/// the memory limit.
fn refused(source: &str) -> String {
    let render = |template: ChatTemplate| template.render(&[Message::user("hello")], &ChatOptions::default());
    let (result, peak) = peak_of_all_during(|| ChatTemplate::new(source, "", "").and_then(render));
    let shown: String = source.chars().take(200).collect();
    assert!(peak < MOST, "{} MB: {shown}", peak >> 20);
    match result {
        Err(error @ Error::ChatTemplate(_)) if error.to_string().contains("line 2") => error.to_string(),
        // The limit of steps can be exceeded at any line.
        Err(error @ Error::ChatTemplate(_)) if error.to_string().contains(TOO_MANY) => error.to_string(),
        other => panic!("{:?}: {shown}", other.map(|text| text.len())),
    }
}

const TOO_MUCH: &str = "makes more than 320 MB";
/// From version 3.1, minijinja counts allocations as steps, so its limit may be reached before
/// ours.
const TOO_MANY: &str = "too many steps";
const TOO_LONG: &str = "longer than 64 MB";

#[test]
fn exponential_growth_is_refused() {
    let doubling = [
        // Operators: texts, lists and tuples, in lists and dicts, in one expression.
        ("ns.s ~ ns.s", TOO_MUCH),
        ("ns.s + ns.s", TOO_MUCH),
        ("ns.s~ns.s|trim", TOO_MUCH),
        ("'' ~ ns.s ~ '' + ns.s if true else 1", TOO_MUCH),
        ("[[ns.s]][0][0] + {'a': [ns.s]}.a[0]", TOO_MUCH),
        ("dict(a=(ns.s ~ ns.s)).a", TOO_MUCH),
        ("(ns.s ~ ns.s if ns.s in 'x' or not ns.s is none else ns.s + ns.s)", TOO_MUCH),
        ("2 * ns.s", TOO_LONG),
        ("1 * ns.s * 2", TOO_LONG),
        ("ns.l + ns.l", TOO_MUCH),
        ("(ns.l + ns.l)|list", TOO_MUCH),
        ("ns.l * 2", TOO_MUCH),
        ("ns.t + ns.t", TOO_MUCH),
        ("2 * ns.t", TOO_MUCH),
        ("[ns.s ~ '', ns.s ~ '']|string", "too long"),
        // Filters and methods.
        ("[ns.s, ns.s]|join", TOO_LONG),
        ("''.join([ns.s, ns.s])", TOO_LONG),
        ("ns.s|replace('x', 'xx')", TOO_LONG),
        ("[ns.s, ns.s]|sum(start='')", TOO_LONG),
        ("'%s%s'|format(ns.s, ns.s)", TOO_LONG),
        ("'{0}{0}'.format(ns.s)", TOO_LONG),
        ("ns.s.split(sep='x')|join('xx')", TOO_MUCH),
        ("ns.l|chain(ns.l)", TOO_MUCH),
        ("ns.l|batch(1)|list + ns.l", TOO_MUCH),
    ];
    for (expression, message) in doubling {
        let start = "{% set ns = namespace(s='xxxx', l=['x'], t=('x', 1)) %}\n{% for i in range(99) %}";
        let name = ["s", "l", "t"].into_iter().find(|name| expression.contains(&format!("ns.{name}"))).unwrap();
        let source = format!("{start}{{% set ns.{name} = {expression} %}}{{% endfor %}}");
        let error = refused(&source);
        assert!([message, TOO_MANY].iter().any(|message| error.contains(message)), "{expression}: {error}");
    }
    let captured = [
        "{% set x %}{{ ns.s }}{{ ns.s }}{% endset %}",
        "{% set x %}{% filter upper %}{{ ns.s }}{{ ns.s }}{% endfilter %}{% endset %}",
        "{% set x | lower %}{{- ns.s -}} {{- ns.s -}}{% endset %}",
        "{% set x = twice(ns.s) %}",
        "{% set x %}{% call again() %}{{ ns.s }}{% endcall %}{% endset %}",
    ];
    let macros = "\n{% set ns = namespace(s='xx') %}{% macro twice(s) %}{{ s }}{{ s }}{% endmacro %}\
                  {% macro again() %}{{ caller() }}{{ caller() }}{% endmacro %}";
    for capture in captured {
        let source = format!("{macros}{{% for i in range(99) %}}{capture}{{% set ns.s = x %}}{{% endfor %}}");
        assert!(refused(&source).contains(TOO_MUCH), "{capture}");
    }
    let recursive = "{% macro more(s, n) -%}\n{{ more(s ~ s, n - 1) if n }}{% endmacro %}{% set x = more('xx', 99) %}";
    assert!(refused(recursive).contains(TOO_MUCH));
}

#[test]
fn retained_values_count_against_the_budget() {
    let start = "{% set big = 'x' * 30000000 %}{% set many = [1] * 1000000 %}{% set ns = namespace(kept=[]) %}\n";
    let copies = [
        "big[1:]",
        "big[::-1]",
        "big ~ i",
        "'x' + big",
        "big * 1",
        "big|reverse",
        "big|replace('y', 'z')",
        "big|indent",
        "big.strip('y')",
        "big.split('y')",
        "[big]|join",
        "'%s'|format(big)",
        "dict(**{big: 1})",
        "many|list",
        "many|sort",
        "many|zip(many)",
        "many|reverse|list",
        "many[1:]|list",
        "many + [1]",
        "((1,) * 1000000)[1:]",
        "([big] * 9999 is in 'x', big * 1)",
    ];
    for copy in copies {
        let source = format!("{start}{{% for i in range(999) %}}{{% set ns.kept = [ns.kept, {copy}] %}}{{% endfor %}}");
        assert!(refused(&source).contains("MB"), "{copy}");
    }
}

#[test]
fn template_text_counts_against_the_budget() {
    let text = "x".repeat(1 << 20);
    let loops = [
        text.clone(),
        format!("{{# one #}}{text}{{# two #}}"),
        format!("{{% raw %}}{text}{{% endraw %}}"),
        format!("{{{{- '' -}}}}   {text}\n"),
        format!("{{{{ '{text}' }}}}"),
        format!("{{% if true -%}}\n{text}{{%- else %}}{{% endif %}}"),
        " ".repeat(1 << 20),
    ];
    for written in loops {
        let source = format!("\n{{% set x %}}{{% for i in range(99999) %}}{written}{{% endfor %}}{{% endset %}}");
        assert!(refused(&source).contains(TOO_MUCH), "{}", &written[..40]);
    }
    let macros = format!("\n{{% macro text() %}}{text}{{% endmacro %}}{{% set ns = namespace(kept=[]) %}}");
    let kept = "{% for i in range(999) %}{% set ns.kept = [ns.kept, text()] %}{% endfor %}";
    assert!(refused(&format!("{macros}{kept}")).contains(TOO_MUCH));
    let itself = "\n{% set x %}{% for i in range(9) %}{% include 'chat_template' %}{% endfor %}{% endset %}";
    assert!(refused(itself).contains("include"));
}

#[test]
fn values_with_shared_contents_are_refused_by_every_output() {
    let start = "{% set ns = namespace(x=['x']) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}\n";
    let texts = [
        "ns.x in 'abc'",
        "ns.x not in 'abc'",
        "ns.x is in 'abc'",
        "[ns.x]|select('in', 'abc')",
        "ns.x|pprint",
        "ns.x|e",
        "[{'a': ns.x}]|join",
        "'%s'|format(ns.x)",
        "'{}'.format(ns.x)",
        "ns.x|sort",
        "debug()",
    ];
    for text in texts {
        refused(&format!("{start}{{% set x = {text} %}}"));
    }
}

#[test]
fn constants_are_counted_before_they_are_created() {
    let constants = "{% set x = 'x' * 99999999 %}".repeat(99);
    let error = refused(&format!("\n{{% if true %}}{constants}{{% endif %}}"));
    assert!([TOO_LONG, TOO_MANY].iter().any(|message| error.contains(message)), "{error}");
}

/// Generates expressions a few operators deep from a seed.
struct Expressions(u64);

impl Expressions {
    fn pick(&mut self, count: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % count
    }

    /// Returns one of `forms`, with `S`, `I`, `L` and `B` replaced by texts, integers, lists and
    /// conditions.
    fn form(&mut self, depth: usize, forms: &[&str]) -> String {
        let form = forms[self.pick(forms.len())];
        let space = ["", " ", "  ", "\n"][self.pick(4)];
        let mut text = String::new();
        for char in form.chars() {
            match char {
                'S' | 'I' | 'L' | 'B' => text += &self.make(char, depth - 1),
                ' ' => text += if form.contains(char::is_lowercase) { " " } else { space },
                _ => text.push(char),
            }
        }
        text
    }

    fn make(&mut self, kind: char, depth: usize) -> String {
        let leaves: &[&str] = match kind {
            'S' => &["'a'", "\"b'c\"", "'}}'", "'%}\\'{{'", "s", "d.k", "d['k']", "'x' 'y'", "s|upper", "t"],
            'I' => &["0", "1", "2", "3", "n", "d.n", "-1", "-n", "- n|abs", "n|abs", "t|length", "1_0"],
            'L' => &["[]", "[1, 'a']", "l", "l[1:]", "(1, 2)", "[s, n]", "t.split()"],
            _ => &["true", "s is string", "n is odd", "n is not none", "n is divisibleby 2", "x is not defined"],
        };
        if depth == 0 {
            return leaves[self.pick(leaves.len())].to_owned();
        }
        let forms: &[&str] = match kind {
            'S' => &[
                "S ~ S",
                "S ~ I",
                "I ~ S",
                "S ~ S ~ I",
                "S + S",
                "S + S + S",
                "S * 2",
                "3 * S",
                "(S)",
                "S[1:]",
                "(S)[:I]",
                "(S)[I:I:2]",
                "(S)|upper",
                "(S).lower()",
                "(S if B else S)",
                "S if B else S",
                "{'k': S, I: S}.k",
                "[S, S][I]",
                "(S)|replace(S, S)",
                "dict(a=S, b=S).b",
                "[S, S]|join(S)",
                "S ~ (S ~ S)[I:I]",
                "(S)|default(S)|trim",
            ],
            'I' => &[
                "I + I",
                "I - I",
                "I * I",
                "I + I - I",
                "I - I + I",
                "I // I",
                "I % I",
                "I / I",
                "I ** 2",
                "-I",
                "- I * I",
                "(I)",
                "(S)|length",
                "(L)|length",
                "I * I // I * I",
                "I + I * I ** 2",
                "I if B else I",
                "[I, I][0]",
                "(I)|abs + I",
            ],
            'L' => &[
                "L + L",
                "L + L + [S, I]",
                "L * 2",
                "2 * L",
                "(L)[1:]",
                "(L)[I:]",
                "(L)|list",
                "[L + L, S ~ S]",
                "(L)",
            ],
            _ => &[
                "I < I",
                "I + I == I",
                "S in S",
                "S ~ S in S",
                "S not in S ~ S",
                "I in L + L",
                "(B)",
                "not B",
                "B and B",
                "B or B",
                "(S) is string",
                "S + S == S",
                "(I) is eq(I + I)",
                "(S ~ S) is in [S ~ S, S]",
                "L + L == L",
                "(I) is gt 1",
            ],
        };
        self.form(depth, forms)
    }
}

/// Returns the output of a template, or the message of its error.
fn rendered(source: &str, variables: &Value) -> Result<String, String> {
    let options = variables.as_object().unwrap().iter();
    let options = options.fold(ChatOptions::default(), |options, (name, value)| options.variable(name.as_str(), value));
    let error =
        |error: Error| error.to_string().split_once(": line ").unwrap().1.split_once(": ").unwrap().1.to_owned();
    ChatTemplate::new(source, "", "").and_then(|template| template.render(&[], &options)).map_err(error)
}

/// Returns minijinja without our changes, except for the length of undefined values, which jinja2
/// defines.
fn plain() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    let length =
        |value: &minijinja::Value| if value.is_undefined() { Ok(0) } else { minijinja::filters::length(value) };
    environment.add_filter("length", length);
    environment
}

/// Returns the output of a template rendered by it.
fn plainly_rendered(source: &str, variables: &Value) -> Result<String, String> {
    let detail = |e: &minijinja::Error| e.detail().map(|detail| format!(": {detail}")).unwrap_or_default();
    let error = |e: minijinja::Error| format!("{}{}", e.kind(), detail(&e));
    plain().render_str(source, Serde(variables)).map_err(error)
}

#[test]
fn rewritten_expressions_evaluate_as_in_minijinja() {
    let mut variables = json!({
        "s": "Text", "t": "one two", "n": 4, "l": [1, "two", [3]], "d": {"k": "K", "n": 7},
    });
    let mut expressions = Expressions(1);
    let (mut values, mut errors) = (0, 0);
    for at in 0..4000 {
        let expression = expressions.make(['S', 'I', 'L', 'B'][at % 4], at / 4 % 4 + 1);
        let value = plain().compile_expression(&expression).and_then(|e| e.eval(Serde(&variables)));
        variables["value"] = value.map(|value| serde_json::to_value(value).unwrap()).unwrap_or_default();
        let source = format!(
            "{{% if [s, t, n, l, d, value] %}}{{% endif %}}{{% set e = {expression} %}}{{{{ (e == value)|int }}}}\
             {{% for test in ['string', 'integer', 'float', 'boolean', 'iterable'] %}}{{{{ [e]|select(test)|list|length }}}}{{% endfor %}}"
        );
        let (ours, plain) = (rendered(&source, &variables), plainly_rendered(&source, &variables));
        // In builds for tests, errors also say which name was undefined or which token was
        // unexpected. Slices are lists, as in Python.
        let comparable = |error: String| {
            let known = error.split(" (`").next().unwrap_or_default();
            known.split("syntax error").next().unwrap_or_default().replace("iterator", "sequence")
        };
        let plain = plain.map_err(comparable);
        assert_eq!(ours.map_err(comparable), plain, "{expression}");
        *if plain.is_ok() { &mut values } else { &mut errors } += 1;
    }
    assert!(values > 2000 && errors > 100, "{values} values, {errors} errors");
}

/// The stack of a test's thread would overflow for these templates.
#[test]
fn deep_nesting_does_not_overflow_the_stack() {
    let many = |part: &str| part.repeat(60_000);
    let long =
        |expression: String| assert!(refused(&format!("\n{{{{ {expression} }}}}")).contains("words and symbols"));
    long(many("not ") + "x");
    long(many("-") + "1");
    long("1".to_owned() + &many(" if x else 1"));
    long("x".to_owned() + &many(".y"));
    long("x".to_owned() + &many("()"));
    long("1".to_owned() + &many(" + 1"));
    long("x".to_owned() + &many(" or x"));
    long("x".to_owned() + &many("|upper"));
    long("1".to_owned() + &many(" is defined"));
    let tags = format!("\n{{% if x %}}{}{{% endif %}}", many("{% elif x %}"));
    assert!(refused(&tags).contains("more than 5000 tags"));
    // The deepest nesting that is allowed.
    let template = ChatTemplate::new(&format!("{{{{ {}false }}}}", "not ".repeat(3900)), "", "").unwrap();
    assert_eq!(template.render(&[Message::user("")], &ChatOptions::default()).unwrap(), "False");
    for value in ["[ns.l]", "{'a': ns.l}", "namespace(a=ns.l)", "[1] + [ns.l]", "[ns.l]|zip([1])"] {
        let nest = format!("{{% set ns.l = {value} %}}");
        let loops = "{% for i in range(9999) %}{% for j in range(9999) %}";
        let source = format!("{{% set ns = namespace(l=[]) %}}\n{loops}{nest}{{% endfor %}}{{% endfor %}}");
        assert!(refused(&source).contains("too many steps"), "{value}");
    }
    let slices =
        "{% set ns = namespace(l=[1, 2]) %}{% for i in range(60000) %}{% set ns.l = ns.l[0:] %}{% endfor %}{{ ns.l }}";
    let template = ChatTemplate::new(slices, "", "").unwrap();
    assert_eq!(template.render(&[Message::user("")], &ChatOptions::default()).unwrap(), "[1, 2]");
}
