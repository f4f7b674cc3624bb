// Products of many tokens, y[t][n] = sum over k of x[t][k] w[n][k], with cooperative matrices: f16 in, f32 sums. One
// dispatch serves every matrix that reads the same x (a part each). Workgroup (i, j) makes tile j of the rows for tile
// i of the tokens: neighbours share the weights, which are decoded once a workgroup. Of a mixture of experts the tiles
// are listed, and what stands for tokens are slots, each of which reads its token's row or, further on, its own.
enable f16;
enable wgpu_cooperative_matrix;
diagnostic(off, derivative_uniformity);

{{prelude}}
{% set subgroups = threads // subgroup_size %}
{% set quads = tile.columns // 4 %}
{% set tile_units = tile.columns // 32 %}
{% set x_loads = tile.tokens * quads // threads %}
{% set w_units = tile.rows * tile_units %}
{% set w_loads = (w_units + threads - 1) // threads %}
{% set tall = patch.tokens // 16 %}
{% set wide = patch.rows // 16 %}
// Four columns beyond the tile keep the rows of a 16 by 16 load in different banks.
const PITCH = {{quads + 2}}u;

{{bindings}}

var<workgroup> x_tile: array<vec4<f16>, {{tile.tokens * (quads + 2)}}>;
var<workgroup> w_tile: array<vec4<f16>, {{tile.rows * (quads + 2)}}>;
// Where each subgroup lays a 16 by 16 block of sums to reach its elements.
var<workgroup> sums: array<f32, {{subgroups * 256}}>;

{% for part in parts %}
{% set p = part.p %}

{{part.decoder}}

fn product{{p}}(first_token: u32, first_row: u32, thread: u32, subgroup: u32, lane: u32{{ ", tokens: u32, expert: u32" if mixture }}) {
    let patch_token = subgroup / {{tile.rows // patch.rows}}u * {{patch.tokens}}u;
    let patch_row = subgroup % {{tile.rows // patch.rows}}u * {{patch.rows}}u;
    {% for i in range(tall) %}{% for j in range(wide) %}
    var sum{{i}}_{{j}} = coop_mat16x16<f32, C>();
    {% endfor %}{% endfor %}

    {% for l in range(x_loads) %}
    {% if mixture %}
    let from{{l}} = min(first_token + (thread + {{l * threads}}u) / {{quads}}u, tokens - 1u);
    let x_at{{l}} = {{ "token_of[from" ~ l ~ "]" if mixture.gathers else "from" ~ l }} * {{x_stride // 4}}u + thread % {{quads}}u;
    {% else %}
    let x_at{{l}} = (first_token + (thread + {{l * threads}}u) / {{quads}}u) * {{x_stride // 4}}u + thread % {{quads}}u;
    {% endif %}
    var x{{l}} = x[x_at{{l}}];
    {% endfor %}
    {% for l in range(w_loads) %}
    let row{{l}} = min((thread + {{l * threads}}u) / {{tile_units}}u, {{tile.rows - 1}}u);
    let w_row{{l}} = {{ "expert * " ~ part.every ~ "u + " ~ part.first_of_stack ~ "u + " if mixture }}min(first_row + row{{l}}, {{part.rows - 1}}u);
    var w{{l}} = {{"unit" if part.coded else "values"}}{{p}}(w_row{{l}}, thread % {{tile_units}}u);
    {% endfor %}

    for (var k = {{tile.columns}}u; k <= {{columns}}u; k += {{tile.columns}}u) {
        workgroupBarrier();
        {% for l in range(x_loads) %}
        x_tile[(thread + {{l * threads}}u) / {{quads}}u * PITCH + thread % {{quads}}u] = x{{l}};
        {% endfor %}
        {% for l in range(w_loads) %}
        {% if (l + 1) * threads > w_units %}if thread < {{w_units - l * threads}}u {% endif %}{
            let values = {{"values_of(w" ~ l ~ ")" if part.coded else "w" ~ l}};
            let at = row{{l}} * PITCH + thread % {{tile_units}}u * 8u;
            {% for i in range(8) %}
            w_tile[at + {{i}}u] = vec4<f16>(values.v{{i}});
            {% endfor %}
        }
        {% endfor %}
        workgroupBarrier();

        // The next tile is on its way while this one is multiplied; the last is fetched twice.
        let next = min(k, {{columns - tile.columns}}u);
        {% for l in range(x_loads) %}
        x{{l}} = x[x_at{{l}} + next / 4u];
        {% endfor %}
        {% for l in range(w_loads) %}
        w{{l}} = {{"unit" if part.coded else "values"}}{{p}}(w_row{{l}}, next / 32u + thread % {{tile_units}}u);
        {% endfor %}

        {% for s in range(tile.columns // 16) %}
        {
            {% for i in range(tall) %}
            let x_corner{{i}} = (patch_token + {{16 * i}}u) * PITCH + {{4 * s}}u;
            let left{{i}} = coopLoadT<coop_mat16x16<f16, A>>(&x_tile[x_corner{{i}}], PITCH);
            {% endfor %}
            {% for j in range(wide) %}
            let w_corner{{j}} = (patch_row + {{16 * j}}u) * PITCH + {{4 * s}}u;
            let right{{j}} = coopLoad<coop_mat16x16<f16, B>>(&w_tile[w_corner{{j}}], PITCH);
            {% for i in range(tall) %}
            sum{{i}}_{{j}} = coopMultiplyAdd(left{{i}}, right{{j}}, sum{{i}}_{{j}});
            {% endfor %}{% endfor %}
        }
        {% endfor %}
    }

    {% if not mixture %}
    let tokens = step[{{count_at}}];
    {% endif %}
    let corner = subgroup * 256u;
    let pitch = 16u;
    {% for i in range(tall) %}{% for j in range(wide) %}
    {
        let block = sum{{i}}_{{j}};
        workgroupBarrier();
        coopStoreT(block, &sums[corner], pitch);
        workgroupBarrier();
        for (var e = lane; e < 256u; e += {{subgroup_size}}u) {
            let token = first_token + patch_token + {{16 * i}}u + e / 16u;
            let row = first_row + patch_row + {{16 * j}}u + e % 16u;
            if token < tokens && row < {{part.rows}}u {
                let at = token * {{part.stride}}u + row + {{part.out_at}}u;
                out{{p}}[at] = {% if part.add %}out{{p}}[at] + {% endif %}x_scale[{{ "token_of[token]" if mixture.gathers else "token" }}] * sums[corner + e];
            }
        }
    }
    {% endfor %}{% endfor %}
}
{% endfor %}

@compute @workgroup_size({{threads}})
fn main(
    @builtin(workgroup_id) tile: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
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
        product{{part.p}}(first_token, (tile.y - {{part.first_block}}u) * {{tile.rows}}u, thread, subgroup, lane{{ ", own.z, own.x" if mixture }});
    }{% if not loop.last %} else {% endif %}
    {% endfor %}
}
