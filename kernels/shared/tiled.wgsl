// Declares what the two kernels of products of more than 16 rows have in common.
//
// Macros, for a `TiledProduct`:
//   product_parameters(product) - the last parameters of the function of each part
//   row_count_of(product, count) - binds the number of rows `tokens`, unless it is a parameter;
//     `count` is the number
//   x_row(product, slot) - the row `x` of a token or a slot
//   x_quad(product, quad) - the place in a row `x` of four columns of a head, which takes the place
//     of an expert, or of the whole row
//   w_row(part, row) - row `row` of a part, or its last row if it has fewer
//   activations(product) - declares the activation functions, if a part has one
//   store(part, heads, value) - writes `value`, after the bias and the function of the part, to the result
//     of `token` and `row`, or adds it there, if they are within the result
//   dispatch_part(product, arguments) - calls `product{n}(first_token, first_row, {arguments}, ..)`
//     of the workgroup's part
{% from "shared/stack" import stack_row %}

{% macro product_parameters(product) %}
{%- if product.experts %}, tokens: u32, expert: u32{% elif product.heads > 1 %}, expert: u32{% endif %}
{%- endmacro %}

{% macro row_count_of(product, count) %}
    {% if not product.experts %}
    let tokens = {{count}};
    {% endif %}
{% endmacro %}

{% macro x_row(product, slot) %}
{%- if product.experts and product.experts.gathers %}token_of[{{slot}}]{% else %}{{slot}}{% endif %}
{%- endmacro %}

{% macro x_quad(product, quad) %}
{%- if product.heads > 1 %}expert * {{product.columns // 4}}u + {% endif %}{{quad}}
{%- endmacro %}

{% macro w_row(part, row) %}{{ stack_row(part.stack, "min(" ~ row ~ ", " ~ (part.rows - 1) ~ "u)") }}{% endmacro %}

{% macro activations(product) %}
{% if product.parts | selectattr("function") | list %}
{% include "shared/activations" %}
{% endif %}
{% endmacro %}

{% macro store(part, heads, value) %}
        {% set n = part.matrix.number %}
        {% set of_head = "expert * " ~ part.rows ~ "u + " if heads > 1 else "" %}
        {% set column = of_head ~ "row + " ~ part.out_at ~ "u" %}
        {% set of_bias = "expert * " ~ part.rows ~ "u + " ~ part.bias_at ~ "u + row" if part.stack else column %}
        {% set biased = value ~ " + biases" ~ n ~ "[" ~ of_bias ~ "]" if part.bias else value %}
        if token < tokens && row < {{part.rows}}u {
            let at = token * {{part.out_stride}}u + {{column}};
            {% set result = part.function ~ "(vec4(" ~ biased ~ ")).x" if part.function else biased %}
            out{{n}}[at] = {{ "out" ~ n ~ "[at] + " if part.adds }}{{result}};
        }
{% endmacro %}

{% macro dispatch_part(product, arguments) %}
    {% if product.experts %}
    let own = tiles[tile.x];
    if own.x >= {{product.experts.count}}u {
        return;
    }
    let first_token = own.y;
    {% else %}
    let first_token = tile.x * {{product.tile.tokens}}u;
    {% endif %}
    {% set last = ", own.z, own.x" if product.experts else ", tile.z" if product.heads > 1 else "" %}
    {% for part in product.parts | reverse %}
    {{ "if tile.y >= " ~ part.first_block ~ "u " if not loop.last }}{
        let first_row = (tile.y - {{part.first_block}}u) * {{product.tile.rows}}u;
        product{{part.matrix.number}}(first_token, first_row, {{arguments}}{{ last }});
    }{{ " else " if not loop.last }}
    {% endfor %}
{% endmacro %}
