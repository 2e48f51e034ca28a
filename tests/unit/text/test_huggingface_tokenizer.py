import json
import re
import sys
from pathlib import Path

import pytest
from small_tokenizers import FAIRSEQ_IDS, LANGUAGES, nllb_json, nllb_pair, phrases

from heedful.errors import MissingExtraError, TokenizerError, install_hint
from heedful.text import HuggingFaceTokenizer, SpecialIds, TokenizerPair


def test_text_survives_the_round_trip_without_special_tokens() -> None:
    tokenizer = nllb_pair().src
    assert tokenizer.kind == "bpe"
    assert tokenizer.vocab_size == 250 + len(LANGUAGES)
    for line in phrases()[1]:
        ids = tokenizer.encode(line)
        assert not {0, 1, 2, 3} & set(ids)
        assert tokenizer.decode([2, tokenizer.tag_id("deu_Latn"), *ids, 2, 1]) == line


def test_what_the_file_says_of_padding_truncation_and_special_tokens_is_not_used() -> None:
    from tokenizers import Tokenizer, processors

    pipeline = Tokenizer.from_buffer(nllb_json())
    plain = HuggingFaceTokenizer(nllb_json(), FAIRSEQ_IDS)
    pipeline.enable_truncation(2)
    pipeline.enable_padding(length=50)
    pipeline.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    dressed = HuggingFaceTokenizer(pipeline.to_str().encode(), FAIRSEQ_IDS)
    lines = list(phrases()[0])
    assert dressed.encode_batch(lines) == plain.encode_batch(lines)
    assert plain.encode_batch([]) == []


def test_another_setting_is_another_tokenizer() -> None:
    files = dict(nllb_pair().src.to_files())
    files[".special.json"] = files[".special.json"].replace(b"false", b"true")
    assert HuggingFaceTokenizer.from_files(files).digest() != nllb_pair().src.digest()


def test_a_missing_library_is_named_with_its_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nllb_pair().save(tmp_path)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(MissingExtraError, match=re.escape(install_hint("tokenizers"))):
        TokenizerPair.load(tmp_path)


def test_damaged_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=r"source\.json: not a usable tokenizer\.json"):
        HuggingFaceTokenizer(b"{}", FAIRSEQ_IDS, name="source")
    with pytest.raises(TokenizerError, match="7777"):
        HuggingFaceTokenizer(nllb_json(), SpecialIds(pad=1, unk=7777, bos=0, eos=2))
    nllb_pair().save(tmp_path)
    (tmp_path / "tokenizer.special.json").write_text(json.dumps({"ids": {}}))
    with pytest.raises(TokenizerError, match=r"tokenizer\.special\.json: not usable"):
        TokenizerPair.load(tmp_path)


def test_an_id_beyond_the_vocabulary_is_one_line() -> None:
    """The library takes any ids, and gives the number of tokens as the size of the vocabulary."""
    document = json.loads(nllb_json())
    intact = HuggingFaceTokenizer(nllb_json(), FAIRSEQ_IDS)
    [token, *_] = intact.tokens(intact.encode("the"))
    document["model"]["vocab"][token] = 10**6
    tokenizer = HuggingFaceTokenizer(json.dumps(document).encode(), FAIRSEQ_IDS)
    with pytest.raises(TokenizerError, match=r"^tokenizer\.json"):
        tokenizer.encode("the")
