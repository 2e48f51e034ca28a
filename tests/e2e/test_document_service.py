"""Documents in the service, with the clients that people have: DeepL's own, and one of LibreTranslate."""

import io
import json
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import unquote, urlsplit

import docx
import httpx
import pytest
from command_line import heedful
from tiny_bundle import PAIRS, save_memorised
from translation_server import Reply, TranslationServer, translation_server

from heedful.errors import install_hint
from heedful.serving.access import make_key

deepl = pytest.importorskip("deepl")
ENGLISH, GERMAN = PAIRS[0]
BOUNDARY = "a-boundary"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_memorised(tmp_path_factory.mktemp("documents") / "tiny")


@pytest.fixture(scope="module", params=[1, 2])
def server(
    bundle: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[TranslationServer]:
    """From English to German, and by the same model from German to Dutch; with one process, and with two."""
    file = tmp_path_factory.mktemp("glossaries") / "glossaries.json"
    arguments = (f"en-de,de-nl={bundle}", "--glossaries", file, "--workers", request.param)
    with translation_server(*arguments) as running:
        yield running


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let DeepL's client ask 20 times a second; its own interval is 5 seconds."""
    sleep = time.sleep
    monkeypatch.setattr(time, "sleep", lambda seconds: sleep(min(seconds, 0.05)))


@pytest.fixture
def document(tmp_path: Path) -> Path:
    written = docx.Document()
    paragraph = written.add_paragraph("the cat ")
    paragraph.add_run("sleeps").bold = True
    paragraph.add_run(" .")
    written.add_paragraph(PAIRS[3][0])
    written.save(str(tmp_path / "a report ü.docx"))
    return tmp_path / "a report ü.docx"


def multipart(
    server: TranslationServer, path: str, file: bytes | None, fields: dict[str, str], *, name: str = "a.txt"
) -> Reply:
    """Send a form as browsers do."""
    parts = [
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n'.encode()
        for key, value in fields.items()
    ]
    if file is not None:
        head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
        parts.append(head.encode() + file + b"\r\n")
    body = b"".join([*parts, f"--{BOUNDARY}--\r\n".encode()])
    headers = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
    return server.ask("POST", path, body, headers)


def texts_of(document: Path | io.BytesIO) -> list[str]:
    source = str(document) if isinstance(document, Path) else document
    return [each.text for each in docx.Document(source).paragraphs]


@pytest.mark.slow
def test_deepls_own_client_translates_documents(
    server: TranslationServer, bundle: Path, document: Path, tmp_path: Path
) -> None:
    with closing(deepl.DeepLClient("a key", server_url=server.url)) as client:
        output, by_command = tmp_path / "out.docx", tmp_path / "command.docx"
        status = client.translate_document_from_filepath(document, output, source_lang="EN", target_lang="DE")
        assert (status.done, status.billed_characters) == (True, len(ENGLISH) + len(PAIRS[3][0]))
        assert heedful("translate", bundle, "--document", document, "-o", by_command).code == 0
        assert texts_of(output) == texts_of(by_command) == [GERMAN, PAIRS[3][1]]
        assert [each.text for each in docx.Document(str(output)).paragraphs[0].runs if each.bold] == [
            "schläft"
        ]

        stream = io.BytesIO()
        with document.open("rb") as file:
            status = client.translate_document(file, stream, target_lang="DE")  # the language is detected
        assert texts_of(stream) == [GERMAN, PAIRS[3][1]]

        handle = client.translate_document_upload(
            f"{ENGLISH}\n\n  {PAIRS[1][0]}\n", filename="a.txt", source_lang="EN", target_lang="DE"
        )
        status = client.translate_document_wait_until_done(handle)
        assert client.translate_document_get_status(handle).done
        other = deepl.DocumentHandle(handle.document_id, handle.document_key[::-1])
        for wrong in (other, deepl.DocumentHandle("0" * 32, handle.document_key)):
            with pytest.raises(deepl.DeepLException, match=r"[Nn]ot found"):
                client.translate_document_get_status(wrong)
            with pytest.raises(deepl.DeepLException, match=r"[Nn]ot found"):
                client.translate_document_download(wrong, io.BytesIO())
        response = client.translate_document_download(handle)
        assert b"".join(response.iter_content(7)).decode() == f"{GERMAN}\n\n  {PAIRS[1][1]}\n"
        with pytest.raises(deepl.DeepLException, match="Not found"):
            client.translate_document_download(handle, io.BytesIO())
        with pytest.raises(deepl.DeepLException, match=r"[Nn]ot found"):
            client.translate_document_get_status(handle)


def test_a_document_is_given_whole_and_once_and_head_takes_nothing(server: TranslationServer) -> None:
    reply = multipart(server, "/v2/document", f"{ENGLISH}\n".encode(), {"target_lang": "DE"})
    handle = reply.json
    path = f"/v2/document/{handle['document_id']}"
    key = f"?document_key={handle['document_key']}"
    while server.ask("GET", path + key).json["status"] != "done":
        time.sleep(0.05)
    assert server.ask("HEAD", f"{path}/result{key}").status == 200
    whole = server.ask("GET", f"{path}/result{key}", headers={"Range": "bytes=0-1"})
    assert (whole.status, whole.body.decode()) == (200, f"{GERMAN}\n")
    assert server.ask("GET", f"{path}/result{key}").status == 404


@pytest.mark.representatives(1)
def test_a_document_may_go_through_another_language_and_use_a_glossary(server: TranslationServer) -> None:
    with closing(deepl.DeepLClient("a key", server_url=server.url)) as client:
        cats = client.create_glossary("cats", "EN", "DE", {"cat": "Kater"})

        def translated(**options: object) -> str:
            stream = io.BytesIO()
            handle = client.translate_document_upload(ENGLISH, filename="a.md", **options)
            status = client.translate_document_wait_until_done(handle)
            assert status.done, status.error_message
            client.translate_document_download(handle, stream)
            return stream.getvalue().decode()

        assert translated(source_lang="EN", target_lang="NL")
        assert "Kater" in translated(source_lang="EN", target_lang="DE", glossary=cats)
        assert "Kater" in translated(source_lang="EN", target_lang="DE", glossary_ids=[cats])
        assert translated(source_lang="DE", target_lang="DE") == ENGLISH
        for options, message in (
            ({"target_lang": "NL", "source_lang": "EN", "glossary": cats.glossary_id}, "by way of de"),
            ({"target_lang": "DE", "glossary": "none", "source_lang": "EN"}, "Glossary not found"),
            ({"target_lang": "FR"}, "'target_lang' not supported"),
            ({"target_lang": "DE", "formality": "more"}, "'formality' is not supported"),
            ({"target_lang": "DE", "output_format": "pdf"}, "'output_format' must be"),
            ({"target_lang": "DE", "style_rule": "x"}, "style_id.*is not known"),
        ):
            with pytest.raises(deepl.DeepLException, match=message):
                client.translate_document_upload("x", filename="a.txt", **options)


def test_a_client_of_libretranslate_translates_documents(server: TranslationServer, document: Path) -> None:
    module = pytest.importorskip("libretranslate_aio")
    with module.LibreTranslate(server.url) as client:
        url = client.translate_file(document, source="en", target="de").translated_file_url
    assert url.startswith(f"{server.url}/download_file/")
    path = urlsplit(url).path
    assert unquote(path).endswith(".a report ü_de.docx")
    for _ in range(2):
        reply = server.ask("GET", path)
        assert texts_of(io.BytesIO(reply.body)) == [GERMAN, PAIRS[3][1]]
        assert reply.headers["content-disposition"].startswith("attachment")
    settings = server.ask("GET", "/frontend/settings").json
    assert settings["filesTranslation"] is True
    assert {".csv", ".docx", ".odt", ".srt", ".tsv", ".txt"} <= set(settings["supportedFilesFormat"])


TABLE = f'id;"title, short";note\n1;{ENGLISH};{ENGLISH}\n'


def test_the_columns_of_a_table_are_translated(
    server: TranslationServer, bundle: Path, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text(TABLE)
    by_command = ("--document", tmp_path / "a.csv", "-o", tmp_path / "b.csv", "--column", '"title, short",3')
    assert heedful("translate", bundle, *by_command).code == 0
    assert (tmp_path / "b.csv").read_text() == TABLE.replace(f";{ENGLISH}", f";{GERMAN}")
    for columns in (
        {"columns": ['"title, short",note']},
        {"columns": ["2", "3"]},
        {"columns[]": ["note", '"title, short"']},
    ):
        files = {"file": ("a.csv", TABLE.encode())}
        data = {"source": "en", "target": "de", **columns}
        reply = httpx.post(f"{server.url}/translate_file", data=data, files=files, timeout=60)
        assert reply.status_code == 200, reply.text
        content = httpx.get(reply.json()["translatedFileUrl"]).content
        assert content == (tmp_path / "b.csv").read_bytes()
    with closing(deepl.DeepLClient("a key", server_url=server.url)) as client:
        stream = io.BytesIO()
        text = f"id\ttitle\n1\t{ENGLISH}\n"
        handle = client.translate_document_upload(
            text,
            filename="a.tsv",
            source_lang="EN",
            target_lang="DE",
            extra_body_parameters={"columns": "title"},
        )
        assert client.translate_document_wait_until_done(handle).done
        client.translate_document_download(handle, stream)
        assert stream.getvalue().decode() == text.replace(ENGLISH, GERMAN)


@pytest.mark.parametrize(
    ("name", "columns", "message"),
    [
        (
            "a.csv",
            "",
            "a.csv: which columns hold text? name them in the form field 'columns', separated by commas; the "
            "table has id, title, short, note",
        ),
        ("a.csv", "notes", "a.csv: no column 'notes'; the table has id, title, short, note"),
        ("a.csv", "4", "a.csv: no column '4'; the table has id"),
        ("a.txt", "note", "a.txt: has no columns; the form field 'columns' is for .csv and .tsv"),
    ],
)
def test_clients_are_told_which_columns_there_are(
    server: TranslationServer, name: str, columns: str, message: str, tmp_path: Path
) -> None:
    fields = {"columns": columns} if columns else {}
    for path, languages, error in (
        ("/translate_file", {"source": "en", "target": "de"}, "error"),
        ("/v2/document", {"source_lang": "EN", "target_lang": "DE"}, "message"),
    ):
        reply = multipart(server, path, TABLE.encode(), languages | fields, name=name)
        assert (reply.status, list(reply.json)) == (400, [error])
        assert message in reply.json[error]
    if columns:
        return
    with (
        closing(deepl.DeepLClient("a key", server_url=server.url)) as client,
        pytest.raises(deepl.DeepLException, match="'columns'"),
    ):
        client.translate_document_upload(TABLE, target_lang="DE", filename=name)
    module = pytest.importorskip("libretranslate_aio")
    (tmp_path / name).write_text(TABLE)
    with module.LibreTranslate(server.url) as client, pytest.raises(Exception, match="'columns'"):
        client.translate_file(tmp_path / name, source="en", target="de")


def test_the_description_says_how_columns_are_sent(server: TranslationServer) -> None:
    paths = server.ask("GET", "/spec").json["paths"]
    for path in ("/translate_file", "/v2/document"):
        form = paths[path]["post"]["requestBody"]["content"]["multipart/form-data"]["schema"]
        assert form["properties"]["columns"]["type"] == "array"
        assert "CSV or TSV" in form["properties"]["columns"]["description"]
        assert "columns" not in form["required"]


@pytest.mark.parametrize(
    ("name", "data", "fields", "status", "message"),
    [
        ("a.docx", b"no zip", {"source": "en", "target": "de"}, 400, "a.docx: damaged, or not a docx file"),
        ("a.json", b'{"a": ', {"source": "en", "target": "de"}, 400, "a.json: not JSON"),
        ("a.pdf", b"%PDF", {"source": "en", "target": "de"}, 400, "file extension"),
        ("a", b"text", {"source": "en", "target": "de"}, 400, "file extension"),
        ("", b"text", {"source": "en", "target": "de"}, 400, "missing file parameter"),
        ("a.txt", None, {"source": "en", "target": "de"}, 400, "missing file parameter"),
        ("a.txt", b"text", {"source": "en"}, 400, "missing target parameter"),
        ("a.txt", b"text", {"source": "zz", "target": "de"}, 400, "zz is not supported"),
        ("a.txt", bytes(11 * 2**20), {"source": "en", "target": "de"}, 413, "bytes"),
        ("a.txt", b"cat " * 250_001, {"source": "en", "target": "de"}, 400, "more than 1,000,000 characters"),
    ],
)
def test_documents_that_cannot_be_translated_are_told_so(
    server: TranslationServer,
    name: str,
    data: bytes | None,
    fields: dict[str, str],
    status: int,
    message: str,
) -> None:
    reply = multipart(server, "/translate_file", data, fields, name=name)
    assert reply.status == status
    assert message in reply.json["error"]
    assert "/tmp" not in reply.json["error"]
    assert list(reply.json) == ["error"]


def test_a_download_that_is_not_there_is_not_found(server: TranslationServer) -> None:
    for path in ("x", "../x", "A" * 32 + ".a.txt", "%2e%2e.a.txt", "lock", "..."):
        assert server.ask("GET", f"/download_file/{path}").status == 404
    text = json.dumps({"q": ENGLISH}).encode()
    reply = server.ask("POST", "/translate_file", text, {"Content-Type": "application/json"})
    assert (reply.status, list(reply.json)) == (415, ["error"])


def test_a_failed_document_says_why(server: TranslationServer) -> None:
    with closing(deepl.DeepLClient("a key", server_url=server.url)) as client:
        with pytest.raises(deepl.DocumentTranslationException, match=r"a\.xlsx: damaged") as raised:
            stream = io.BytesIO(b"nothing")
            stream.name = "a.xlsx"  # type: ignore[attr-defined]
            client.translate_document(stream, io.BytesIO(), target_lang="DE")
        handle = raised.value.document_handle
        assert not client.translate_document_get_status(handle).ok
        with pytest.raises(deepl.DeepLException, match="Not found"):
            client.translate_document_download(handle, io.BytesIO())


@pytest.mark.slow
def test_documents_are_of_a_client_limited_counted_and_removed(bundle: Path, tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    ann, ben = make_key(keys, "ann"), make_key(keys, "ben")
    limits = ("--max-documents", 4, "--keep-documents", 2, "--max-document-bytes", 1000)
    with (
        translation_server(f"en-de={bundle}", "--keys", keys, "--log-requests", *limits) as server,
        closing(deepl.DeepLClient(ann, server_url=server.url)) as client,
        closing(deepl.DeepLClient(ben, server_url=server.url)) as other,
    ):
        with pytest.raises(deepl.AuthorizationException):
            deepl.DeepLClient("none", server_url=server.url).translate_document_upload(
                ENGLISH, filename="a.txt", target_lang="DE"
            )
        with pytest.raises(deepl.DeepLException, match="1,000 bytes"):
            client.translate_document_upload(ENGLISH * 100, filename="a.txt", target_lang="DE")
        handles = [
            client.translate_document_upload(ENGLISH, filename="secret.txt", target_lang="DE")
            for _ in range(2)
        ]
        reply = multipart(server, "/translate_file", b"x", {"source": "en", "target": "de", "api_key": ann})
        assert reply.status == 429
        assert int(reply.headers["retry-after"]) > 0
        assert "you have 2 documents on the server, and a client may have 2 (half of" in reply.json["error"]
        invalid = {"source": "en", "target": "xx", "api_key": ann}
        assert multipart(server, "/translate_file", b"x", invalid).status == 400
        others = {"source": "en", "target": "de", "api_key": ben}
        assert multipart(server, "/translate_file", ENGLISH.encode(), others).status == 200
        for handle in handles:
            assert client.translate_document_wait_until_done(handle).done
        with pytest.raises(deepl.DeepLException, match=r"[Nn]ot found"):
            other.translate_document_get_status(handles[0])
        assert client.get_usage().character.count == 2 * len(ENGLISH)
        assert other.get_usage().character.count == len(ENGLISH)
        client.translate_document_download(handles[0], io.BytesIO())
        while True:  # until it is removed
            try:
                assert client.translate_document_get_status(handles[1]).done
            except deepl.DeepLException as error:
                assert "Document not found" in str(error)
                break
        log = "".join(server.log)
        assert "/v2/document/{document_id}" in log
        assert not any(each in log for each in ("secret", "sleeps", handles[0].document_id))


@pytest.mark.slow
def test_without_the_extra_there_is_one_clear_line(bundle: Path) -> None:
    without = "import sys; sys.modules['markdown_it'] = None; import runpy; "
    program = f"{without}runpy.run_module('heedful', run_name='__main__', alter_sys=True)"
    with translation_server(f"en-de={bundle}", program=program) as server:
        reply = multipart(server, "/translate_file", b"x", {"source": "en", "target": "de"}, name="a.md")
        hint = f"Markdown needs markdown-it-py and mdit-py-plugins: {install_hint('documents')}"
        assert (reply.status, reply.json) == (400, {"error": hint})
        reply = multipart(server, "/translate_file", b"x", {"source": "en", "target": "de"})
        assert reply.status == 200
