// Computes a rotary position embedding: element `d` of a head and its partner are rotated by the
// angle of their pair.
//
// Macros, for a `Rotation`:
//   pair(rotation) - the index of the pair of element `d`
//   partner(rotation) - the other element of the pair
//   is_first(rotation) - whether `d` is the pair's first element
//   rotated(own, other, cosine, sine) - an element after the rotation with its partner `other`. The
//     order of operations is given, so that kernels compute the same bits
{% macro pair(rotation) %}
{%- if rotation.style == "adjacent" %}d / 2u
{%- elif rotation.style == "quarters" %}d / {{rotation.pairs}}u * {{rotation.pairs // 2}}u + d % {{rotation.pairs // 2}}u
{%- else %}d % {{rotation.pairs}}u{% endif %}
{%- endmacro %}

{% macro partner(rotation) %}
{%- if rotation.style == "adjacent" %}d ^ 1u
{%- elif rotation.style == "quarters" %}select(d - {{rotation.pairs // 2}}u, d + {{rotation.pairs // 2}}u, d % {{rotation.pairs}}u < {{rotation.pairs // 2}}u)
{%- else %}select(d - {{rotation.pairs}}u, d + {{rotation.pairs}}u, d < {{rotation.pairs}}u)
{%- endif %}
{%- endmacro %}

{% macro is_first(rotation) %}
{%- if rotation.style == "adjacent" %}d % 2u == 0u
{%- elif rotation.style == "quarters" %}d % {{rotation.pairs}}u < {{rotation.pairs // 2}}u
{%- else %}d < {{rotation.pairs}}u{% endif %}
{%- endmacro %}

{% macro rotated(own, other, cosine, sine) %}fma({{own}}, {{cosine}}, {{other}} * {{sine}}){% endmacro %}
