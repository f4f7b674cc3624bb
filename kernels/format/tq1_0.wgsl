// TQ1_0: for eight units, 32 bytes with five digits each, then 16 with five, then a word with four,
// then an f16 scale.
//
// Parameters:
//   matrix: MatrixPlanes - the matrix
fn unit{{matrix.number}}(row: u32, u: u32) -> Unit {
    let i = row * {{matrix.units}}u + u;
    let block = i / 8u;
    let g = i % 8u;
    let d = half_of(small{{matrix.number}}[{{matrix.planes[3]}}u + block / 2u], block);
    var lo = wide{{matrix.number}}[{{matrix.planes[1] // 4}}u + block];
    var hi = lo;
    if g < 5u {
        lo = digits(wide{{matrix.number}}[2u * block], vec4(g));
        hi = digits(wide{{matrix.number}}[2u * block + 1u], vec4(g));
    } else if g < 7u {
        lo = digits(lo, vec4(2u * g - 10u));
        hi = digits(hi, vec4(2u * g - 9u));
    } else {
        lo = digits(lo, vec4(4u));
        hi = digits(vec4(small{{matrix.number}}[{{matrix.planes[2]}}u + block]), vec4(0u, 1u, 2u, 3u));
    }
    return Unit(lo, hi, vec2(d), vec2(d));
}
