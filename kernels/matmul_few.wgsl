// Products of few tokens with packed matrices: memory speed is all that counts.
//
// A team of {{team}} invocations multiplies {{rows}} rows at a time with the activations of up to {{tokens}} tokens. Quantised
// matrices meet activations in 8 bits, which lie in blocks of 32 columns: two words of codes, then (scale, scaled sum
// of the first 16 codes, of the other 16, sum of the squares before any norm). The norm of the activations is put off:
// they come multiplied with its weights, and the results are divided by the root of the mean square.
//
// Of a mixture of experts, `taken` says which rows of the stack are meant, and with what weight. A slot is one expert of
// one token: slots are what gate and up are multiplied with, and down's products are summed over those of a token.

{{prelude}}

{{bindings}}

{% if not subgroup %}
var<workgroup> lanes: array<f32, {{workgroup}}>;
{% endif %}
{% if emits %}
var<workgroup> results: array<f32, {{32 * tokens}}>;
{% endif %}

// The sum over a team, for all of it.
fn team_sum(value: f32, local: u32) -> f32 {
    {% if subgroup %}
    var sum = value;
    {% for shift in shifts %}
    sum += subgroupShuffleXor(sum, {{shift}}u);
    {% endfor %}
    return sum;
    {% else %}
    workgroupBarrier();
    lanes[local] = value;
    workgroupBarrier();
    var sum = 0.0;
    for (var i = 0u; i < {{team}}u; i++) {
        sum += lanes[local / {{team}}u * {{team}}u + i];
    }
    return sum;
    {% endif %}
}

// By row, then by token.
struct Sums {
    {% for n in range(rows * (2 if glu else 1)) %}{% for t in range(tokens) %}s{{n}}_{{t}}: f32,{% endfor %}{% endfor %}
    {% if x_norm %}{% for t in range(tokens) %}squares{{t}}: f32,{% endfor %}{% endif %}
}

