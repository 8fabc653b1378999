"""A small varied set of texts: languages, lengths, and what trips tokenizers."""

from __future__ import annotations

QUERIES = (
    "how do bees find their way back to the hive",
    "What is the capital of China?",
    "wie viel Eiweiß am Tag",
    "重力是什么",
)
DOCUMENTS = (
    "Honeybees navigate by the sun and read the polarization of light when clouds hide it.",
    "Beijing is the capital of China; Shanghai is its largest city.",
    "Erwachsene brauchen etwa 0,8 Gramm Eiweiß je Kilogramm Körpergewicht und Tag.",
    "引力使物体相互吸引，是地球上重量的来源。",
    "Gravity attracts bodies towards one another and gives weight to objects on Earth.",
    "Париж — столица Франции, город на Сене.",
    "Beeswax melts at about 63 °C and has been made into candles since antiquity.",
    "SELECT name FROM cities WHERE country = 'CN' AND capital = TRUE;",
    "الكواكب تدور حول الشمس في مدارات بيضاوية.",
    "Close to the nest, bees recognize landmarks and the scent of their colony. " * 12,
)
TEXTS = (
    *QUERIES,
    *DOCUMENTS,
    "a",
    "UPPER lower MiXeD, naïve café — 3.14 & 1,000,000",
    "tab\tseparated\nlines\r\nand  spaces",
    "👩‍👩‍👧‍👦 🇩🇪 e\u0301 ﬁ Å ①",
    "def f(x: int) -> int:\n    return x ** 2  # squares",
    "long " * 700,
)
