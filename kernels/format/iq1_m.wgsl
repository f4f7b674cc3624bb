// IQ1_M: a word of four points a unit, then four times three high bits of a point and a shift, then 8
// bytes for eight units: 16 scales of three bits and their f16 scale, whose bits are apart; then the
// grid.
//
// Parameters:
//   matrix: MatrixPlanes - the matrix
fn unit{{matrix.number}}(row: u32, u: u32) -> Unit {
    let i = row * {{matrix.units}}u + u;
    let block = i / 8u;
    let g = i % 8u;
    let heads = vec2(small{{matrix.number}}[{{matrix.planes[2]}}u + block * 2u], small{{matrix.number}}[{{matrix.planes[2]}}u + block * 2u + 1u]);
    let low = ((heads.x >> 12u) & 15u) | ((heads.x >> 24u) & 0xf0u);
    let d = unpack2x16float(low | ((heads.y >> 4u) & 0xf00u) | ((heads.y >> 16u) & 0xf000u)).x;
    let scales = vec2(select(heads.x, heads.y, g >= 4u) >> (g / 2u % 2u * 16u + g % 2u * 6u)) >> vec2(0u, 3u);
    let high = small{{matrix.number}}[{{matrix.planes[1]}}u + i / 2u] >> (i % 2u * 16u);
    let points = small{{matrix.number}}[i];
    {% for k in range(4) %}
    let index{{k}} = ((points >> {{8 * k}}u) & 255u) | (((high >> {{4 * k}}u) & 7u) << 8u);
    let point{{k}} = {{matrix.table}}[{{matrix.table_at}}u + index{{k}}];
    let even{{k}} = shifted(point{{k}}, (high >> {{4 * k + 3}}u) & 1u);
    let odd{{k}} = shifted(point{{k}} >> 4u, (high >> {{4 * k + 3}}u) & 1u);
    {% endfor %}
    let scale = 0.125 * d * (2.0 * vec2<f32>(scales & vec2(7u)) + 1.0);
    return Unit(vec4(even0, odd0, even1, odd1), vec4(even2, odd2, even3, odd3), scale, vec2(0.0));
}
