// The soft cap `c tanh(x / c)`, in a form that does not overflow.
//
// Macros:
//   soft_cap(cap, type) - declares `soft_cap(x)` for a `SoftCap` and a type of WGSL
{% macro soft_cap(cap, type) %}
fn soft_cap(x: {{type}}) -> {{type}} {
    return {{cap.cap}} - {{type}}({{cap.twice}}) / (exp(min(x * {{cap.two_over}}, {{type}}(80.0))) + 1.0);
}
{% endmacro %}
