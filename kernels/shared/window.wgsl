// Computes the limit of the positions that a token sees.
//
// Macros:
//   first_seen(window, length) - the first position that a token sees through an `AttentionWindow`;
//     `length` is an expression: the number of positions up to the token, its own included
{% macro first_seen(window, length) %}
{%- if window.chunked %}(({{length}} - 1u) / {{window.size}}u * {{window.size}}u)
{%- else %}(max({{length}}, {{window.size}}u) - {{window.size}}u)
{%- endif %}
{%- endmacro %}
