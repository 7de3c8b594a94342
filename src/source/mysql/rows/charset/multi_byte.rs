//! Character sets that an encoding of the WHATWG's standard equals, or nearly so.
//!
//! The servers' East Asian sets have other characters than the standard in some places, most of them signs that Unicode
//! has twice: those are decoded here, everything between them by the standard's decoder.
//! Errors are the byte at which the first wrong character starts.

use std::borrow::Cow;

use encoding_rs::{DecoderResult, Encoding};

/// An encoding of the standard with the server's own characters.
pub(super) struct Adapted {
    standard: &'static Encoding,
    /// The bytes of the character that a text starts with, as the standard takes them apart.
    character_len: fn(&[u8]) -> usize,
    /// The server's own character.
    own: fn(&[u8]) -> Option<char>,
}

pub(super) static BIG5: Adapted = Adapted {
    standard: encoding_rs::BIG5,
    character_len: two_byte_len,
    own: big5,
};
pub(super) static EUCJPMS: Adapted = Adapted {
    standard: encoding_rs::EUC_JP,
    character_len: euc_jp_len,
    own: eucjpms,
};
pub(super) static GB18030: Adapted = Adapted {
    standard: encoding_rs::GB18030,
    character_len: gb18030_len,
    own: gb18030,
};
pub(super) static GB2312: Adapted = Adapted {
    standard: encoding_rs::GBK,
    character_len: two_byte_len,
    own: gb2312,
};
pub(super) static SJIS: Adapted = Adapted {
    standard: encoding_rs::SHIFT_JIS,
    character_len: shift_jis_len,
    own: sjis,
};
pub(super) static UJIS: Adapted = Adapted {
    standard: encoding_rs::EUC_JP,
    character_len: euc_jp_len,
    own: ujis,
};

pub(super) fn decode_standard<'b>(standard: &'static Encoding, bytes: &'b [u8]) -> Result<Cow<'b, str>, usize> {
    standard
        .decode_without_bom_handling_and_without_replacement(bytes)
        .ok_or_else(|| first_error(standard, bytes))
}

/// Where a text that the standard refuses goes wrong.
fn first_error(standard: &'static Encoding, bytes: &[u8]) -> usize {
    let mut decoder = standard.new_decoder_without_bom_handling();
    let text_len = decoder.max_utf8_buffer_length_without_replacement(bytes.len());
    let mut text = vec![0; text_len.unwrap_or_default()];
    match decoder.decode_to_utf8_without_replacement(bytes, &mut text, true) {
        (DecoderResult::Malformed(wrong, behind), read, _) => {
            read.saturating_sub(usize::from(wrong) + usize::from(behind))
        }
        (DecoderResult::InputEmpty | DecoderResult::OutputFull, read, _) => read,
    }
}

pub(super) fn decode_adapted<'b>(adapted: &Adapted, bytes: &'b [u8]) -> Result<Cow<'b, str>, usize> {
    // What lies between the server's own characters: from `plain_at` to `at`.
    let (mut plain_at, mut at) = (0, 0);
    let plain = |from: usize, to: usize| {
        decode_standard(adapted.standard, bytes.get(from..to).unwrap_or_default()).map_err(|wrong| from + wrong)
    };
    let mut text = String::new();
    while let Some(rest @ [_, ..]) = bytes.get(at..) {
        let len = (adapted.character_len)(rest);
        if let Some(own) = rest.get(..len).and_then(adapted.own) {
            text.push_str(&plain(plain_at, at)?);
            text.push(own);
            plain_at = at + len;
        }
        at += len;
    }
    let last = plain(plain_at, bytes.len())?;
    if text.is_empty() {
        return Ok(last);
    }
    text.push_str(&last);
    Ok(Cow::Owned(text))
}

fn two_byte_len(text: &[u8]) -> usize {
    match text {
        [0x81..=0xFF, ..] => 2,
        _ => 1,
    }
}

fn shift_jis_len(text: &[u8]) -> usize {
    match text {
        [0x81..=0x9F | 0xE0..=0xFC, ..] => 2,
        _ => 1,
    }
}

