// A short convolution over the tokens of a run, then SiLU: an invocation for each channel, with the inputs that later
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
    let run = {{runs_at}}u + group.y * {{run_words}}u;
    let first = step[run];
    let tokens = step[run + 1u];
    let before = step[run + 2u];
    {% for i in past %}
    var x{{i}} = 0.0;
    {% endfor %}
    if before > 0u {
        let old = (before - 1u) * {{state}}u + channel;
        {% for i in past %}
        x{{i}} = states[old + {{i * channels}}u];
        {% endfor %}
    }
    {% for i in range(kernel) %}
    let w{{i}} = w[channel * {{kernel}}u + {{i}}u];
    {% endfor %}
    {% for checkpoint in range(checkpoints) %}
    let checkpoint{{checkpoint}} = step[run + {{4 + 2 * checkpoint}}u];
    {% endfor %}
    for (var start = 0u; start < tokens; start += {{at_once}}u) {
        // All loads first, so that they are under way together; beyond the end the last one once more.
        {% for j in range(at_once) %}
        let now{{j}} = x[(first + min(start + {{j}}u, tokens - 1u)) * {{x_stride}}u + channel];
        {% endfor %}
        {% for j in range(at_once) %}
        if start + {{j}}u < tokens {
            let token = start + {{j}}u;
            let sum = w{{kernel - 1}} * now{{j}}{% for i in past %} + w{{i}} * x{{i}}{% endfor %};
            y[(first + token) * {{y_stride}}u + channel] = silu(vec4(sum)).x;
            {% for i in past %}
            x{{i}} = {{ "x" ~ (i + 1) if not loop.last else "now" ~ j }};
            {% endfor %}
            {% for checkpoint in range(checkpoints) %}
            if checkpoint{{checkpoint}} == token + 1u {
                let to = step[run + {{5 + 2 * checkpoint}}u] * {{state}}u + channel;
                {% for i in past %}
                states[to + {{i * channels}}u] = x{{i}};
                {% endfor %}
            }
            {% endfor %}
        }
        {% endfor %}
    }
    let to = step[run + 3u] * {{state}}u + channel;
    {% for i in past %}
    states[to + {{i * channels}}u] = x{{i}};
    {% endfor %}
}
