//! Byte-level vocabularies spell each byte as one printable character, so that every token is a readable string:
//! printable Latin-1 stands for itself, the other 68 bytes for the characters from U+0100 on, in their order
//! (`bytes_to_unicode` of OpenAI's GPT-2, <https://github.com/openai/gpt-2/blob/master/src/encoder.py>).

/// The character for each byte.
const CHARS: [char; 256] = chars();

const fn chars() -> [char; 256] {
    let mut table = ['\0'; 256];
    let (mut byte, mut next) = (0u8, 0x100u16);
    loop {
        if matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff) {
            table[byte as usize] = byte as char;
        } else {
            // All these characters are below U+0144.
            if let Some(char) = char::from_u32(next as u32) {
                table[byte as usize] = char;
            }
            next += 1;
        }
        if byte == u8::MAX {
            return table;
        }
        byte += 1;
    }
}

/// Appends the bytes that `text` spells; where a character spells none, the text stands for itself (as in Hugging Face's
/// byte-level decoder): added tokens are not spelt.
pub(super) fn unspell(text: &str, bytes: &mut Vec<u8>) {
    let start = bytes.len();
    for char in text.chars() {
        match byte(char) {
            Some(byte) => bytes.push(byte),
            None => {
                bytes.truncate(start);
                bytes.extend_from_slice(text.as_bytes());
                return;
            }
        }
    }
}

fn byte(char: char) -> Option<u8> {
    const LAST: usize = 0x143;
    static BYTES: [Option<u8>; LAST + 1] = {
        let mut table = [None; LAST + 1];
        let mut byte = 0;
        while byte < 256 {
            table[CHARS[byte] as usize] = Some(byte as u8);
            byte += 1;
        }
        table
    };
    BYTES.get(char as usize).copied().flatten()
}
