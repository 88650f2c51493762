"""Chinese: the catalogues keep placeholders, markup and the agreed terms."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import polib

CONSOLE = Path(__file__).resolve().parents[2] / "console"
SOURCES = sorted((CONSOLE / "locale" / "zh_Hans" / "LC_MESSAGES").glob("*.po"))
ENTRIES = [entry for source in SOURCES for entry in polib.pofile(str(source))]
TRANSLATED = [entry for entry in ENTRIES if entry.translated()]
PLACEHOLDER = re.compile(r"%\(\w+\)[a-z]|%[sd%]|</?\w+[^>]*>|\{\w*\}")


# An English word and its translation (docs/translating.md).
GLOSSARY = {
    r"dead[- ]letters?": "死信",
    r"consumer groups?": "消费组",
    r"topics?": "Topic",
    r"brokers?": "Broker",
    r"queues?": "队列",
    r"offsets?": "位点|偏移量|[Oo]ffset",
    r"producers?": "生产",
    r"retr(?:y|ies)": "重试",
    r"alerts?": "告警",
    r"slaves?": "从节点",
    r"half messages?": "半消息",
    r"members?": "成员",
    r"silences?": "静默",
    r"name servers?": "NameServer",
    r"audit": "审计",
    r"lake": "数据湖",
    r"reports?": "报表",
}
# Names in a code's own spelling, and exceptions for a single sentence.
OTHERWISE = re.compile(
    r"%\(\w+\)[sd]|broker-a|brokers is|by=|topic:|too few brokers|n't report|currently report"
    r"|(?:It|Consumers|broker) report"
)


def english(entry: polib.POEntry) -> list[str]:
    return [each for each in (entry.msgid, entry.msgid_plural) if each]


def chinese(entry: polib.POEntry) -> list[str]:
    return list(entry.msgstr_plural.values()) or [entry.msgstr]


def marks(text: str) -> Counter[str]:
    return Counter(PLACEHOLDER.findall(text))


def test_a_translation_has_its_sources_placeholders_and_markup() -> None:
    assert len(TRANSLATED) > 2_000

    wrong = [
        entry
        for entry in TRANSLATED
        if any(
            marks(text) not in [marks(each) for each in english(entry)] for text in chinese(entry)
        )
    ]

    assert wrong == []


def test_a_translation_has_the_same_leading_and_trailing_newlines_as_its_source() -> None:
    def ends(text: str) -> tuple[bool, bool]:
        return text.startswith("\n"), text.endswith("\n")

    assert [each for each in TRANSLATED if ends(chinese(each)[0]) != ends(each.msgid)] == []


def test_chinese_has_one_form_for_all_numbers() -> None:
    for source in SOURCES:
        assert "nplurals=1; plural=0;" in source.read_text(encoding="utf-8")
    assert [each for each in ENTRIES if len(chinese(each)) != 1] == []


def test_translations_follow_the_glossary() -> None:
    wrong = [
        (entry.msgid, text)
        for entry in TRANSLATED
        for word, text in GLOSSARY.items()
        if not OTHERWISE.search(english(entry)[-1])
        and re.search(rf"\b{word}\b", english(entry)[-1], re.IGNORECASE)
        and not re.search(text, chinese(entry)[0])
    ]

    assert wrong == []