fn euc_jp_len(text: &[u8]) -> usize {
    match text {
        [0x8F, ..] => 3,
        [0x8E | 0xA1..=0xFE, ..] => 2,
        _ => 1,
    }
}

fn gb18030_len(text: &[u8]) -> usize {
    match text {
        [0x81..=0xFF, b'0'..=b'9', ..] => 4,
        [0x81..=0xFF, ..] => 2,
        _ => 1,
    }
}

/// The character `distance` places behind `first`.
fn behind(first: char, distance: u8) -> Option<char> {
    char::from_u32(u32::from(first) + u32::from(distance))
}

/// Some signs and, in the rows C6 and C7, the kana, Cyrillic letters and numbers of the ETEN extension.
fn big5(character: &[u8]) -> Option<char> {
    match *character {
        [0xA1, 0x45] => Some('•'),
        [0xA1, 0x4E] => Some('､'),
        [0xA1, 0xC2] => Some('‾'),
        [0xA1, 0xE3] => Some('∼'),
        [0xA1, 0xF2] => Some('♁'),
        [0xA1, 0xF3] => Some('☉'),
        [0xA2, 0x41] => Some('／'),
        [0xA2, 0x42] => Some('＼'),
        [0xA2, 0x44] => Some('¥'),
        [0xA2, 0x46] => Some('¢'),
        [0xA2, 0x47] => Some('£'),
        [0xC6, 0xA1] => Some('ヾ'),
        [0xC6, 0xA2] => Some('ゝ'),
        [0xC6, 0xA3] => Some('ゞ'),
        [0xC6, 0xA4] => Some('々'),
        [0xC6, cell @ 0xA5..=0xF7] => behind('ぁ', cell - 0xA5),
        [0xC6, cell @ 0xF8..=0xFE] => behind('ァ', cell - 0xF8),
        [0xC7, cell @ 0x40..=0x7E] => behind('エ', cell - 0x40),
        [0xC7, cell @ 0xA1..=0xB0] => behind('ョ', cell - 0xA1),
        [0xC7, 0xB1] => Some('Д'),
        [0xC7, 0xB2] => Some('Е'),
        [0xC7, 0xB3] => Some('Ё'),
        [0xC7, cell @ 0xB4..=0xBA] => behind('Ж', cell - 0xB4),
        [0xC7, cell @ 0xBB..=0xCD] => behind('У', cell - 0xBB),
        [0xC7, 0xCE] => Some('ё'),
        [0xC7, cell @ 0xCF..=0xE8] => behind('ж', cell - 0xCF),
        [0xC7, cell @ 0xE9..=0xF2] => behind('①', cell - 0xE9),
        [0xC7, cell @ 0xF3..=0xFC] => behind('⑴', cell - 0xF3),
        _ => None,
    }
}

/// Signs that Unicode has in two widths.
fn sjis(character: &[u8]) -> Option<char> {
    match *character {
        [0x81, 0x5F] => Some('\\'),
        [0x81, 0x60] => Some('〜'),
        [0x81, 0x61] => Some('‖'),
        [0x81, 0x7C] => Some('−'),
        [0x81, 0x91] => Some('¢'),
        [0x81, 0x92] => Some('£'),
        [0x81, 0xCA] => Some('¬'),
        _ => None,
    }
}

/// The signs of [`sjis`] by their rows here, and the user-defined rows.
fn ujis(character: &[u8]) -> Option<char> {
    match *character {
        [0xA1, 0xC0] => Some('\\'),
        [0xA1, 0xC1] => Some('〜'),
        [0xA1, 0xC2] => Some('‖'),
        [0xA1, 0xDD] => Some('−'),
        [0xA1, 0xF1] => Some('¢'),
        [0xA1, 0xF2] => Some('£'),
        [0xA2, 0xCC] => Some('¬'),
        [0x8F, 0xA2, 0xB7] => Some('~'),
        _ => user_defined(character),
    }
}

/// The user-defined rows, and IBM's extension behind JIS X 0212.
fn eucjpms(character: &[u8]) -> Option<char> {
    match *character {
        [0x8F, 0xA2, 0xC3] => Some('￤'),
        [0x8F, 0xF3, cell @ 0xF3..=0xFE] => ibm_extension(usize::from(cell - 0xF3)),
        [0x8F, 0xF4, cell @ 0xA1..=0xFE] => ibm_extension(usize::from(cell - 0xA1) + 12),
        _ => user_defined(character),
    }
}

