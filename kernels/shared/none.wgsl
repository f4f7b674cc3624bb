// The value of an expert, a slot or a token id that does not exist.
const NONE = 0xffffffffu;
