"""Write what transformers makes of varied texts, for the ignored test in `parity.rs`.

    python make_parity_cases.py TOKENIZER_JSON... > cases.jsonl
    TOKENIZATION_PARITY_CASES=cases.jsonl cargo test -p tokenization --test parity -- --ignored

Each line is one tokenizer: its file and cases of (text, second text or null, max tokens, side,
strategy, token ids, token types).
"""

import json
import random
import sys

from transformers import PreTrainedTokenizerFast

SENTENCES = [
    "The quick brown fox jumps over the lazy dog; it's 3.14159 metres away, isn't it?",
    "Der schnelle braune Fuchs springt über den faulen Hund – Größe: 12,5 m².",
    "Le cœur déçu mais l'âme plutôt naïve, Louÿs rêva de crapaüter en canoë.",
    "El pingüino Wenceslao hizo kilómetros bajo exhaustiva lluvia y frío. ¿Añoraba?",
    "À noite, vovô Kowalsky vê o ímã cair no pé do pinguim queixoso.",
    "Quel vituperabile xenofobo zelante assaggia il whisky ed esclama: alleluja!",
    "Pójdźże, kiń tę chmurność w głąb flaszy! Zażółć gęślą jaźń.",
    "Příliš žluťoučký kůň úpěl ďábelské ódy.",
    "Pijamalı hasta yağız şoföre çabucak güvendi. İstanbul'da ılık IŞIK.",
    "Съешь же ещё этих мягких французских булок, да выпей чаю.",
    "Чуєш їх, доцю, га? Кумедна ж ти, прощайся без ґольфів!",
    "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία. ΟΔΥΣΣΕΥΣ",
    "דג סקרן שט בים מאוכזב ולפתע מצא חברה. שָׁלוֹם",
    "نص حكيم له سر قاطع وذو شأن عظيم مكتوب على ثوب أخضر ومغلف بجلد أزرق.",
    "ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण का सर्वनाश करने वाले।",
    "আমার সোনার বাংলা, আমি তোমায় ভালোবাসি।",
    "யாமறிந்த மொழிகளிலே தமிழ்மொழி போல் இனிதாவது எங்கும் காணோம்",
    "เป็นมนุษย์สุดประเสริฐเลิศคุณค่า กว่าบรรดาฝูงสัตว์เดรัจฉาน",
    "我能吞下玻璃而不伤身体。视野无限广,窗外有蓝天,时间是2024年5月1日。",
    "いろはにほへと ちりぬるを わかよたれそ つねならむ。カタカナ ﾊﾝｶｸ",
    "키스의 고유조건은 입술끼리 만나야 하고 특별한 기술은 필요치 않다.",
    "Do bạch kim rất quý nên sẽ dùng để lắp vô xương.",
    "👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇯🇵 👍🏽 😀😀 ❤️ ☃ ⚽",
    "def f(x: int) -> str:\n\treturn f'{x!r}'  # TODO\n\n\nif __name__ == '__main__':\n    f(1)\n",
    '{"a": [1, 2.5e-10, null], "b": {"c": "\\u00e9"}} <html>&nbsp;</html>',
    "SELECT * FROM t WHERE a >= 10 AND b <> 'x''y'; -- https://example.com/?q=1&r=%20#frag",
    "\x00\x01\x02\x07 \x0b\x0c\x1b[31m \x7f\x80\x85\x9f \ufeff\ufffd \u200b\u200c\u200d\u2060",
    "a\u0301e\u0300 \ufb01 \ufb00 ½ ² Ⅷ ㎏ ﷺ ¨ \u1e9e ß ſ \u0130 \u0131",
    "  leading,   inner \t\t tabs \r\n\r\n lines \u00a0\u3000\u2003 and trailing   ",
    "[CLS] [SEP] [MASK] [PAD] [UNK] <s> </s> <pad> <mask> <unk> <|endoftext|> <|im_start|> <bos>",
    "[SEP][SEP]hello[MASK]world<mask> x </s>y [sep] [ MASK ]",
    "pneumonoultramicroscopicsilicovolcanoconiosis" * 5,
    "0123456789" * 20,
    "!?…—–-_=+*/\\|@#$%^&()[]{}<>~`'\"«»„“”‚‘’",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝟘𝟙𝟚 𐍈 𠜎𠜱 ꙮ",
]


def texts() -> list[str]:
    """300 texts from nothing to far beyond 512 tokens, the same each time."""
    generator = random.Random(20240501)
    result = ["", " ", "\n", "a", "文", "\x00", *SENTENCES]
    while len(result) < 300:
        count = generator.choice([1, 2, 3, 5, 10, 40, 150])
        parts = generator.choices(SENTENCES, k=count)
        gap = generator.choice([" ", "\n", "", "  ", "。", "\t"])
        text = gap.join(parts)
        start = generator.randrange(0, max(1, len(text) // 3))
        result.append(text[start : len(text) - generator.randrange(0, max(1, len(text) // 3))])
    result.append(" ".join(SENTENCES[:22] * 60))
    return result


def encode(
    tokenizer: PreTrainedTokenizerFast,
    first: str,
    second: str | None,
    limit: int,
    side: str,
    strategy: str,
) -> list | None:
    """One case; None where transformers refuses to cut the document to nothing."""
    tokenizer.truncation_side = side
    # As lists: alone, an empty second text would count as none.
    seconds = None if second is None else [second]
    try:
        encoded = tokenizer(
            [first], seconds, truncation=strategy, max_length=limit, return_token_type_ids=True
        )
    except Exception:  # tokenizers raises nothing more special
        return None
    ids, types = encoded["input_ids"][0], encoded["token_type_ids"][0]
    return [first, second, limit, side, strategy, ids, types]


def main() -> None:
    """Write the cases of each tokenizer."""
    generator = random.Random(1)
    samples = texts()
    for path in sys.argv[1:]:
        tokenizer = PreTrainedTokenizerFast(tokenizer_file=path)
        cases = []
        for sample in samples:
            document = generator.choice(samples)
            side, other_side = generator.choices(["left", "right"], k=2)
            cases += [
                encode(tokenizer, sample, None, 512, "right", "longest_first"),
                encode(tokenizer, sample, None, 16, side, "longest_first"),
                encode(tokenizer, sample[:200], document, 512, "right", "only_second"),
                encode(tokenizer, sample[:20], document, 64, other_side, "only_second"),
                encode(tokenizer, sample[:200], document[:200], 2048, "right", "longest_first"),
            ]
        line = {"tokenizer": path, "cases": [case for case in cases if case is not None]}
        sys.stdout.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
