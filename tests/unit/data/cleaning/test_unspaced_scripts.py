"""Text in scripts that are written without spaces passes every filter, however long its runs are."""

import pytest
from surveyed import survey_of

from heedful.data.cleaning import FILTERS, Pair, PairChecker
from heedful.data.cleaning import filters as checks
from heedful.data.cleaning.registry import Check

ENGLISH = [
    "Everybody can choose the typeface and the size of the text in this window at any time.",
    "Yesterday he bought a new book in the shop that is close to his house.",
    "The weather is very good today, so let us go for a walk in the park.",
]
# Thai, Khmer, Lao, Burmese, Tibetan, Chinese, Japanese; Javanese, Balinese and Tai Tham in their scripts.
TEXTS = {
    "th": [
        "ผู้ใช้สามารถเลือกแบบอักษรและขนาดของข้อความในหน้าต่างนี้ได้ทุกเวลา",
        "เมื่อวานนี้เขาซื้อหนังสือเล่มใหม่ที่ร้านใกล้บ้านของเขา",
        "วันนี้อากาศดีมากเราไปเดินเล่นที่สวนสาธารณะกันเถอะ",
    ],
    "km": [
        "មនុស្សទាំងអស់កើតមកមានសេរីភាពនិងសមភាពក្នុងផ្នែកសេចក្ដីថ្លៃថ្នូរនិងសិទ្ធិ។",
        "ថ្ងៃនេះអាកាសធាតុល្អណាស់យើងទៅដើរលេងនៅសួនច្បារ។",
        "ម្សិលមិញគាត់បានទិញសៀវភៅថ្មីមួយក្បាលនៅហាងជិតផ្ទះ។",
    ],
    "lo": [
        "ມະນຸດທຸກຄົນເກີດມາມີກຽດສັກສີສິດທິເສລີພາບແລະຄວາມສະເໝີພາບເທົ່າທຽມກັນ",
        "ມື້ນີ້ອາກາດດີຫຼາຍພວກເຮົາໄປຍ່າງຫຼິ້ນຢູ່ສວນສາທາລະນະ",
        "ມື້ວານນີ້ລາວໄດ້ຊື້ປຶ້ມໃໝ່ຢູ່ຮ້ານໃກ້ເຮືອນ",
    ],
    "my": [
        "လူတိုင်းသည်တူညီလွတ်လပ်သောဂုဏ်သိက္ခာဖြင့်လည်းကောင်းတူညီလွတ်လပ်သောအခွင့်အရေးများဖြင့်လည်းကောင်းမွေးဖွားလာသူများဖြစ်သည်။",
        "ဒီနေ့ရာသီဥတုအရမ်းကောင်းတယ်ကျွန်တော်တို့ပန်းခြံကိုသွားကြမယ်။",
        "မနေ့ကသူစာအုပ်အသစ်တစ်အုပ်ဝယ်ခဲ့သည်။",
    ],
    "bo": [
        "འགྲོ་བ་མིའི་རིགས་རྒྱུད་ཡོངས་ལ་སྐྱེས་ཙམ་ཉིད་ནས་ཆེ་མཐོངས་དང༌།ཐོབ་ཐངགི་རང་དབང་འདྲ་མཉམ་དུ་ཡོད་ལ།",
        "ཁོང་གིས་ཁ་སང་དེབ་གསར་པ་ཞིག་ཉོས་པ་རེད་འདུག",
        "དེ་རིང་གནམ་གཤིས་ཧ་ཅང་ཡག་པོ་འདུག་ང་ཚོ་གླིང་ཁར་འགྲོ་དོ།",
    ],
    "zh": [
        "今天天气很好，我们去公园散步吧，然后再一起去吃晚饭。",
        "他昨天在家附近的商店买了一本很有意思的新书。",
        "用户可以随时在此窗口中选择文本的字体和大小。",
    ],
    "ja": [
        "今日は天気がとても良いので、公園へ散歩に行きましょう。",
        "彼は昨日、家の近くの店で新しい本を一冊買いました。",
        "ユーザーはいつでもこのウィンドウでフォントとサイズを選択できます。",
    ],
    "jv": [
        "ꦱꦧꦼꦤ꧀ꦮꦺꦴꦁꦏꦭꦲꦶꦫꦏꦺꦏꦤ꧀ꦛꦶꦩꦂꦢꦶꦏꦭꦤ꧀ꦢꦂꦧꦺꦩꦂꦠꦧꦠ꧀ꦭꦤ꧀ꦲꦏ꧀ꦲꦏ꧀ꦏꦁꦥꦝ꧉",
        "ꦲꦏ꧀ꦱꦫꦗꦮꦲꦶꦏꦸꦱꦭꦃꦱꦶꦗꦶꦤꦶꦁꦲꦏ꧀ꦱꦫꦏꦁꦢꦶꦒꦸꦤꦏꦏꦺꦲꦶꦁꦤꦸꦱꦗꦮ꧉",
        "ꦮꦶꦁꦔꦶꦲꦏꦸꦠꦸꦏꦸꦧꦸꦏꦸꦲꦚꦂꦲꦶꦁꦠꦺꦴꦏꦺꦴꦕꦼꦝꦏ꧀ꦲꦺꦴꦩꦃ꧉",
    ],
    "ban": [
        "ᬲᬫᬶᬫᬦᬸᬱᬦᬾᬓᬗᬢᬶᬫᬫᬃᬥᬶᬓᬮᬦ᭄ᬫᬤᬸᬯᬾᬳᬓ᭄ᬓᬂᬧᬥ᭟",
        "ᬅᬓ᭄ᬱᬭᬩᬮᬶᬳᬶᬓᬲᬮᬄᬲᬢᬸᬦᬶᬂᬅᬓ᭄ᬱᬭᬳᬶᬂᬦᬸᬲᬦ᭄ᬢᬭ᭟",
        "ᬯᬶᬗᬶᬢᬶᬬᬂᬫᬮᬶᬩᬸᬓᬸᬳᬜᬃᬭᬶᬂᬢᭀᬓᭀᬦᬶᬗᬮᬶᬭᬂ᭟",
    ],
    "nod": [
        "ᨾᨶᩩᩔ᩠ᨴ᩠ᨦᩢᩉᩖᩣ᩠ᨿᨠᩮ᩠ᨯᩨᨾᩣᨾᩦᩋᩥᩈᩁᨽᩣ᩠ᨷᩓᩃᩈᩮ᩠ᨾᩬᨽᩣ᩠ᨣᨠ᩠ᨶᩢ",
        "ᩅ᩠ᨶᩢᨶᩦ᩶ᩋᩣᨠᩣ᩠ᩈᨯᩦᨻᩮᩬᩥ᩵ᨶᨸᩱᩋᩯ᩠᩵ᩅᩈ᩠ᩅᩁᨶᩦ᩶",
        "ᨾᩨ᩶ᩅᩤᨶᩉᩱ᩶ᩇᩨ᩶ᨸ᩠ᨷᩢᨾᩮᩤᨶᩂᩔ᩠ᨦᨯᩦ",
    ],
}
REMOVING = {each.name for each in FILTERS if each.removes}


