// The gated delta rule over the tokens of a run. A workgroup has {{columns}} columns of a head's state in registers from
// the first token to the last, each of them spread over {{lanes}} invocations.

{{bindings}}

{% set quads = range(head_dim // 4 // lanes) %}

{% if not shuffles %}
var<workgroup> parts: array<vec4<f32>, {{workgroup}}>;
var<workgroup> parts_read: array<f32, {{workgroup}}>;
{% endif %}

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
    let run = {{runs_at}}u + group.y * {{run_words}}u;
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
    for (var token = 0u; token < tokens; token++) {
        let row = first + token;
        let query = row * {{x_stride // 4}}u + head % {{key_heads}}u * {{head_dim // 4}}u + slice;
        let key = query + {{key_heads * head_dim // 4}}u;
        // Products of the key with itself and with the query, and what the state before the token says to the two.
        var sums = vec4(0.0);
        var read = 0.0;
        {% for i in quads %}
        let q{{i}} = qkv[query + {{i}}u];
        let k{{i}} = qkv[key + {{i}}u];
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
        let open = alpha[row * {{gate_stride}}u + head] + dt[head];
        let softplus = max(open, 0.0) + log(1.0 + exp(-abs(open)));
        let decay = exp(a[head] * softplus);
        let strength = 1.0 / (1.0 + exp(-beta[row * {{gate_stride}}u + head]));
        let value = qkv[(row * {{x_stride}}u + (2u * {{key_heads}}u + head) * {{head_dim}}u + column) / 4u][column % 4u];
        let change = strength * k_scale * (value - decay * k_scale * sums.w);
        {% for i in quads %}
        s{{i}} = decay * s{{i}} + change * k{{i}};
        {% endfor %}
        if slice == 0u {
            y[row * {{y_stride}}u + head * {{head_dim}}u + column] = q_scale * (decay * read + change * sums.z);
        }
        {% for checkpoint in range(checkpoints) %}
        if step[run + {{4 + 2 * checkpoint}}u] == token + 1u {
            let to = step[run + {{5 + 2 * checkpoint}}u] * {{state // 4}}u + place;
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
