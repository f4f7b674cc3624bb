// Computes the gated delta rule token by token.
//
// A workgroup keeps some columns of a head's state in registers from the first token of a run to
// the last. Each column is spread over `lanes` invocations.
//
// Parameters (`GatedDeltaKernel`):
//   workgroup: u32 - invocations of a workgroup
//   lanes: u32 - invocations that share a column of the state
//   after_long: bool - whether this kernel skips the long runs, which come first
//   shuffles: bool - whether the invocations of a column are in one subgroup, whose operations they
//     use
//   delta: Delta - the rule
//   runs: RunTable - the runs
//   state: u32 - elements of a state, `[value_heads, head_dim, head_dim]`
//
// Buffers:
//   qkv: vec4<f32>
//   alpha: f32 - `[tokens, value_heads]`
//   beta: f32 - `[tokens, value_heads]`
//   a: f32 - `[value_heads]`
//   dt: f32 - `[value_heads]`
//   states: vec4<f32>, written
//   y: f32, written

{% from "shared/delta" import key_head %}
{% from "shared/entry" import entry, index %}
{% from "shared/runs" import checkpoint_state, read_checkpoints, run_at %}
{% include "shared/bindings" %}

{% set columns = workgroup // lanes %}
{% set quads = range(delta.head_dim // 4 // lanes) %}

{% if not shuffles %}
var<workgroup> parts: array<vec4<f32>, {{workgroup}}>;
var<workgroup> parts_read: array<f32, {{workgroup}}>;
{% endif %}

{# Reads the operands of a token. #}
{% macro read_operands(row, var="var ") %}
    {% for i in quads %}
    {{var}}next_q{{i}} = qkv[{{row}} * {{delta.qkv.stride // 4}}u + query + {{i}}u];
    {{var}}next_k{{i}} = qkv[{{row}} * {{delta.qkv.stride // 4}}u + key + {{i}}u];
    {% endfor %}
    {{var}}next_value = qkv[({{row}} * {{delta.qkv.stride}}u + own) / 4u][column % 4u];
    {{var}}next_alpha = alpha[{{row}} * {{delta.gate_stride}}u + head];
    {{var}}next_beta = beta[{{row}} * {{delta.gate_stride}}u + head];
{% endmacro %}

{{ entry(workgroup, shuffles, numbered=true, counted=false) }} {
    let at = {{ index(shuffles) }};
    let head = group.x / {{delta.head_dim // columns}}u;
    let column = group.x % {{delta.head_dim // columns}}u * {{columns}}u + at / {{lanes}}u;
    let slice = at % {{lanes}}u * {{quads | length}}u;
    let run = {{ run_at(runs, "(step[LONG_RUNS] + group.y)" if after_long else "group.y") }};
    let first = step[run + RUN_FIRST_TOKEN];
    let tokens = step[run + RUN_TOKENS];
    let before = step[run + RUN_STATE_BEFORE];
    // A column's elements are contiguous.
    let place = (head * {{delta.head_dim}}u + column) * {{delta.head_dim // 4}}u + slice;
    {% for i in quads %}
    var s{{i}} = vec4(0.0);
    {% endfor %}
    if before > 0u {
        let old = (before - 1u) * {{state // 4}}u + place;
        {% for i in quads %}
        s{{i}} = states[old + {{i}}u];
        {% endfor %}
    }
    let query = {{ key_head(delta) }} * {{delta.head_dim // 4}}u + slice;
    let key = query + {{delta.key_heads * delta.head_dim // 4}}u;
    let own = (2u * {{delta.key_heads}}u + head) * {{delta.head_dim}}u + column;
    let pace = a[head];
    let shift = dt[head];
    {{ read_checkpoints(runs) }}
    {{ read_operands("first") }}
    for (var token = 0u; token < tokens; token++) {
        let row = first + token;
        {% for i in quads %}
        let q{{i}} = next_q{{i}};
        let k{{i}} = next_k{{i}};
        {% endfor %}
        let value = next_value;
        let open = next_alpha + shift;
        let strength = 1.0 / (1.0 + exp(-next_beta));
        // The next token's operands are loaded meanwhile; after the last token its own again.
        let next = min(row + 1u, first + tokens - 1u);
        {{ read_operands("next", "") }}
        // Products of key and query with themselves, each other and the state before the token.
        var sums = vec4(0.0);
        var read = 0.0;
        {% for i in quads %}
        sums += vec4(dot(k{{i}}, k{{i}}), dot(q{{i}}, q{{i}}), dot(k{{i}}, q{{i}}), dot(s{{i}}, k{{i}}));
        read += dot(s{{i}}, q{{i}});
        {% endfor %}
        {% if shuffles %}
        {% for mask in [1, 2, 4] if mask < lanes %}
        sums += subgroupShuffleXor(sums, {{mask}}u);
        read += subgroupShuffleXor(read, {{mask}}u);
        {% endfor %}
        {% else %}
        workgroupBarrier();
        parts[at] = sums;
        parts_read[at] = read;
        workgroupBarrier();
        sums = vec4(0.0);
        read = 0.0;
        for (var i = 0u; i < {{lanes}}u; i++) {
            sums += parts[at / {{lanes}}u * {{lanes}}u + i];
            read += parts_read[at / {{lanes}}u * {{lanes}}u + i];
        }
        {% endif %}
        let k_scale = inverseSqrt(sums.x + {{delta.eps}});
        let q_scale = inverseSqrt((sums.y + {{delta.eps}}) * {{delta.head_dim}}.0);
        let softplus = max(open, 0.0) + log(1.0 + exp(-abs(open)));
        let decay = exp(pace * softplus);
        let change = strength * k_scale * (value - decay * k_scale * sums.w);
        {% for i in quads %}
        s{{i}} = decay * s{{i}} + change * k{{i}};
        {% endfor %}
        if slice == 0u {
            y[row * {{delta.y.stride}}u + head * {{delta.head_dim}}u + column] =
                q_scale * (decay * read + change * sums.z);
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
