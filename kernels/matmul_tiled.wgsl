// Products of many tokens, y[t][n] = sum over k of x[t][k] w[n][k], in f32 on any adapter. One dispatch serves every
// matrix that reads the same x (a part each). Workgroup (i, j) makes tile j of the rows for tile i of the tokens. Its
// threads form 16 columns: each makes {{tile.tokens * 16 // threads}} tokens of {{tile.rows // 16}} rows. Of a mixture of experts the tiles
// are listed, and what stands for tokens are slots, each of which reads its token's row or, further on, its own.

{{prelude}}
{% set groups = threads // 16 %}
{% set tokens_each = tile.tokens // groups %}
{% set rows_each = tile.rows // 16 %}
{% set x_loads = tile.tokens * 8 // threads %}
{% set w_loads = (tile.rows + threads - 1) // threads %}

{{bindings}}

// 32 columns of each token and each row.
var<workgroup> x_tile: array<vec4<f32>, {{tile.tokens * 8}}>;
var<workgroup> w_tile: array<vec4<f32>, {{tile.rows * 8}}>;

// Where four columns of a row of a tile lie: neighbouring rows start in different banks.
fn place(row: u32, quad: u32) -> u32 {
    return row * 8u + (quad ^ (row % 8u));
}

// Four columns of x, zero beyond its width.
fn x_quad(token: u32, quad: u32) -> vec4<f32> {
    {% if last == columns %}
    return x[token * {{x_stride // 4}}u + quad];
    {% else %}
    let values = x[token * {{x_stride // 4}}u + min(quad, {{x_stride // 4 - 1}}u)];
    return select(vec4(0.0), values, vec4(quad * 4u) + vec4(0u, 1u, 2u, 3u) < vec4({{last}}u));
    {% endif %}
}

{% for part in parts %}
{% set p = part.p %}

{{part.decoder}}

fn product{{p}}(first_token: u32, first_row: u32, thread: u32{{ ", tokens: u32, expert: u32" if mixture }}) {
    {% if not mixture %}
    let tokens = step[{{count_at}}];
    {% endif %}
    let column = thread % 16u;
    let group = thread / 16u;
    {% for i in range(tokens_each) %}{% for j in range(rows_each) %}
    var sum{{i}}_{{j}} = 0.0;
    {% endfor %}{% endfor %}

    for (var u = 0u; u < {{columns // 32}}u; u++) {
        {% for l in range(x_loads) %}
        let token{{l}} = (thread + {{l * threads}}u) / 8u;
        let from{{l}} = min(first_token + token{{l}}, tokens - 1u);
        let x{{l}} = x_quad({{ "token_of[from" ~ l ~ "]" if mixture.gathers else "from" ~ l }}, u * 8u + thread % 8u);
        {% endfor %}
        workgroupBarrier();
        {% for l in range(x_loads) %}
        x_tile[place(token{{l}}, thread % 8u)] = x{{l}};
        {% endfor %}
        {% for l in range(w_loads) %}
        {% if (l + 1) * threads > tile.rows %}if thread < {{tile.rows - l * threads}}u {% endif %}{
            let row = thread + {{l * threads}}u;
            let w_row = {{ "expert * " ~ part.every ~ "u + " ~ part.first_of_stack ~ "u + " if mixture }}min(first_row + row, {{part.rows - 1}}u);
            let values = {{"values_of(unit" ~ p ~ "(w_row, u))" if part.coded else "values" ~ p ~ "(w_row, u)"}};
            {% for i in range(8) %}
            w_tile[place(row, {{i}}u)] = values.v{{i}};
            {% endfor %}
        }
        {% endfor %}
        workgroupBarrier();
        for (var quad = 0u; quad < 8u; quad++) {
            {% for j in range(rows_each) %}
            let w{{j}} = w_tile[place({{16 * j}}u + column, quad)];
            {% endfor %}
            {% for i in range(tokens_each) %}
            {
                let values = x_tile[place({{i * groups}}u + group, quad)];
                {% for j in range(rows_each) %}
                sum{{i}}_{{j}} += dot(values, w{{j}});
                {% endfor %}
            }
            {% endfor %}
        }
    }

    {% for i in range(tokens_each) %}{% for j in range(rows_each) %}
    {
        let token = first_token + {{i * groups}}u + group;
        let row = first_row + {{16 * j}}u + column;
        if token < tokens && row < {{part.rows}}u {
            let at = token * {{part.stride}}u + row + {{part.out_at}}u;
            out{{p}}[at] = {% if part.add %}out{{p}}[at] + {% endif %}sum{{i}}_{{j}};
        }
    }
    {% endfor %}{% endfor %}
}
{% endfor %}

@compute @workgroup_size({{threads}})
fn main(@builtin(workgroup_id) tile: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    {% if mixture %}
    let own = tiles[tile.x];
    if own.x >= {{mixture.experts}}u {
        return;
    }
    let first_token = own.y;
    {% else %}
    let first_token = tile.x * {{tile.tokens}}u;
    {% endif %}
    {% for part in parts | reverse %}
    {% if not loop.last %}if tile.y >= {{part.first_block}}u {% endif %}{
        product{{part.p}}(first_token, (tile.y - {{part.first_block}}u) * {{tile.rows}}u, thread{{ ", own.z, own.x" if mixture }});
    }{% if not loop.last %} else {% endif %}
    {% endfor %}
}
