//! Texts and bytes are of MySQL 9.7 where they are not made up to be wrong.

use std::collections::BTreeSet;

use bytes::BytesMut;
use proptest::prelude::*;

use super::*;

const A: &str = "11111111-2222-3333-4444-555555555555";
const B: &str = "385479fe-eab3-11f1-8284-02fc00000001";

/// `gtid_executed` after transactions with and without tags, and the content of the PREVIOUS_GTIDS event that follows.
const TAGGED_TEXT: &str =
    "11111111-2222-3333-4444-555555555555:78:tag_1:77,385479fe-eab3-11f1-8284-02fc00000001:1-160:blue:1";
const TAGGED_BYTES: &str = "0104000000000001\
    111111112222333344445555555555550001000000000000004e000000000000004f00000000000000\
    111111112222333344445555555555550a7461675f3101000000000000004d000000000000004e00000000000000\
    385479feeab311f1828402fc000000010001000000000000000100000000000000a100000000000000\
    385479feeab311f1828402fc0000000108626c756501000000000000000100000000000000\
    0200000000000000";

/// The same of a server without tags.
const PLAIN_TEXT: &str = "385479fe-eab3-11f1-8284-02fc00000001:1-159";
const PLAIN_BYTES: &str =
    "0100000000000000385479feeab311f1828402fc0000000101000000000000000100000000000000a000000000000000";

fn unhex(digits: &str) -> Vec<u8> {
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    assert!(rest.is_empty());
    pairs
        .iter()
        .map(|[high, low]| hex_digit(*high).unwrap() << 4 | hex_digit(*low).unwrap())
        .collect()
}

fn encoded(set: &GtidSet) -> Vec<u8> {
    let mut out = BytesMut::new();
    set.encode(&mut out);
    out.to_vec()
}

fn gtid(text: &str) -> Gtid {
    text.parse().unwrap()
}

fn set(text: &str) -> GtidSet {
    text.parse().unwrap()
}