{# One unit of each row of parts that are multiplied together, times that of each token. #}
{% macro multiply(joined) %}
        {% for part in joined %}{% set p = loop.index0 * rows %}{% for r in range(rows) %}
        let w{{p + r}} = {{ "unit" if part.coded else "values" }}{{part.p}}(row{{p + r}}, u);
        {% endfor %}{% endfor %}
        {% for t in range(tokens) %}
        {% if joined|selectattr("coded") %}
        let lo{{t}} = x_codes[codes{{t}} + 2u * u];
        let hi{{t}} = x_codes[codes{{t}} + 2u * u + 1u];
        let scales{{t}} = bitcast<vec4<f32>>(x_codes[codes{{t}} + {{2 * joined[0].units}}u + u]);
        {% if x_norm %}
        sums.squares{{t}} += scales{{t}}.w;
        {% endif %}
        {% endif %}
        {% if joined|rejectattr("coded") %}
        {% for v in range(8) %}
        {% if ragged and v * 4 + 4 > columns % 32 %}
        let f{{t}}_{{v}} = only_columns(x_floats[floats{{t}} + 8u * u + {{v}}u], u, {{4 * v}}u);
        {% else %}
        let f{{t}}_{{v}} = x_floats[floats{{t}} + 8u * u + {{v}}u];
        {% endif %}
        {% endfor %}
        {% endif %}
        {% for part in joined %}{% set p = loop.index0 * rows %}{% for r in range(rows) %}{% set n = p + r %}
        {% if part.coded %}
        sums.s{{n}}_{{t}} += scales{{t}}.x * (w{{n}}.scale.x * f32(dot_half(w{{n}}.lo, lo{{t}})) + w{{n}}.scale.y * f32(dot_half(w{{n}}.hi, hi{{t}})))
            - dot(w{{n}}.min, scales{{t}}.yz);
        {% else %}
        sums.s{{n}}_{{t}} += {% for v in range(8) %}{{ " + " if v else "" }}dot(w{{n}}.v{{v}}, f{{t}}_{{v}}){% endfor %};
        {% endif %}
        {% endfor %}{% endfor %}
        {% endfor %}
{% endmacro %}

{% for part in parts %}
{{part.decoder}}
{% endfor %}

{% for joined in parts|batch(2 if glu else 1) %}
fn products{{joined[0].p}}(first: u32, token: u32, last: u32, lane: u32{{ ", expert: u32" if mixture }}) -> Sums {
    var sums = Sums();
    {% for part in joined %}{% set p = loop.index0 * rows %}{% for r in range(rows) %}
    let row{{p + r}} = {{ "expert * " ~ part.every ~ "u + " ~ part.first_of_stack ~ "u + " if mixture }}min(first + {{r}}u, {{part.rows - 1}}u);
    {% endfor %}{% endfor %}
    {% for t in range(tokens) %}
    let codes{{t}} = min(token + {{t}}u, last) * {{3 * joined[0].units}}u;
    let floats{{t}} = min(token + {{t}}u, last) * {{x_stride // 4}}u;
    {% endfor %}
    {% set units = joined[0].units %}
    {% set stretch = unrolled * team %}
    {% set whole = units // stretch * stretch %}
    {% if whole %}
    for (var start = 0u; start < {{whole}}u; start += {{stretch}}u) {
        {% for k in range(unrolled) %}
        {
            let u = start + {{k * team}}u + lane;
            {{ multiply(joined) }}
        }
        {% endfor %}
    }
    {% endif %}
    {% if whole < units %}
    for (var u = {{whole}}u + lane; u < {{units}}u; u += {{team}}u) {
        {{ multiply(joined) }}
    }
    {% endif %}
    return sums;
}
{% endfor %}

fn dot_half(codes: vec4<u32>, x: vec4<u32>) -> i32 {
    return dot4I8Packed(codes.x, x.x) + dot4I8Packed(codes.y, x.y) + dot4I8Packed(codes.z, x.z) + dot4I8Packed(codes.w, x.w);
}

{% if ragged %}
// What lies beyond a row's last column is not the row's.
fn only_columns(x: vec4<f32>, u: u32, column: u32) -> vec4<f32> {
    let columns = vec4(u * 32u + column) + vec4(0u, 1u, 2u, 3u);
    return select(vec4(0.0), x, columns < vec4({{columns}}u));
}
{% endif %}

{% if not emits %}
fn store(token: u32, row: u32, part: u32, value: f32) {
    {% if parts_joined == 1 %}
    {% if residual == "in_place" %}
    out0[token * {{parts[0].out_stride}}u + {{parts[0].out_at}}u + row] += value;
    {% elif residual == "other" %}
    out0[token * {{parts[0].out_stride}}u + {{parts[0].out_at}}u + row] = value + residual[token * {{residual_stride}}u + {{parts[0].out_at}}u + row];
    {% else %}
    out0[token * {{parts[0].out_stride}}u + {{parts[0].out_at}}u + row] = value;
    {% endif %}
    {% else %}
    switch part {
        {% for part in parts %}
        case {{loop.index0}}u{{ ", default" if loop.last else "" }}: {
            out{{part.p}}[token * {{part.out_stride}}u + {{part.out_at}}u + row] = value;
        }
        {% endfor %}
    }
    {% endif %}
}
{% endif %}

@compute @workgroup_size({{workgroup}})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) index: u32,
    {% if subgroup %}
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_size) subgroup_size: u32,
    @builtin(subgroup_invocation_id) subgroup_lane: u32,
    {% endif %}
) {
    {% if subgroup %}
    let local = subgroup * subgroup_size + subgroup_lane;
    {% else %}
    let local = index;
    {% endif %}
    let lane = local % {{team}}u;
    {% if mixture %}
    let token = group.y;
    {% elif tokens == 1 %}
    let last = 0u;
    let token = 0u;
    {% else %}
    let last = step[{{count_at}}] - 1u;
    let token = group.y * {{tokens}}u;
    {% endif %}
    // The row that is written, which is another than that which is read where a token has several.
    {% if mixture and not mixture.sums %}
    let to = token * {{mixture.used}}u + group.z;
    let expert = taken[to].x;
    if expert >= {{mixture.experts}}u {
        return;
    }
    {% else %}
    let to = token;
    {% endif %}
    {% if mixture %}
    let last = to;
    {% endif %}
    {% if emits %}
    // An invocation has one result in the end. What it adds to that is on its way from now on.
    let own_token = to + local / 32u;
    let own_row = group.x * 32u + local % 32u;
    let is_own = local < {{32 * tokens}}u && own_token <= last;
    {% if residual or stores %}
    let own_at = min(own_token, last) * {{parts[0].out_stride}}u + own_row;
    {% endif %}
    {% if residual %}
    let added = {{ "out0[own_at]" if residual == "in_place" else "residual[min(own_token, last) * " ~ residual_stride ~ "u + own_row]" }};
    {% endif %}
    let norm_weight = {{ "norm[own_row]" if emits.norm else "1.0" }};
    {% endif %}
    {% if passes > 1 %}
    for (var within = local / {{team}}u * {{rows}}u; within < {{group_rows}}u; within += {{group_rows // passes}}u) {
    {% else %}
    {
    let within = local / {{team}}u * {{rows}}u;
    {% endif %}
    var part = 0u;
    var first = group.x * {{group_rows}}u + within;
    {% if mixture and mixture.sums %}
    var sums = Sums();
    for (var slot = token * {{mixture.used}}u; slot < (token + 1u) * {{mixture.used}}u; slot++) {
        let own = taken[slot];
        if own.x < {{mixture.experts}}u {
            let one = products0(first, slot, slot, lane, own.x);
            {% for r in range(rows) %}
            sums.s{{r}}_0 += bitcast<f32>(own.y) * one.s{{r}}_0;
            {% endfor %}
        }
    }
    {% elif mixture %}
    let sums = products0(first, token, token, lane, expert);
    {% elif parts_joined == 1 %}
    let sums = products0(first, token, last, lane);
    {% else %}
    var sums: Sums;
    {% for part in parts %}
    {{ "} else " if not loop.first else "" }}{% if not loop.last %}if group.x < {{part.end_block}}u {% endif %}{
        part = {{loop.index0}}u;
        first = (group.x - {{part.first_block}}u) * {{group_rows}}u + within;
        sums = products{{part.p}}(first, token, last, lane);
    {% endfor %}
    }
    {% endif %}
    {% for t in range(tokens) %}
    {
        {% if x_norm %}
        let factor = inverseSqrt(team_sum(sums.squares{{t}}, local) * {{x_norm.reciprocal}} + {{x_norm.eps}});
        {% endif %}
        {% set scaled = " * factor" if x_norm else "" %}
        {% for r in range(rows) %}
        {% if glu %}
        let gate{{r}} = team_sum(sums.s{{r}}_{{t}}, local){{scaled}};
        let y{{r}} = {{glu}}(vec4(gate{{r}})).x * team_sum(sums.s{{rows + r}}_{{t}}, local){{scaled}};
        {% else %}
        let y{{r}} = team_sum(sums.s{{r}}_{{t}}, local){{scaled}};
        {% endif %}
        {% endfor %}
        if lane == 0u && to + {{t}}u <= last {
            {% for r in range(rows) %}
            {% if emits %}
            results[{{32 * t}}u + within + {{r}}u] = y{{r}};
            {% else %}
            if first + {{r}}u < {{ "rows_of(part)" if not (glu or parts_joined == 1) else parts[0].rows ~ "u" }} {
                store(to + {{t}}u, first + {{r}}u, part, y{{r}});
            }
            {% endif %}
            {% endfor %}
        }
    }
    {% endfor %}
    }
    {% if emits %}
    workgroupBarrier();
    {
        let y = results[min(local, {{32 * tokens - 1}}u)]{{ " + added" if residual }};
        {% if stores %}
        if is_own {
            out0[own_at] = y;
        }
        {% endif %}
        write_codes(y, norm_weight, own_token, group.x, local, is_own);
    }
    {% endif %}
}

{% if not glu and parts_joined > 1 %}
fn rows_of(part: u32) -> u32 {
    return array<u32, {{parts|length}}>({% for part in parts %}{{part.rows}}u, {% endfor %})[part];
}
{% endif %}

{% if emits %}
{{codes}}
{% endif %}
