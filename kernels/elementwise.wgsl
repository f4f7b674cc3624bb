// Element by element: {{op}}.

{{prelude}}

{{bindings}}
{{soft_cap}}

@compute @workgroup_size({{workgroup}})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) index: u32) {
    let column = group.x * {{workgroup}}u + index;
    let row = group.y;
    if column >= {{width}}u {
        return;
    }
    let to = row * {{y_stride}}u + column;
    {% set of = "column / " ~ len ~ "u * " ~ every ~ "u + " ~ first ~ "u + column % " ~ len ~ "u" if op == "slice" else "column" %}
    let x = {{ "y[to]" if in_place else "a[row * " ~ a_stride ~ "u + " ~ of ~ "]" }};
    {% if op in ["silu", "gelu", "sigmoid"] %}
    y[to] = {{op}}(vec4(x)).x;
    {% elif op == "soft_cap" %}
    y[to] = soft_cap(x);
    {% elif op == "copy" or op == "slice" %}
    y[to] = x;
    {% else %}
    y[to] = x {{ {"add": "+", "mul": "*", "div": "/"}[op] }} {{second}};
    {% endif %}
}
