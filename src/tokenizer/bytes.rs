//! Decodes the spelling of byte-level vocabularies, in which every byte is one printable character:
//! printable Latin-1 characters spell themselves, and the other 68 bytes are spelt by the
//! characters from U+0100, in order (`bytes_to_unicode` of OpenAI's GPT-2,
//! <https://github.com/openai/gpt-2/blob/master/src/encoder.py>).

/// The character that spells each byte.
const CHARS: [char; 256] = chars();

const fn chars() -> [char; 256] {
    let mut table = ['\0'; 256];
    let (mut byte, mut next) = (0u8, 0x100u16);
    loop {
        if matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff) {
            table[byte as usize] = byte as char;
        } else {
            // These characters are below U+0144, so the conversion does not fail.
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

/// Appends the bytes that `text` spells. A text with a character that spells no byte is an added
/// token, whose UTF-8 is appended, as in Hugging Face's byte-level decoder.
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
