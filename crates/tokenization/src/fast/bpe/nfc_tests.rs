use proptest::prelude::*;

use super::*;
use crate::fast::bpe::code_points::telling_characters;

fn check(text: &str) {
    let code_points = CodePoints::get().unwrap();
    let expected: String = text.nfc().map(|(c, _)| c).collect();
    let mut given = String::from("x");
    push_nfc(code_points, text, &mut given);
    assert_eq!(given[1..], expected, "{text:?}");
    if is_nfc(code_points, text) {
        assert_eq!(text, expected);
    }
}

#[test]
fn every_character_with_neighbours() {
    let neighbours = [
        "", "e", "\u{301}", "\u{323}", "\u{1100}", "\u{1161}", "\u{11a8}", "\u{ac00}", "\u{9be}",
        "\u{9c7}", "\u{3099}", "\u{93c}", "\u{338}", "\u{e38}", "\u{f71}",
    ];
    for c in '\0'..=char::MAX {
        check(&format!("{c}\u{301}"));
    }
    for c in telling_characters() {
        for before in neighbours {
            check(&format!("{before}{c}\u{301}\u{323}{before}{c}{c}"));
        }
    }
}

#[test]
fn ascii_runs() {
    for length in 0..40 {
        let text = "a".repeat(length);
        assert_eq!(ascii_run(text.as_bytes()), length);
        assert_eq!(ascii_run(format!("{text}\u{e9}abc").as_bytes()), length);
    }
}

#[test]
fn text_in_form_c_is_recognized() {
    let code_points = CodePoints::get().unwrap();
    for text in [
        "",
        "plain",
        "été",
        "Привет",
        "你好",
        "안녕",
        "กำลังสวัสดีก่ำ",
        "مُحَمَّد",
    ] {
        assert!(is_nfc(code_points, text), "{text}");
    }
    for text in [
        "e\u{301}",
        "\u{212b}",
        "q\u{307}\u{323}",
        "\u{1100}\u{1161}",
    ] {
        assert!(!is_nfc(code_points, text), "{text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5_000))]

    #[test]
    fn any_text(text in any::<String>()) {
        check(&text);
    }

    #[test]
    fn texts_that_compose(
        text in "[aeoAÉéố\u{300}-\u{345}\u{591}-\u{5c7}\u{64b}-\u{655}\u{1100}-\u{1112}\u{1161}-\u{1175}\u{11a8}-\u{11c2}가-갛\u{9be}\u{9c7}\u{9d7}\u{93c}\u{958}क\u{f71}-\u{f80}か\u{3099} ]{0,24}"
    ) {
        check(&text);
    }
}
