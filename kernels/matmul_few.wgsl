// Products of few tokens with packed matrices: memory speed is all that counts.
//
// A team of {{team}} invocations multiplies {{rows}} rows at a time with the activations of up to {{tokens}} tokens. Quantised
// matrices meet activations in 8 bits, which lie in blocks of 32 columns: two words of codes, then (scale, scaled sum
// of the first 16 codes, of the other 16, sum of the squares before any norm). The norm of the activations is put off:
// they come multiplied with its weights, and the results are divided by the root of the mean square.

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

struct Sums {
    {% for r in range(rows) %}{% for t in range(tokens) %}s{{r}}_{{t}}: f32,{% endfor %}{% endfor %}
}

{# One unit of each row, times that of each token. #}
{% macro multiply(part) %}
        {% for r in range(rows) %}
        let w{{r}} = {{ "unit" if part.coded else "values" }}{{part.p}}(row{{r}}, u);
        {% endfor %}
        {% for t in range(tokens) %}
        {% if part.coded %}
        let lo{{t}} = x_codes[x{{t}} + 2u * u];
        let hi{{t}} = x_codes[x{{t}} + 2u * u + 1u];
        let scales{{t}} = bitcast<vec4<f32>>(x_codes[x{{t}} + {{2 * part.units}}u + u]);
        {% for r in range(rows) %}
        sums.s{{r}}_{{t}} += scales{{t}}.x * (w{{r}}.scale.x * f32(dot_half(w{{r}}.lo, lo{{t}})) + w{{r}}.scale.y * f32(dot_half(w{{r}}.hi, hi{{t}})))
            - dot(w{{r}}.min, scales{{t}}.yz);
        {% endfor %}
        {% else %}
        {% for v in range(8) %}
        {% if part.last and v * 4 + 4 > part.last %}
        let f{{t}}_{{v}} = only_columns(x_floats[x{{t}} + 8u * u + {{v}}u], u, {{4 * v}}u);
        {% else %}
        let f{{t}}_{{v}} = x_floats[x{{t}} + 8u * u + {{v}}u];
        {% endif %}
        {% endfor %}
        {% for r in range(rows) %}
        sums.s{{r}}_{{t}} += {% for v in range(8) %}{{ " + " if v else "" }}dot(w{{r}}.v{{v}}, f{{t}}_{{v}}){% endfor %};
        {% endfor %}
        {% endif %}
        {% endfor %}
{% endmacro %}

{% for part in parts %}
{{part.decoder}}

fn products{{part.p}}(first: u32, token: u32, last: u32, lane: u32) -> Sums {
    var sums = Sums();
    {% for r in range(rows) %}
    let row{{r}} = min(first + {{r}}u, {{part.rows - 1}}u);
    {% endfor %}
    {% for t in range(tokens) %}
    let x{{t}} = min(token + {{t}}u, last) * {{part.x_stride}}u;
    {% endfor %}
    {% set stretch = part.unrolled * team %}
    {% set whole = part.units // stretch * stretch %}
    {% if whole %}
    for (var start = 0u; start < {{whole}}u; start += {{stretch}}u) {
        {% for k in range(part.unrolled) %}
        {
            let u = start + {{k * team}}u + lane;
            {{ multiply(part) }}
        }
        {% endfor %}
    }
    {% endif %}
    {% if whole < part.units %}
    for (var u = {{whole}}u + lane; u < {{part.units}}u; u += {{team}}u) {
        {{ multiply(part) }}
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

{% if x_norm %}
// An invocation's part of a token's sum of squares.
fn squares_of(token: u32, lane: u32) -> f32 {
    let at = token * {{3 * x_norm.blocks}}u + {{2 * x_norm.blocks}}u;
    var squares = 0.0;
    {% for k in range((x_norm.blocks + team - 1) // team) %}
    {{ "if lane + " ~ k * team ~ "u < " ~ x_norm.blocks ~ "u " if (k + 1) * team > x_norm.blocks }}{
        squares += bitcast<f32>(x_codes[at + {{k * team}}u + lane].w);
    }
    {% endfor %}
    return squares;
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
    let last = step[{{count_at}}] - 1u;
    let token = group.y * {{tokens}}u;
    {% if x_norm %}
    // Asked for now, summed up after the products.
    {% for t in range(tokens) %}
    let squares{{t}} = squares_of(min(token + {{t}}u, last), lane);
    {% endfor %}
    {% endif %}
    {% if emits %}
    // An invocation has one result in the end. What it adds to that is on its way from now on.
    let own_token = token + local / 32u;
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
    {% if glu %}
    let gate = products0(first, token, last, lane);
    let up = products1(first, token, last, lane);
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
        let factor = inverseSqrt(team_sum(squares{{t}}, local) * {{x_norm.reciprocal}} + {{x_norm.eps}});
        {% endif %}
        {% set scaled = " * factor" if x_norm else "" %}
        {% for r in range(rows) %}
        {% if glu %}
        let gate{{r}} = team_sum(gate.s{{r}}_{{t}}, local){{scaled}};
        let y{{r}} = {{glu}}(gate{{r}}) * team_sum(up.s{{r}}_{{t}}, local){{scaled}};
        {% else %}
        let y{{r}} = team_sum(sums.s{{r}}_{{t}}, local){{scaled}};
        {% endif %}
        {% endfor %}
        if lane == 0u && token + {{t}}u <= last {
            {% for r in range(rows) %}
            {% if emits %}
            results[{{32 * t}}u + within + {{r}}u] = y{{r}};
            {% else %}
            if first + {{r}}u < {{ "rows_of(part)" if not (glu or parts_joined == 1) else parts[0].rows ~ "u" }} {
                store(token + {{t}}u, first + {{r}}u, part, y{{r}});
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

fn silu(x: f32) -> f32 {
    return x / (1.0 + exp(-x));
}
