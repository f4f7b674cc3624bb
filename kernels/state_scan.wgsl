// Computes a state-space scan over the tokens of a run, token by token.
//
// `lanes` invocations share a row of a head's state, and keep it in registers.
//
// Parameters (`StateScanKernel`):
//   workgroup: u32 - invocations of a workgroup
//   lanes: u32 - invocations that share a row of the state
//   shuffles: bool - whether the invocations of a row are in one subgroup, whose operations they use
//   scan: Scan - the sizes
//   scan.heads: u32 - number of heads
//   scan.groups: u32 - number of groups
//   scan.head_dim: u32 - elements of a head
//   scan.size: u32 - columns of a head's state
//   runs: RunTable - the runs
//   state: u32 - elements of a state, `[heads, head_dim, size]`
//   x: Strided - inputs, then `B` and `C` of all groups
//   dt: Strided - the lengths of the tokens' steps before the softplus, `[tokens, heads]`
//   y: Strided - the result, `[tokens, heads, head_dim]`
//
// Buffers:
//   x: vec4<f32>
//   dt: f32
//   a: f32 - `[heads]`
//   bias: f32 - the bias of `dt`, `[heads]`
//   d: f32 - `[heads]`
//   states: vec4<f32>, written
//   y: f32, written

{% from "shared/entry" import entry, index %}
{% from "shared/runs" import checkpoint_state, read_checkpoints, run_at %}
{% include "shared/bindings" %}

{% set rows = workgroup // lanes %}
{% set width = scan.heads * scan.head_dim %}
{% set quads = range(scan.size // 4 // lanes) %}

{% if not shuffles %}
var<workgroup> parts: array<f32, {{workgroup}}>;
{% endif %}

// ln(1 + x) for x from 0 to 1, as 2 artanh(x / (2 + x)). The logarithm of a sum would lose the last
// digits of a small x.
fn log_of_one_plus(x: f32) -> f32 {
    let u = x / (2.0 + x);
    let v = u * u;
    var sum = 0.07692308;
    {% for c in [0.09090909, 0.11111111, 0.14285714, 0.2, 0.33333334] %}
    sum = fma(sum, v, {{c}});
    {% endfor %}
    return 2.0 * fma(sum * v, u, u);
}

{# Reads the operands of a token. #}
{% macro read_operands(row, var="var ") %}
    {% for i in quads %}
    {{var}}next_b{{i}} = x[{{row}} * {{x.stride // 4}}u + of_group + {{i}}u];
    {{var}}next_c{{i}} = x[{{row}} * {{x.stride // 4}}u + of_group + {{scan.groups * scan.size // 4 + i}}u];
    {% endfor %}
    {{var}}next_x = x[{{row}} * {{x.stride // 4}}u + own / 4u][own % 4u];
    {{var}}next_dt = dt[{{row}} * {{dt.stride}}u + head];
{% endmacro %}

{{ entry(workgroup, shuffles, numbered=true, counted=false) }} {
    let at = {{ index(shuffles) }};
    // The row among those of all heads.
    let own = group.x * {{rows}}u + at / {{lanes}}u;
    let head = own / {{scan.head_dim}}u;
    let slice = at % {{lanes}}u * {{quads | length}}u;
    let run = {{ run_at(runs, "group.y") }};
    let first = step[run + RUN_FIRST_TOKEN];
    let tokens = step[run + RUN_TOKENS];
    let before = step[run + RUN_STATE_BEFORE];
    let place = own * {{scan.size // 4}}u + slice;
    {% for i in quads %}
    var s{{i}} = vec4(0.0);
    {% endfor %}
    if before > 0u {
        let old = (before - 1u) * {{state // 4}}u + place;
        {% for i in quads %}
        s{{i}} = states[old + {{i}}u];
        {% endfor %}
    }
    let of_group = {{width // 4}}u + head / {{scan.heads // scan.groups}}u * {{scan.size // 4}}u + slice;
    let pace = a[head];
    let shift = bias[head];
    let skip = d[head];
    {{ read_checkpoints(runs) }}
    {{ read_operands("first") }}
    for (var token = 0u; token < tokens; token++) {
        let row = first + token;
        {% for i in quads %}
        let b{{i}} = next_b{{i}};
        let c{{i}} = next_c{{i}};
        {% endfor %}
        let input = next_x;
        let open = next_dt + shift;
        // The next token's operands are loaded meanwhile; after the last token its own again.
        let next = min(row + 1u, first + tokens - 1u);
        {{ read_operands("next", "") }}
        let length = max(open, 0.0) + log_of_one_plus(exp(-abs(open)));
        let decay = exp(pace * length);
        let gain = length * input;
        var sum = 0.0;
        {% for i in quads %}
        s{{i}} = decay * s{{i}} + gain * b{{i}};
        sum += dot(s{{i}}, c{{i}});
        {% endfor %}
        {% if shuffles %}
        {% for mask in [1, 2, 4] if mask < lanes %}
        sum += subgroupShuffleXor(sum, {{mask}}u);
        {% endfor %}
        {% else %}
        workgroupBarrier();
        parts[at] = sum;
        workgroupBarrier();
        sum = 0.0;
        for (var i = 0u; i < {{lanes}}u; i++) {
            sum += parts[at / {{lanes}}u * {{lanes}}u + i];
        }
        {% endif %}
        if slice == 0u {
            y[row * {{y.stride}}u + own] = sum + skip * input;
        }
        {% for checkpoint in range(runs.checkpoints) %}
        if checkpoint{{checkpoint}} == token + 1u {
            let to = {{ checkpoint_state(runs, checkpoint) }} * {{state // 4}}u + place;
            {% for i in quads %}
            states[to + {{i}}u] = s{{i}};
            {% endfor %}
        }
        {% endfor %}
    }
    let to = step[run + RUN_STATE_AFTER] * {{state // 4}}u + place;
    {% for i in quads %}
    states[to + {{i}}u] = s{{i}};
    {% endfor %}
}
