// Declares a kernel's buffers, and names the words of the step's buffer, which is the first of
// them.
//
// Parameters:
//   bindings: Binding[] - the buffers, in the order of their numbers
//   bindings[].name: str - the name
//   bindings[].element: str - the type of the elements
//   bindings[].writes: bool - whether the kernel writes the buffer
{% for binding in bindings %}
@group(0) @binding({{loop.index0}})
var<storage, {{ "read_write" if binding.writes else "read" }}> {{binding.name}}: array<{{binding.element}}>;
{% endfor %}

// `StepHeader`.
const TOKENS = 0u;
const OUTPUTS = 1u;
const SPLITS = 2u;
const LONG_RUNS = 3u;

// `TokenRecord`.
const TOKEN_INPUT_ROW = 0u;
const TOKEN_POSITION = 1u;
const TOKEN_PAGE_TABLE = 2u;
const TOKEN_OF_OUTPUT = 3u;

// `PositionRange`.
const RANGE_WORDS = 4u;
const RANGE_FIRST_TOKEN = 0u;
const RANGE_TOKENS = 1u;
const RANGE_FIRST_POSITION = 2u;
const RANGE_PAGES = 3u;

// `RunRecord`.
const RUN_FIRST_TOKEN = 0u;
const RUN_TOKENS = 1u;
const RUN_STATE_BEFORE = 2u;
const RUN_STATE_AFTER = 3u;
const RUN_FIRST_CHUNK = 4u;

// `ChunkRecord`.
const CHUNK_RUN = 0u;
const CHUNK_FIRST_TOKEN = 1u;
const CHUNK_TOKENS = 2u;
