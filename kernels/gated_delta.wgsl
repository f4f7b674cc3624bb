// The gated delta rule over the tokens of a run, token by token. A workgroup has {{columns}} columns of a head's state in registers from
// the first token to the last, each of them spread over {{lanes}} invocations.

{{bindings}}

{% set quads = range(head_dim // 4 // lanes) %}

{% if not shuffles %}
var<workgroup> parts: array<vec4<f32>, {{workgroup}}>;
var<workgroup> parts_read: array<f32, {{workgroup}}>;
{% endif %}

{# Asks for what a token brings. #}
{% macro ask_for(row, var="var ") %}
    {% for i in quads %}
    {{var}}next_q{{i}} = qkv[{{row}} * {{x_stride // 4}}u + query + {{i}}u];
    {{var}}next_k{{i}} = qkv[{{row}} * {{x_stride // 4}}u + key + {{i}}u];
    {% endfor %}
    {{var}}next_value = qkv[({{row}} * {{x_stride}}u + own) / 4u][column % 4u];
    {{var}}next_alpha = alpha[{{row}} * {{gate_stride}}u + head];
    {{var}}next_beta = beta[{{row}} * {{gate_stride}}u + head];
{% endmacro %}

@compute @workgroup_size({{workgroup}})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    {% if shuffles %}
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_size) subgroup_size: u32,
    @builtin(subgroup_invocation_id) lane: u32,
    {% else %}
    @builtin(local_invocation_index) index: u32,
    {% endif %}
) {
    let at = {{ "subgroup * subgroup_size + lane" if shuffles else "index" }};
    let head = group.x / {{head_dim // columns}}u;
    let column = group.x % {{head_dim // columns}}u * {{columns}}u + at / {{lanes}}u;
    let slice = at % {{lanes}}u * {{quads | length}}u;
    let run = {{runs_at}}u + {{ "(step[3] + group.y)" if after_long else "group.y" }} * {{run_words}}u;
    let first = step[run];
    let tokens = step[run + 1u];
    let before = step[run + 2u];
    // A column's elements lie together.
    let place = (head * {{head_dim}}u + column) * {{head_dim // 4}}u + slice;
    {% for i in quads %}
    var s{{i}} = vec4(0.0);
    {% endfor %}
    if before > 0u {
        let old = (before - 1u) * {{state // 4}}u + place;
        {% for i in quads %}
        s{{i}} = states[old + {{i}}u];
        {% endfor %}
    }
    let query = {{key_head}} * {{head_dim // 4}}u + slice;
    let key = query + {{key_heads * head_dim // 4}}u;
    let own = (2u * {{key_heads}}u + head) * {{head_dim}}u + column;
    let pace = a[head];
    let shift = dt[head];
    {% for checkpoint in range(checkpoints) %}
    let checkpoint{{checkpoint}} = step[run + {{checkpoints_at + 2 * checkpoint}}u];
    {% endfor %}
    {{ ask_for("first") }}
    for (var token = 0u; token < tokens; token++) {
        let row = first + token;
        {% for i in quads %}
        let q{{i}} = next_q{{i}};
        let k{{i}} = next_k{{i}};
        {% endfor %}
        let value = next_value;
        let open = next_alpha + shift;
        let strength = 1.0 / (1.0 + exp(-next_beta));
        // The next token's are on their way meanwhile; after the last one its own once more.
        let next = min(row + 1u, first + tokens - 1u);
        {{ ask_for("next", "") }}
        // Products of the key with itself and with the query, and what the state before the token says to the two.
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
        let k_scale = inverseSqrt(sums.x + {{eps}});
        let q_scale = inverseSqrt((sums.y + {{eps}}) * {{head_dim}}.0);
        let softplus = max(open, 0.0) + log(1.0 + exp(-abs(open)));
        let decay = exp(pace * softplus);
        let change = strength * k_scale * (value - decay * k_scale * sums.w);
        {% for i in quads %}
        s{{i}} = decay * s{{i}} + change * k{{i}};
        {% endfor %}
        if slice == 0u {
            y[row * {{y_stride}}u + head * {{head_dim}}u + column] = q_scale * (decay * read + change * sums.z);
        }
        {% for checkpoint in range(checkpoints) %}
        if checkpoint{{checkpoint}} == token + 1u {
            let to = step[run + {{checkpoints_at + 1 + 2 * checkpoint}}u] * {{state // 4}}u + place;
            {% for i in quads %}
            states[to + {{i}}u] = s{{i}};
            {% endfor %}
        }
        {% endfor %}
    }
    let to = step[run + 3u] * {{state // 4}}u + place;
    {% for i in quads %}
    states[to + {{i}}u] = s{{i}};
    {% endfor %}
}
