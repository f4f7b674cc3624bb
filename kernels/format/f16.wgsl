// F16: 64 bytes a unit.
//
// Parameters:
//   matrix: MatrixPlanes - the matrix
fn values{{matrix.number}}(row: u32, u: u32) -> Values {
    let i = (row * {{matrix.units}}u + u) * 4u;
    {% for k in range(4) %}
    let w{{k}} = wide{{matrix.number}}[i + {{k}}u];
    {% endfor %}
    return Values(
        {% for k in range(4) %}halves(w{{k}}.xy), halves(w{{k}}.zw),{% endfor %}
    );
}