@pytest.mark.parametrize("code", TEXTS)
@pytest.mark.parametrize("joined", [False, True])
def test_no_filter_removes_it(code: str, joined: bool) -> None:
    sentences = ["".join(each.split()) for each in TEXTS[code]]
    texts = [sentences[n] + sentences[n - 1] for n in range(len(sentences))] if joined else sentences
    english = [
        f"{each} {other}" if joined else each
        for each, other in zip(ENGLISH, ENGLISH[1:] + ENGLISH[:1], strict=True)
    ]
    pairs = list(zip(english, texts, strict=True))
    for ordered in (pairs, [pair[::-1] for pair in pairs]):
        checker = PairChecker(survey_of(ordered))
        for index, (src, tgt) in enumerate(ordered):
            assert not REMOVING.intersection(checker.faults(Pair(src, tgt, index=index)))


@pytest.mark.parametrize("code", TEXTS)
def test_a_run_of_latin_letters_in_it_still_is_a_long_word(code: str) -> None:
    text, run = "".join(TEXTS[code][0].split()), "x" * 41
    for found in (f"{text} {run} {text}", f"{text}{run}{text}", f"{run}\u3002{text}"):
        assert checks.long_word(Pair(ENGLISH[0], found))
    for fine in (f"{text}{run[1:]}{text}", f"{text}\u3001ABS\u3001" + "SUM\u3001" * 20):
        assert not checks.long_word(Pair(ENGLISH[0], fine))


@pytest.mark.parametrize(
    ("check", "src", "tgt"),
    [
        (
            checks.glued_words,
            "Share it on YouTube, on Facebook or on X.",
            "YouTubeやFacebookやTwitterで共有できます。",
        ),
        (
            checks.only_addresses,
            "Please see https://example.org for more.",
            "https://example.orgをご覧ください。",
        ),
        (
            checks.only_addresses,
            "Write to info@example.org, please.",
            "info@example.orgまで連絡してください。",
        ),
        (checks.addresses_differ, "See https://example.org today.", "請看https://example.org。今天"),
        (checks.addresses_differ, "Write to info@example.org.", "ติดต่อinfo@example.orgได้"),
        (checks.terminal_punctuation, "One. " * 5, "ข้อความนี้ยาวมาก"),
        (checks.terminal_punctuation, "One. " * 4, "ខ្មែរ។" * 4),
    ],
)
def test_what_other_filters_count_ends_where_such_text_begins(check: Check, src: str, tgt: str) -> None:
    assert not check(Pair(src, tgt))
    assert not check(Pair(tgt, src))


def test_addresses_that_differ_are_still_found() -> None:
    assert checks.addresses_differ(Pair("See https://example.org.", "https://example.comを参照。"))
    assert checks.only_addresses(Pair("See this one.", "https://example.org/a?b=c"))
    assert checks.only_addresses(Pair("Write to me.", "info@example.org"))
