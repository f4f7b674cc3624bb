// F32: 128 bytes a unit.
//
// Parameters:
//   matrix: MatrixPlanes - the matrix
fn values{{matrix.number}}(row: u32, u: u32) -> Values {
    let i = (row * {{matrix.units}}u + u) * 8u;
    return Values(
        {% for k in range(8) %}bitcast<vec4<f32>>(wide{{matrix.number}}[i + {{k}}u]),{% endfor %}
    );
}
