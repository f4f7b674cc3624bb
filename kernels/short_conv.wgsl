// A short convolution over the tokens of a {{ "chunk" if chunked else "run" }}, then SiLU: an invocation for each channel, with the inputs that later
// tokens see at hand.

{{prelude}}

{{bindings}}

{% set past = range(kernel - 1) %}
@compute @workgroup_size({{workgroup}})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) index: u32) {
    let channel = group.x * {{workgroup}}u + index;
    if channel >= {{channels}}u {
        return;
    }
    {% if chunked %}
    let chunk = {{chunks_at}}u + group.y * {{chunk_words}}u;
    let run = {{runs_at}}u + step[chunk] * {{run_words}}u;
    let begin = step[chunk + 1u];
    var end = begin + step[chunk + 2u];
    {% else %}
    let run = {{runs_at}}u + group.y * {{run_words}}u;
    let begin = 0u;
    let end = step[run + 1u];
    {% endif %}
    let first = step[run];
    let tokens = step[run + 1u];
    let before = step[run + 2u];
    {% for i in past %}
    var x{{i}} = 0.0;
    {% endfor %}
    {% if chunked %}
    // The state may be replaced, so whoever does that makes all tokens that see it.
    let last_input = (first + tokens - 1u) * {{x_stride}}u + channel;
    if begin > 0u {
        {% for i in past %}
        x{{i}} = x[(first + max(begin, {{kernel - 1}}u) - {{kernel - 1 - i}}u) * {{x_stride}}u + channel];
        {% endfor %}
    } else {
        end = max(end, min({{kernel - 1}}u, tokens));
    }
    {% endif %}
    if begin == 0u && before > 0u {
        let old = (before - 1u) * {{state}}u + channel;
        {% for i in past %}
        x{{i}} = states[old + {{i * channels}}u];
        {% endfor %}
    }
    {% for i in range(kernel) %}
    let w{{i}} = w[channel * {{kernel}}u + {{i}}u];
    {% endfor %}
    {% for checkpoint in range(checkpoints) %}
    let checkpoint{{checkpoint}} = step[run + {{checkpoints_at + 2 * checkpoint}}u];
    {% endfor %}
    for (var start = {{ "select(max(begin, " ~ (kernel - 1) ~ "u), 0u, begin == 0u)" if chunked else "0u" }}; start < end; start += {{at_once}}u) {
        // All loads first, so that they are under way together; beyond the end the last one once more.
        {% for j in range(at_once) %}
        let now{{j}} = x[(first + min(start + {{j}}u, tokens - 1u)) * {{x_stride}}u + channel];
        {% endfor %}
        {% for j in range(at_once) %}
        if start + {{j}}u < end {
            let token = start + {{j}}u;
            let sum = w{{kernel - 1}} * now{{j}}{% for i in past %} + w{{i}} * x{{i}}{% endfor %};
            y[(first + token) * {{y_stride}}u + channel] = silu(vec4(sum)).x;
            {% for i in past %}
            x{{i}} = {{ "x" ~ (i + 1) if not loop.last else "now" ~ j }};
            {% endfor %}
            {% for checkpoint in range(checkpoints) %}
            if checkpoint{{checkpoint}} == token + 1u {
                let to = step[run + {{checkpoints_at + 1 + 2 * checkpoint}}u] * {{state}}u + channel;
                {% for i in past %}
                states[to + {{i * channels}}u] = x{{i}};
                {% endfor %}
            }
            {% endfor %}
        }
        {% endfor %}
    }
    {% if chunked %}
    if begin > 0u {
        return;
    }
    if end < tokens {
        {% for i in past %}
        x{{i}} = x[last_input - {{(kernel - 2 - i) * x_stride}}u];
        {% endfor %}
    }
    {% endif %}
    let to = step[run + 3u] * {{state}}u + channel;
    {% for i in past %}
    states[to + {{i * channels}}u] = x{{i}};
    {% endfor %}
}