#[test]
fn a_gtid_is_read_and_printed() {
    let plain = gtid("385479FE-EAB3-11F1-8284-02FC00000001:160");
    assert_eq!(plain.to_string(), format!("{B}:160"));
    assert_eq!(
        (plain.source(), plain.tag(), plain.number()),
        (B.parse().unwrap(), Tag::NONE, 160)
    );

    let tagged = gtid(&format!("{A} : TAG_1 : 77"));
    assert_eq!(tagged.to_string(), format!("{A}:tag_1:77"));
    assert_eq!(tagged.tag().as_str(), "tag_1");

    let json = format!(r#""{A}:tag_1:77""#);
    assert_eq!(serde_json::to_string(&tagged).unwrap(), json);
    assert_eq!(serde_json::from_str::<Gtid>(&json).unwrap(), tagged);

    let source = serde_json::to_string(&tagged.source()).unwrap();
    assert_eq!(source, format!("{A:?}"));
    assert_eq!(serde_json::from_str::<SourceId>(&source).unwrap(), tagged.source());
}

#[test]
fn numbers_end_where_servers_end() {
    let source = A.parse().unwrap();
    let last = Gtid::new(source, Tag::NONE, 9_223_372_036_854_775_806).unwrap();
    assert_eq!(gtid(&last.to_string()), last);
    for number in [0, last.number() + 1, u64::MAX] {
        assert!(Gtid::new(source, Tag::NONE, number).is_err(), "{number}");
        assert!(format!("{A}:{number}").parse::<Gtid>().is_err(), "{number}");
        assert!(format!("{A}:1-{number}").parse::<GtidSet>().is_err(), "{number}");
    }
}

#[test]
fn tags_are_words_of_32_at_most() {
    let longest = "a".repeat(32);
    for (text, expected) in [("_", "_"), ("A9_z", "a9_z"), ("", ""), (&longest, &longest)] {
        assert_eq!(text.parse::<Tag>().unwrap().as_str(), expected);
    }
    for text in ["9a", "a-b", "a b", "é", "a\0", &"a".repeat(33)] {
        let error = text.parse::<Tag>().expect_err(text);
        assert!(error.to_string().contains(text), "{error}");
    }
    assert!(Tag::default().is_none());
}

#[test]
fn malformed_gtids_say_what_is_wrong() {
    let form = |text: &str| ParseGtidError::Form { text: text.to_owned() };
    let source = |text: &str| ParseGtidError::Source { text: text.to_owned() };
    let number = |text: &str| ParseGtidError::Number { text: text.to_owned() };
    let cases = [
        (String::new(), form("")),
        (A.to_owned(), form(A)),
        (format!("{A}:"), number("")),
        (format!("{A}:0"), number("0")),
        (format!("{A}:07"), number("07")),
        (format!("{A}:0x7"), number("0x7")),
        (format!("{A}:-1"), number("-1")),
        (format!("{A}:+1"), number("+1")),
        (format!("{A}:1-2"), number("1-2")),
        (format!("{A}::1"), form(&format!("{A}::1"))),
        (format!("{A}:a:1:2"), form(&format!("{A}:a:1:2"))),
        (format!("{A}:1:a"), ParseGtidError::Tag { text: "1".to_owned() }),
        ("1-2-3:1".to_owned(), source("1-2-3")),
        (format!("{}:1", A.replace('-', "")), source(&A.replace('-', ""))),
        (format!("{A}0:1"), source(&format!("{A}0"))),
        (format!("{}:1", A.replace('5', "g")), source(&A.replace('5', "g"))),
    ];
    for (text, expected) in cases {
        assert_eq!(text.parse::<Gtid>(), Err(expected), "{text}");
    }
}

#[test]
fn an_error_shows_the_start_of_a_long_text() {
    let error = "é".repeat(100_000).parse::<GtidSet>().unwrap_err();
    assert!(error.to_string().len() < 300, "{error}");
}

#[test]
fn a_set_is_printed_as_the_server_prints_it() {
    for text in ["", PLAIN_TEXT, TAGGED_TEXT, &format!("{B}:1-218:224:blue:1-3:red:7")] {
        assert_eq!(set(text).to_string(), text);
        let json = format!("{text:?}");
        assert_eq!(serde_json::to_string(&set(text)).unwrap(), json);
        assert_eq!(serde_json::from_str::<GtidSet>(&json).unwrap(), set(text));
    }
}

#[test]
fn every_form_that_servers_take_is_read() {
    for (text, expected) in [
        (" \n".to_owned(), String::new()),
        (",, ,".to_owned(), String::new()),
        (format!("{B}:1,\n{A}:1"), format!("{A}:1,{B}:1")),
        (format!("{A}:1, ,{A}:5,"), format!("{A}:1:5")),
        (format!("\t{A} : 1 - 3 : 5 \n"), format!("{A}:1-3:5")),
        (format!("{A}:7:1-3:4:2-5"), format!("{A}:1-5:7")),
        (format!("{A}:1-10:2-3:12"), format!("{A}:1-10:12")),
        (format!("{A}:5-5"), format!("{A}:5")),
        (format!("{A}:blue:1-5"), format!("{A}:blue:1-5")),
        (format!("{A}:red:1:2:blue:3:RED:3"), format!("{A}:blue:3:red:1-3")),
        (format!("{A}:red:1,{A}:1"), format!("{A}:1:red:1")),
    ] {
        assert_eq!(set(&text).to_string(), expected, "{text}");
    }
}

#[test]
fn malformed_sets_say_what_is_wrong() {
    let missing = |text: &str| ParseGtidError::NumberMissing { text: text.to_owned() };
    let number = |text: &str| ParseGtidError::Number { text: text.to_owned() };
    let red = format!("{A}:red");
    let long = format!("{A}:red:blue:1");
    let cases = [
        (A.to_owned(), missing(A)),
        (red.clone(), missing(&red)),
        (format!("{A}:1,{red}"), missing(&red)),
        (format!("{A}:1:red"), missing(&format!("{A}:1:red"))),
        (long.clone(), missing(&long)),
        (format!("{A}:"), number("")),
        (format!("{A}:1:"), number("")),
        (format!("{A}:0-5"), number("0")),
        (format!("{A}:1-"), number("")),
        (format!("{A}:1-2-3"), number("2-3")),
        (format!("{A}:1 2"), number("1 2")),
        (format!("{A}:é"), number("é")),
        (
            format!("{A}:a é:1"),
            ParseGtidError::Tag {
                text: "a é".to_owned()
            },
        ),
        (format!("{A}:5-3"), ParseGtidError::Reversed { text: "5-3".to_owned() }),
        (format!("{A}:1;{B}:1"), number("1;385479fe")),
        ("0-1-100".to_owned(), missing("0-1-100")),
    ];
    for (text, expected) in cases {
        assert_eq!(text.parse::<GtidSet>(), Err(expected), "{text}");
    }
}

#[test]
fn the_servers_binary_form_is_read_and_written() {
    for (text, bytes) in [
        (PLAIN_TEXT, PLAIN_BYTES),
        (TAGGED_TEXT, TAGGED_BYTES),
        ("", "0000000000000000"),
    ] {
        assert_eq!(GtidSet::decode(&unhex(bytes)).unwrap(), set(text), "{text}");
        assert_eq!(encoded(&set(text)), unhex(bytes), "{text}");
    }
    // As an upgraded server writes it while it knows a tag that the set has no transaction of.
    assert_eq!(GtidSet::decode(&unhex("0100000000000001")).unwrap(), GtidSet::new());
}

#[test]
fn every_cut_of_the_binary_form_is_an_error() {
    for bytes in [PLAIN_BYTES, TAGGED_BYTES] {
        let bytes = unhex(bytes);
        for length in 0..bytes.len() {
            assert!(GtidSet::decode(&bytes[..length]).is_err(), "{length}");
        }
        assert_eq!(
            GtidSet::decode(&[bytes.as_slice(), &[0]].concat()),
            Err(DecodeGtidSetError::Trailing { found: 1 })
        );
    }
}

#[test]
fn malformed_bytes_say_what_is_wrong() {
    let uuid = "385479feeab311f1828402fc00000001";
    let one = "0100000000000000";
    let tagged = "0101000000000001";
    let interval = |start, end, previous| DecodeGtidSetError::Interval { start, end, previous };
    let cases = [
        (
            "00000000000000".to_owned(),
            DecodeGtidSetError::Short { found: 7, expected: 8 },
        ),
        (
            "0000000000000002".to_owned(),
            DecodeGtidSetError::UnknownFormat { format: 2 },
        ),
        // Counts that no input could hold.
        (
            "ffffffffffffff00".to_owned(),
            DecodeGtidSetError::Short { found: 0, expected: 16 },
        ),
        (
            format!("{one}{uuid}ffffffffffffffff{one}"),
            DecodeGtidSetError::IntervalCount {
                count: u64::MAX,
                found: 8,
            },
        ),
        (format!("{one}{uuid}{one}0000000000000000{one}"), interval(0, 1, 0)),
        (format!("{one}{uuid}{one}{one}{one}"), interval(1, 1, 0)),
        (
            format!("{one}{uuid}{one}{one}ffffffffffffffff"),
            interval(1, u64::MAX, 0),
        ),
        // Servers write no two intervals that touch.
        (
            format!(
                "{one}{uuid}0200000000000000{one}02000000000000000200000000000000{}",
                "0300000000000000"
            ),
            interval(2, 3, 2),
        ),
        (format!("{tagged}{uuid}03"), DecodeGtidSetError::TagLength { found: 3 }),
        (format!("{tagged}{uuid}42"), DecodeGtidSetError::TagLength { found: 66 }),
        (
            format!("{tagged}{uuid}0239"),
            DecodeGtidSetError::Tag(ParseGtidError::Tag { text: "9".to_owned() }),
        ),
    ];
    for (bytes, expected) in cases {
        assert_eq!(GtidSet::decode(&unhex(&bytes)), Err(expected), "{bytes}");
    }
}

#[test]
fn the_next_transaction_extends_its_interval() {
    let mut executed = set(&format!("{A}:1-3:5-6,{B}:1-3"));
    for (added, expected) in [
        (format!("{A}:4"), format!("{A}:1-6,{B}:1-3")),
        (format!("{A}:4"), format!("{A}:1-6,{B}:1-3")),
        (format!("{A}:8"), format!("{A}:1-6:8,{B}:1-3")),
        (format!("{A}:7"), format!("{A}:1-8,{B}:1-3")),
        (format!("{A}:blue:9"), format!("{A}:1-8:blue:9,{B}:1-3")),
        (format!("{A}:blue:8"), format!("{A}:1-8:blue:8-9,{B}:1-3")),
    ] {
        executed.insert(gtid(&added));
        assert_eq!(executed.to_string(), expected, "{added}");
    }
}

#[test]
fn a_removed_transaction_leaves_a_hole() {
    let mut executed = set(&format!("{A}:1-5:8:blue:3"));
    for (removed, expected) in [
        (format!("{A}:3"), format!("{A}:1-2:4-5:8:blue:3")),
        (format!("{A}:3"), format!("{A}:1-2:4-5:8:blue:3")),
        (format!("{A}:1"), format!("{A}:2:4-5:8:blue:3")),
        (format!("{A}:5"), format!("{A}:2:4:8:blue:3")),
        (format!("{B}:1"), format!("{A}:2:4:8:blue:3")),
        (format!("{A}:8"), format!("{A}:2:4:blue:3")),
        (format!("{A}:blue:3"), format!("{A}:2:4")),
    ] {
        executed.remove(&gtid(&removed));
        assert_eq!(executed.to_string(), expected, "{removed}");
    }
}

#[test]
fn a_subset_is_covered_at_both_ends() {
    let executed = set(&format!("{A}:3-6:9:blue:1-5,{B}:1-2"));
    for (text, expected) in [
        (String::new(), true),
        (format!("{A}:3-6"), true),
        (format!("{A}:4-5:9:blue:5,{B}:2"), true),
        (format!("{A}:2-6"), false),
        (format!("{A}:3-7"), false),
        (format!("{A}:5-9"), false),
        (format!("{A}:7"), false),
        (format!("{A}:9-10"), false),
        (format!("{A}:red:1"), false),
        (format!("{B}:blue:1"), false),
    ] {
        assert_eq!(set(&text).is_subset(&executed), expected, "{text}");
        assert_eq!(set(&text).difference(&executed).is_empty(), expected, "{text}");
    }
}

/// Few names, so that sets meet.
fn any_gtid() -> impl Strategy<Value = Gtid> {
    let source = prop_oneof![Just([1; 16]), Just([0xFE; 16])];
    let tag = prop_oneof![Just(""), Just("a"), Just("a_"), Just("b")];
    let number = prop_oneof![1..=12_u64, (MAX_NUMBER - 3)..=MAX_NUMBER];
    (source, tag, number)
        .prop_map(|(source, tag, number)| Gtid::new(SourceId(source), tag.parse().unwrap(), number).unwrap())
}

fn any_model() -> impl Strategy<Value = BTreeSet<Gtid>> {
    prop::collection::btree_set(any_gtid(), 0..48)
}

fn from_model(model: &BTreeSet<Gtid>) -> GtidSet {
    let mut set = GtidSet::new();
    for gtid in model {
        set.insert(*gtid);
    }
    set
}

proptest! {
    #[test]
    fn a_gtids_text_and_value_agree(source: [u8; 16], tag in "([a-z_][a-z0-9_]{0,31})?", number in 1..=MAX_NUMBER) {
        let gtid = Gtid::new(SourceId(source), tag.parse().unwrap(), number).unwrap();
        prop_assert_eq!(gtid.to_string().parse(), Ok(gtid));
        prop_assert_eq!(gtid.tag().to_string(), tag);
    }

    #[test]
    fn a_set_agrees_with_a_plain_set(steps in prop::collection::vec((any::<bool>(), any_gtid()), 0..64)) {
        let (mut set, mut model) = (GtidSet::new(), BTreeSet::new());
        for (insert, gtid) in steps {
            if insert {
                set.insert(gtid);
                model.insert(gtid);
            } else {
                set.remove(&gtid);
                model.remove(&gtid);
            }
            prop_assert_eq!(set.contains(&gtid), insert);
            prop_assert_eq!(set.is_empty(), model.is_empty());
        }
        // Equal sets are equal values whatever way they came about.
        prop_assert_eq!(&set, &from_model(&model));
        for gtid in &model {
            prop_assert!(set.contains(gtid));
        }
        prop_assert_eq!(set.to_string().parse(), Ok(set.clone()));
        prop_assert_eq!(GtidSet::decode(&encoded(&set)), Ok(set));
    }

    #[test]
    fn two_sets_agree_with_plain_sets(left in any_model(), right in any_model()) {
        let (a, b) = (from_model(&left), from_model(&right));
        let mut union = a.clone();
        union.union_with(&b);
        prop_assert_eq!(&union, &from_model(&(&left | &right)));
        prop_assert_eq!(a.difference(&b), from_model(&(&left - &right)));
        prop_assert_eq!(a.is_subset(&b), left.is_subset(&right));
        prop_assert!(b.is_subset(&union));
        prop_assert!(a.difference(&b).is_subset(&a));
        prop_assert_eq!(a == b, left == right);
    }

    #[test]
    fn the_order_of_a_text_does_not_matter(gtids in prop::collection::vec(any_gtid(), 0..32)) {
        let text: Vec<_> = gtids.iter().map(Gtid::to_string).collect();
        prop_assert_eq!(set(&text.join(",")), from_model(&gtids.into_iter().collect()));
    }

    #[test]
    fn any_text_is_a_set_or_an_error(text in "\\PC*", parts in "[0-9a_:, -]*") {
        for text in [text, parts.clone(), format!("{A}:{parts}")] {
            if let Ok(set) = text.parse::<GtidSet>() {
                prop_assert_eq!(set.to_string().parse(), Ok(set));
            }
            let _ = text.parse::<Gtid>();
        }
    }

    #[test]
    fn any_bytes_are_a_set_or_an_error(
        random: Vec<u8>,
        tagged: bool,
        changed in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = unhex(if tagged { TAGGED_BYTES } else { PLAIN_BYTES });
        for (at, byte) in changed {
            *at.get_mut(&mut bytes) = byte;
        }
        for bytes in [random, bytes] {
            if let Ok(set) = GtidSet::decode(&bytes) {
                prop_assert_eq!(GtidSet::decode(&encoded(&set)), Ok(set));
            }
        }
    }
}
