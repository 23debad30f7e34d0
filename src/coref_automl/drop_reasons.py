"""Why documents, items and rows are dropped, for people. In: a reason as files keep it. Out: in the language of results.

Files hold the English reason, so that counts of different commands can be added; only what is shown is translated.
"""

from __future__ import annotations

import re
from functools import cache

from coref_automl.say import language, say

_KOREAN = {
    # documents
    "empty after cleaning": "정제 후 빈 문서",
    "under {} characters": "{}자 미만",
    "under {} Hangul": "한글 비율 {} 미만",
    "most lines repeat": "대부분의 줄이 반복됨",
    "held out for evaluation": "평가용으로 분리",
    "in an evaluation set": "평가 세트에 있음",
    "repeats an evaluation document": "평가 문서와 같음",
    "nearly repeats an evaluation document": "평가 문서와 거의 같음",
    "repeats a held-out document": "평가용으로 분리한 문서와 같음",
    "nearly repeats a held-out document": "평가용으로 분리한 문서와 거의 같음",
    "exact duplicate": "완전 중복",
    "near duplicate": "유사 중복",
    "no noun chain": "명사 사슬 없음",
    "no tokens": "토큰 없음",
    "reads as a special token": "특수 토큰으로 읽힘",
    "no field {}": "{} 필드 없음",
    "the file breaks off": "파일이 중간에 끊김",
    "an empty file": "빈 파일",
    "the id of an earlier document": "앞선 문서와 ID가 같음",
    "the text of an earlier document": "앞선 문서와 본문이 같음",
    "no rows": "행 없음",
    # items
    "repeats an earlier item": "앞선 문항과 같음",
    "begins inside a word": "단어 중간에서 시작",
    "no other noun to choose from": "후보가 될 다른 명사 없음",
    "not one vocabulary entry": "어휘 항목 하나가 아님",
    "occurs once": "한 번만 나옴",
    "{} tokens away or more": "{}토큰 이상 떨어짐",
    "over {} nouns of its document in one bucket": "한 거리 구간에서 문서당 명사 {}개 초과",
    "over {} nouns of its document": "문서당 명사 {}개 초과",
    "over {} mentions of its text": "글당 언급 {}개 초과",
    "first mention over {} tokens away": "첫 언급이 {}토큰보다 멂",
    "a pronoun between the two mentions": "두 언급 사이에 대명사",
    "names a group of entities": "개체 여럿을 함께 가리킴",
    "a pronoun": "대명사",
    "over {} characters or two words": "{}자 또는 두 단어 초과",
    "nested in another mention or around one": "다른 언급을 포함하거나 그 안에 있음",
    "its surface names another entity too": "같은 표현이 다른 개체도 가리킴",
    "the row's candidate contains its answer": "후보가 답을 포함함",
    "text or clusters are missing": "본문이나 사슬이 없음",
    "not composed (NFC), so that its offsets would move": "NFC가 아니어서 위치가 어긋남",
    "a cluster that is not a list of mentions": "언급 목록이 아닌 사슬",
    "a mention without start, end and text": "시작, 끝, 글이 없는 언급",
    "a mention is not where its offsets say": "언급이 표시된 위치에 없음",
    "text or answer is missing": "본문이나 답이 없음",
    "no blank": "빈칸 없음",
    "more than one blank": "빈칸이 둘 이상",
    "an empty answer": "빈 답",
    # relation rows
    "subject": "주체",
    "object": "대상",
    "it is {}, not an object with sentence, subject_entity, object_entity and label": "행이 {} 형식임 (sentence, subject_entity, "
    "object_entity, label이 있는 객체여야 함)",
    "the sentence is missing or empty": "문장이 없거나 비어 있음",
    "the sentence has {} characters, and more than {} is a document; pass the sentence meant": "문장이 {}자임 ({}자를 넘으면 "
    "문서이므로 해당 문장만 주어야 함)",
    "subject and object are the same span {} ({})": "주체와 대상의 위치가 같음: {} ({})",
    "subject and object cross (characters {} and {})": "주체와 대상이 엇갈림 (글자 {}, {})",
    "subject and object are the same tokens ({})": "주체와 대상이 같은 토큰임 ({})",
    "the {} entity has no {}": "{} 개체에 {} 없음",
    "the {}'s type {} is not one of {}": "{} 유형 {}이(가) 목록에 없음: {}",
    "the cell {}_entity is not a dict: {}": "{} 개체의 칸이 사전 형식이 아님: {}",
    "there is no {}_entity, nor columns {}": "{} 개체의 칸이 없고 열도 없음: {}",
    "the {}'s {} is {}, not a whole number": "{}의 {} 값 {}이(가) 정수가 아님",
    "the {}'s word is blank": "{} 단어가 비어 있음",
    "the {} {} does not occur in the sentence; {}": "{} {}이(가) 문장에 없음; {}",
    "the {} {} ends at {}, not {}: end_idx is inclusive; {}": "{} {}의 끝은 {}이며 {}이(가) 아님: end_idx는 끝 글자를 포함; {}",
    "the {}'s characters {} are {}, not {}, which is at {}": "{} 위치 {}의 글자가 {}임: {}은(는) {}에 있음",
    "the label is missing": "레이블 없음",
    "the label {} is not one of KLUE's 30 (the nearest is {})": "레이블 {}은(는) KLUE의 30개에 없음 (가장 가까운 것: {})",
    "the label {} is not one of KLUE's 30, which as numbers go from {}": "레이블 {}은(는) KLUE의 30개에 없음 (번호는 {})",
    "the tokenizer leaves nothing of {}": "토크나이저가 {}을(를) 모두 지움",
    "no token boundary at the edges of {}: {}": "{}의 양 끝에 토큰 경계가 없음: {}",
    "no token boundary at the edges of {}": "{}의 양 끝에 토큰 경계가 없음",
    "both entities need {} tokens and {} are left; raise max_length": "두 개체에 {}토큰 필요, {}토큰 남음; max_length를 늘리세요",
    "characters {} are outside the sentence of {}": "글자 {} 위치가 {}자 문장의 밖임",
    "characters {} are {}": "글자 {} 위치는 {}임",
    # chains
    "a row needs doc_id, text and clusters: {}": "행에 doc_id, text, clusters가 있어야 함: {}",
    "cluster {} holds a mention without start and end": "사슬 {}에 시작과 끝이 없는 언급이 있음",
    "cluster {} has an offset that is not a whole number": "사슬 {}에 정수가 아닌 위치가 있음",
    "cluster {} mixes the entities {}": "사슬 {}에 여러 개체가 섞임: {}",
    "mention {} lies outside the text of {} characters": "언급 {}이(가) {}자 글의 밖에 있음",
    "{} of {} mentions do not match the text ({})": "언급 {}/{}개가 글과 맞지 않음 ({})",
    "duplicate id of row {}": "{}행과 ID가 같음",
    "line {} closes {}, which is not open": "{}번째 줄이 열리지 않은 {}을(를) 닫음",
    "the bracket of {} does not close": "{}의 괄호가 닫히지 않음",
    "{} columns instead of {}": "열이 {}개임 ({}개여야 함)",
}
"""By the English reason; {} stands for what differs, in the same order. A reason that is not here is shown as it is."""


def in_words(reason: str) -> str:
    """A reason in the language of results."""
    if language() == "en":
        return reason
    for pattern, korean in _patterns():
        if found := pattern.fullmatch(reason):
            return korean.format(*map(in_words, found.groups()))
    return reason


def of_row(row: int, name: str, reason: str) -> str:
    """A row that is left out, and why."""
    where = f" ({name})" if name else ""
    return say(f"{row}행{where}: {in_words(reason)}", f"row {row}{where}: {reason}")


@cache
def _patterns() -> list[tuple[re.Pattern[str], str]]:
    return [
        (re.compile("(.+?)".join(map(re.escape, english.split("{}"))), re.DOTALL), korean) for english, korean in _KOREAN.items()
    ]