fn ibm_extension(index: usize) -> Option<char> {
    IBM_EXTENSION
        .get(index)
        .and_then(|&unit| char::from_u32(u32::from(unit)))
}

/// Twelve characters at the end of the row F3 and all of the row F4.
static IBM_EXTENSION: [u16; 106] = [
    0x2170, 0x2171, 0x2172, 0x2173, 0x2174, 0x2175, 0x2176, 0x2177, 0x2178, 0x2179, 0x2160, 0x2161, 0x2162, 0x2163,
    0x2164, 0x2165, 0x2166, 0x2167, 0x2168, 0x2169, 0xFF07, 0xFF02, 0x3231, 0x2116, 0x2121, 0x70BB, 0x4EFC, 0x50F4,
    0x51EC, 0x5307, 0x5324, 0xFA0E, 0x548A, 0x5759, 0xFA0F, 0xFA10, 0x589E, 0x5BEC, 0x5CF5, 0x5D53, 0xFA11, 0x5FB7,
    0x6085, 0x6120, 0x654E, 0x663B, 0x6665, 0xFA12, 0xF929, 0x6801, 0xFA13, 0xFA14, 0x6A6B, 0x6AE2, 0x6DF8, 0x6DF2,
    0x7028, 0xFA15, 0xFA16, 0x7501, 0x7682, 0x769E, 0xFA17, 0x7930, 0xFA18, 0xFA19, 0xFA1A, 0xFA1B, 0x7AE7, 0xFA1C,
    0xFA1D, 0x7DA0, 0x7DD6, 0xFA1E, 0x8362, 0xFA1F, 0x85B0, 0xFA20, 0xFA21, 0x8807, 0xFA22, 0x8B7F, 0x8CF4, 0x8D76,
    0xFA23, 0xFA24, 0xFA25, 0x90DE, 0xFA26, 0x9115, 0xFA27, 0xFA28, 0x9592, 0xF9DC, 0xFA29, 0x973B, 0x974D, 0x9751,
    0xFA2A, 0xFA2B, 0xFA2C, 0x999E, 0x9AD9, 0x9B72, 0xFA2D, 0x9ED1,
];

/// Rows F5 to FE of either plane, which are Unicode's private use area from its start on, 94 characters each.
fn user_defined(character: &[u8]) -> Option<char> {
    let (first, row, cell) = match *character {
        [row @ 0xF5..=0xFE, cell @ 0xA1..=0xFE] => (0xE000, row, cell),
        [0x8F, row @ 0xF5..=0xFE, cell @ 0xA1..=0xFE] => (0xE3AC, row, cell),
        _ => return None,
    };
    char::from_u32(first + 94 * u32::from(row - 0xF5) + u32::from(cell - 0xA1))
}

fn gb2312(character: &[u8]) -> Option<char> {
    match *character {
        [0xA1, 0xA4] => Some('・'),
        [0xA1, 0xAA] => Some('―'),
        _ => None,
    }
}

/// Characters of the edition of 2005 that were still in the private use area.
fn gb18030(character: &[u8]) -> Option<char> {
    match *character {
        [0xA3, 0xA0] => Some('\u{E5E5}'),
        [0xA6, cell @ 0xD9..=0xDF] => behind('\u{E78D}', cell - 0xD9),
        [0xA6, cell @ 0xEC..=0xED] => behind('\u{E794}', cell - 0xEC),
        [0xA6, 0xF3] => Some('\u{E796}'),
        [0xFE, 0x59] => Some('\u{E81E}'),
        [0xFE, 0x61] => Some('\u{E826}'),
        [0xFE, 0x66] => Some('\u{E82B}'),
        [0xFE, 0x67] => Some('\u{E82C}'),
        [0xFE, 0x6D] => Some('\u{E832}'),
        [0xFE, 0x7E] => Some('\u{E843}'),
        [0xFE, 0x90] => Some('\u{E854}'),
        [0xFE, 0xA0] => Some('\u{E864}'),
        _ => None,
    }
}
