//! Every character set of MySQL 8.0 to 9.7 and MariaDB 10.6 to 11.8, as `information_schema` lists them.
//!
//! MariaDB's collations without padding have the id of those with it plus 1024. Its UCA 14.0.0 collations have a block of 256
//! ids for each Unicode set from 2048 on, and MySQL's newer ones of utf8mb4 one from 255 to 323; these are taken whole, with
//! the ids that are still free.

use encoding_rs::Encoding;

use super::multi_byte::{self, Adapted};
use super::single_byte::{self, Table};

pub(super) struct Definition {
    pub(super) name: &'static str,
    pub(super) has_collation: fn(u16) -> bool,
    pub(super) decoding: Decoding,
}

/// How a text becomes UTF-8.
pub(super) enum Decoding {
    Utf8,
    Binary,
    /// One byte a character.
    Table(&'static Table),
    Swe7,
    /// As the standard has it.
    Standard(&'static Encoding),
    /// As the standard has it, but for some characters.
    Adapted(&'static Adapted),
    Ucs2,
    Utf16,
    Utf16Le,
    Utf32,
}

/// The most frequent ones first.
pub(super) static KNOWN: [Definition; 41] = [
    Definition {
        name: "utf8mb4",
        has_collation: |id| matches!(id, 45..=46 | 224..=247 | 255..=323 | 608..=611 | 1069..=1070 | 1248 | 1270 | 2304..=2559),
        decoding: Decoding::Utf8,
    },
    Definition {
        name: "utf8mb3",
        has_collation: |id| matches!(id, 33 | 76 | 83 | 192..=215 | 223 | 576..=579 | 1057 | 1107 | 1216 | 1238 | 2048..=2303),
        decoding: Decoding::Utf8,
    },
    Definition {
        name: "binary",
        has_collation: |id| matches!(id, 63),
        decoding: Decoding::Binary,
    },
    Definition {
        name: "latin1",
        has_collation: |id| matches!(id, 5 | 8 | 15 | 31 | 47..=49 | 94 | 1032 | 1071),
        decoding: Decoding::Standard(encoding_rs::WINDOWS_1252),
    },
    Definition {
        name: "ascii",
        has_collation: |id| matches!(id, 11 | 65 | 1035 | 1089),
        decoding: Decoding::Utf8,
    },
    Definition {
        name: "armscii8",
        has_collation: |id| matches!(id, 32 | 64 | 1056 | 1088),
        decoding: Decoding::Table(&single_byte::ARMSCII8),
    },
    Definition {
        name: "big5",
        has_collation: |id| matches!(id, 1 | 84 | 1025 | 1108),
        decoding: Decoding::Adapted(&multi_byte::BIG5),
    },
    Definition {
        name: "cp1250",
        has_collation: |id| matches!(id, 26 | 34 | 44 | 66 | 99 | 1050 | 1090),
        decoding: Decoding::Table(&single_byte::CP1250),
    },
    Definition {
        name: "cp1251",
        has_collation: |id| matches!(id, 14 | 23 | 50..=52 | 1074..=1075),
        decoding: Decoding::Table(&single_byte::CP1251),
    },
    Definition {
        name: "cp1256",
        has_collation: |id| matches!(id, 57 | 67 | 1081 | 1091),
        decoding: Decoding::Table(&single_byte::CP1256),
    },
    Definition {
        name: "cp1257",
        has_collation: |id| matches!(id, 29 | 58..=59 | 1082..=1083),
        decoding: Decoding::Table(&single_byte::CP1257),
    },
    Definition {
        name: "cp850",
        has_collation: |id| matches!(id, 4 | 80 | 1028 | 1104),
        decoding: Decoding::Table(&single_byte::CP850),
    },
    Definition {
        name: "cp852",
        has_collation: |id| matches!(id, 40 | 81 | 1064 | 1105),
        decoding: Decoding::Table(&single_byte::CP852),
    },
    Definition {
        name: "cp866",
        has_collation: |id| matches!(id, 36 | 68 | 1060 | 1092),
        decoding: Decoding::Table(&single_byte::CP866),
    },
    Definition {
        name: "cp932",
        has_collation: |id| matches!(id, 95..=96 | 1119..=1120),
        decoding: Decoding::Standard(encoding_rs::SHIFT_JIS),
    },
    Definition {
        name: "dec8",
        has_collation: |id| matches!(id, 3 | 69 | 1027 | 1093),
        decoding: Decoding::Table(&single_byte::DEC8),
    },
    Definition {
        name: "eucjpms",
        has_collation: |id| matches!(id, 97..=98 | 1121..=1122),
        decoding: Decoding::Adapted(&multi_byte::EUCJPMS),
    },
    Definition {
        name: "euckr",
        has_collation: |id| matches!(id, 19 | 85 | 1043 | 1109),
        decoding: Decoding::Standard(encoding_rs::EUC_KR),
    },
    Definition {
        name: "gb18030",
        has_collation: |id| matches!(id, 248..=250),
        decoding: Decoding::Adapted(&multi_byte::GB18030),
    },
    Definition {
        name: "gb2312",
        has_collation: |id| matches!(id, 24 | 86 | 1048 | 1110),
        decoding: Decoding::Adapted(&multi_byte::GB2312),
    },
    Definition {
        name: "gbk",
        has_collation: |id| matches!(id, 28 | 87 | 1052 | 1111),
        decoding: Decoding::Standard(encoding_rs::GBK),
    },
    Definition {
        name: "geostd8",
        has_collation: |id| matches!(id, 92..=93 | 1116..=1117),
        decoding: Decoding::Table(&single_byte::GEOSTD8),
    },
    Definition {
        name: "greek",
        has_collation: |id| matches!(id, 25 | 70 | 1049 | 1094),
        decoding: Decoding::Table(&single_byte::GREEK),
    },
    Definition {
        name: "hebrew",
        has_collation: |id| matches!(id, 16 | 71 | 1040 | 1095),
        decoding: Decoding::Table(&single_byte::HEBREW),
    },
    Definition {
        name: "hp8",
        has_collation: |id| matches!(id, 6 | 72 | 1030 | 1096),
        decoding: Decoding::Table(&single_byte::HP8),
    },
    Definition {
        name: "keybcs2",
        has_collation: |id| matches!(id, 37 | 73 | 1061 | 1097),
        decoding: Decoding::Table(&single_byte::KEYBCS2),
    },
    Definition {
        name: "koi8r",
        has_collation: |id| matches!(id, 7 | 74 | 1031 | 1098),
        decoding: Decoding::Standard(encoding_rs::KOI8_R),
    },
    Definition {
        name: "koi8u",
        has_collation: |id| matches!(id, 22 | 75 | 1046 | 1099),
        decoding: Decoding::Table(&single_byte::KOI8U),
    },
    Definition {
        name: "latin2",
        has_collation: |id| matches!(id, 2 | 9 | 21 | 27 | 77 | 1033 | 1101),
        decoding: Decoding::Standard(encoding_rs::ISO_8859_2),
    },
    Definition {
        name: "latin5",
        has_collation: |id| matches!(id, 30 | 78 | 1054 | 1102),
        decoding: Decoding::Table(&single_byte::LATIN5),
    },
    Definition {
        name: "latin7",
        has_collation: |id| matches!(id, 20 | 41..=42 | 79 | 1065 | 1103),
        decoding: Decoding::Standard(encoding_rs::ISO_8859_13),
    },
    Definition {
        name: "macce",
        has_collation: |id| matches!(id, 38 | 43 | 1062 | 1067),
        decoding: Decoding::Table(&single_byte::MACCE),
    },
    Definition {
        name: "macroman",
        has_collation: |id| matches!(id, 39 | 53 | 1063 | 1077),
        decoding: Decoding::Standard(encoding_rs::MACINTOSH),
    },
    Definition {
        name: "sjis",
        has_collation: |id| matches!(id, 13 | 88 | 1037 | 1112),
        decoding: Decoding::Adapted(&multi_byte::SJIS),
    },
    Definition {
        name: "swe7",
        has_collation: |id| matches!(id, 10 | 82 | 1034 | 1106),
        decoding: Decoding::Swe7,
    },
    Definition {
        name: "tis620",
        has_collation: |id| matches!(id, 18 | 89 | 1042 | 1113),
        decoding: Decoding::Table(&single_byte::TIS620),
    },
    Definition {
        name: "ucs2",
        has_collation: |id| matches!(id, 35 | 90 | 128..=151 | 159 | 640..=642 | 1059 | 1114 | 1152 | 1174 | 2560..=2815),
        decoding: Decoding::Ucs2,
    },
    Definition {
        name: "ujis",
        has_collation: |id| matches!(id, 12 | 91 | 1036 | 1115),
        decoding: Decoding::Adapted(&multi_byte::UJIS),
    },
    Definition {
        name: "utf16",
        has_collation: |id| matches!(id, 54..=55 | 101..=124 | 672..=674 | 1078..=1079 | 1125 | 1147 | 2816..=3071),
        decoding: Decoding::Utf16,
    },
    Definition {
        name: "utf16le",
        has_collation: |id| matches!(id, 56 | 62 | 1080 | 1086),
        decoding: Decoding::Utf16Le,
    },
    Definition {
        name: "utf32",
        has_collation: |id| matches!(id, 60..=61 | 160..=183 | 736..=738 | 1084..=1085 | 1184 | 1206 | 3072..=3327),
        decoding: Decoding::Utf32,
    },
];
