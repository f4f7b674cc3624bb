// The heads of a gated delta rule.
//
// Macros:
//   key_head(delta) - the key head that value head `head` reads, for a `Delta`
{% macro key_head(delta) %}
{%- if delta.order == "tiled" %}head % {{delta.key_heads}}u
{%- else %}head / {{delta.value_heads // delta.key_heads}}u
{%- endif %}
{%- endmacro %}
