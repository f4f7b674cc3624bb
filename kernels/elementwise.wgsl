// Applies a function to each element: y[row, column] = op(a[row, column], b[row, column]).
//
// Parameters (`ElementKernel`):
//   workgroup: u32 - invocations of a workgroup, each of which computes a column
//   width: u32 - columns of a row of `y`
//   op: ElementOp - the function
//   op.kind: str - "copy", "binary", "activate", "soft_cap", "clamp", "shift" or "slice"
//   op.operator: Operator - "+", "*" or "/" ("binary")
//   op.b: SecondOperand - the second operand ("binary")
//   op.b.kind: str - "rows": a row for each row of `a`; "row": one row for all rows; "number": one
//     number for all elements
//   op.b.stride: u32 - elements from row to row of `b` ("rows")
//   op.function: Function - the activation ("activate")
//   op.cap: SoftCap - the cap ("soft_cap")
//   op.to: u32 - the column of `y` that column 0 is copied to ("shift")
//   op.first: u32 - the first column that is copied ("slice")
//   op.len: u32 - columns of a copied group ("shift", "slice")
//   op.every: u32 - columns from the start of a group to the start of the next, of `y` ("shift") or
//     of `a` ("slice")
//   a: Strided? - the first operand, `[rows, columns]`; none if it is `y` itself
//   y: Strided - the result, `[rows, width]`
//
// Buffers:
//   y: f32, written
//   a: f32
//   b: f32
//   lower: f32 - the least value ("clamp")
//   upper: f32 - the greatest value ("clamp")

{% from "shared/soft_cap" import soft_cap %}
{% include "shared/bindings" %}
{% if op.kind == "activate" %}
{% include "shared/activations" %}
{% elif op.kind == "soft_cap" %}
{{ soft_cap(op.cap, "f32") }}
{% endif %}

@compute @workgroup_size({{workgroup}})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) index: u32) {
    let column = group.x * {{workgroup}}u + index;
    let row = group.y;
    if column >= {{width}}u {
        return;
    }
    {% if op.kind == "shift" %}
    let to = row * {{y.stride}}u + {{op.to}}u + column / {{op.len}}u * {{op.every}}u + column % {{op.len}}u;
    {% else %}
    let to = row * {{y.stride}}u + column;
    {% endif %}
    {% if op.kind == "slice" %}
    let source = column / {{op.len}}u * {{op.every}}u + {{op.first}}u + column % {{op.len}}u;
    {% else %}
    let source = column;
    {% endif %}
    {% if a %}
    let x = a[row * {{a.stride}}u + source];
    {% else %}
    let x = y[to];
    {% endif %}
    {% if op.kind == "activate" %}
    y[to] = {{op.function}}(vec4(x)).x;
    {% elif op.kind == "soft_cap" %}
    y[to] = soft_cap(x);
    {% elif op.kind == "clamp" %}
    y[to] = clamp(x, lower[0], upper[0]);
    {% elif op.kind == "binary" %}
    {% if op.b.kind == "rows" %}
    y[to] = x {{op.operator}} b[row * {{op.b.stride}}u + column];
    {% elif op.b.kind == "row" %}
    y[to] = x {{op.operator}} b[column];
    {% else %}
    y[to] = x {{op.operator}} b[0];
    {% endif %}
    {% else %}
    y[to] = x;
    {% endif %}
}
