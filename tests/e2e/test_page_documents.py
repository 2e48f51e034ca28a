"""Documents on the page of `heedful serve`, in a real browser: dropped, watched, and given back."""

import base64
import io
from collections.abc import Iterator
from pathlib import Path

import docx
import pytest
from page_visits import PHONE, Visit, chromium, expect, playwright, visited
from tiny_bundle import PAIRS, save_memorised
from translation_server import TranslationServer, translation_server

from heedful.serving.access import make_key

__all__ = ["chromium"]  # a fixture: browser

ENGLISH, GERMAN = PAIRS[0]
DROP = """([name, content]) => {
  const bytes = Uint8Array.from(atob(content), (each) => each.charCodeAt(0));
  const dataTransfer = new DataTransfer();
  dataTransfer.items.add(new File([bytes], name));
  for (const kind of ["dragover", "drop"]) {
    document.body.dispatchEvent(new DragEvent(kind, { dataTransfer, bubbles: true, cancelable: true }));
  }
}"""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_memorised(tmp_path_factory.mktemp("own") / "tiny")


@pytest.fixture(scope="module", name="server")
def document_server(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TranslationServer]:
    file = tmp_path_factory.mktemp("glossaries") / "glossaries.json"
    with translation_server(f"en-de,de-en={bundle}", "--glossaries", file) as running:
        terms = {"name": "Cats", "source_lang": "en", "target_lang": "de", "entries": "cat\tKater"}
        assert running.post("/v2/glossaries", {**terms, "entries_format": "tsv"}).status == 201
        yield running


@pytest.fixture
def visit(browser: "playwright.Browser", server: TranslationServer) -> Iterator[Visit]:
    visit = visited(browser, server.url, viewport={"width": 1100, "height": 900})
    visit.page.locator("#to").select_option("de")
    yield visit
    visit.page.close()
    assert visit.complaints == []
    assert [each for each in visit.requests if not each.startswith((server.url, "blob:"))] == []


def word_document() -> bytes:
    written = docx.Document()
    written.add_paragraph(ENGLISH)
    stream = io.BytesIO()
    written.save(stream)
    return stream.getvalue()


def drop(visit: Visit, name: str, content: bytes) -> None:
    visit.page.evaluate(DROP, [name, base64.b64encode(content).decode()])


def says(visit: Visit, text: str) -> None:
    expect(visit.page.locator("#document-says")).to_contain_text(text)


def saved(visit: Visit) -> tuple[str, bytes]:
    """Return the name and the content of the file that the page offers."""
    with visit.page.expect_download() as downloading:
        visit.page.locator("#document-save").click()
    return downloading.value.suggested_filename, Path(downloading.value.path()).read_bytes()


def test_a_dropped_document_comes_back_translated(visit: Visit) -> None:
    drop(visit, "a report.docx", word_document())
    says(visit, "The document is translated.")
    expect(visit.page.locator("#document-name")).to_have_text("a report.docx")
    for _ in range(2):
        name, content = saved(visit)
        assert name == "a report_de.docx"
        assert [each.text for each in docx.Document(io.BytesIO(content)).paragraphs] == [GERMAN]
    visit.page.locator("#document-close").click()
    expect(visit.page.locator("#document")).to_be_hidden()


def test_a_document_is_chosen_from_the_keyboard_alone(visit: Visit, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(ENGLISH)
    # The browser is told first that its dialog will be answered, which takes a moment.
    with visit.page.expect_file_chooser() as choosing:
        visit.page.locator("#source").focus()
        visit.page.keyboard.press("Tab")
        expect(visit.page.locator("#choose")).to_be_focused()
        visit.page.keyboard.press("Enter")
    choosing.value.set_files(tmp_path / "a.txt")
    says(visit, "The document is translated.")
    save = visit.page.get_by_role("link", name="Save a_de.txt")
    save.focus()
    with visit.page.expect_download() as downloading:
        visit.page.keyboard.press("Enter")
    assert Path(downloading.value.path()).read_text(encoding="utf-8") == GERMAN
    visit.page.keyboard.press("Tab")
    visit.page.keyboard.press("Enter")
    expect(visit.page.locator("#choose")).to_be_focused()


TABLE = f'''id;title;"size; in cm";"the ""note"""
A-1;{ENGLISH};40;"he said; ""sleep"""
A-2;{ENGLISH};50;
'''


def choices(visit: Visit) -> dict[str, bool]:
    """Return the columns that the page asks about, and whether each is chosen."""
    expect(visit.page.locator("#document-columns")).to_be_visible()
    return {
        label.locator(".column").inner_text(): label.locator("input").is_checked()
        for label in visit.page.locator("#document-choices label").all()
    }


def test_the_columns_of_a_dropped_table_are_chosen_and_the_others_stay(visit: Visit) -> None:
    drop(visit, "a.csv", b"\xef\xbb\xbf" + TABLE.encode())
    says(visit, "Which columns hold text?")
    assert choices(visit) == {"id": False, "title": True, "size; in cm": False, 'the "note"': True}
    assert visit.page.get_by_role("group", name="Columns to translate").is_visible()
    visit.page.get_by_label('the "note"').uncheck()
    visit.page.get_by_role("button", name="Translate", exact=True).click()
    says(visit, "The document is translated.")
    expect(visit.page.locator("#document-columns")).to_be_hidden()
    name, content = saved(visit)
    assert (name, content.decode("utf-8-sig")) == ("a_de.csv", TABLE.replace(ENGLISH, GERMAN))


def test_a_table_is_translated_from_the_keyboard_alone(visit: Visit) -> None:
    drop(visit, "a.tsv", f"id,a\t\t\tx\n1\t{ENGLISH}\t{ENGLISH}\tEUR\n".encode("utf-16"))
    assert choices(visit) == {"id,a": False, "Column 2": True, "Column 3": True, "x": False}
    expect(visit.page.get_by_label("id,a")).to_be_focused()
    for _ in range(2):
        visit.page.keyboard.press("Tab")
    visit.page.keyboard.press("Space")  # the third
    visit.page.keyboard.press("Enter")
    says(visit, "The document is translated.")
    expect(visit.page.locator("#document-close")).to_be_focused()
    assert saved(visit)[1].decode("utf-16") == f"id,a\t\t\tx\n1\t{GERMAN}\t{ENGLISH}\tEUR\n"


def test_a_table_without_a_chosen_column_is_not_sent(visit: Visit) -> None:
    drop(visit, "a.csv", b"title,price\nChair,3\nTable,4\n")
    assert choices(visit) == {"title": True, "price": False}  # single words, where no column has more
    visit.page.get_by_label("title").uncheck()
    visit.page.get_by_role("button", name="Translate", exact=True).click()
    says(visit, "Choose at least one column.")
    assert not [each for each in visit.requests if "/v2/document" in each]
    drop(visit, "a.csv", b"")
    says(visit, "The table is empty, or cannot be read.")
    expect(visit.page.locator("#document-columns")).to_be_hidden()
    drop(visit, "a.txt", ENGLISH.encode())  # a table that was dropped before changes nothing
    says(visit, "The document is translated.")
    assert saved(visit)[1].decode() == GERMAN


def test_the_time_that_is_left_is_shown(visit: Visit) -> None:
    states = iter(
        [
            {"status": "queued"},
            {"status": "translating"},
            {"status": "translating", "seconds_remaining": 600},
            {"status": "translating", "seconds_remaining": 1},
        ]
    )

    def answer(route: "playwright.Route") -> None:
        state = next(states, None)
        if state is None:
            return route.continue_()
        return route.fulfill(json={"document_id": "A", **state})

    visit.page.route("**/v2/document/*", answer)
    drop(visit, "a.txt", ENGLISH.encode())
    says(visit, "Waiting for other documents")
    says(visit, "Translating …")
    expect(visit.page.locator("#document-bar")).not_to_have_attribute("value", "0")
    says(visit, "Translating: about 10 minutes left")
    share = visit.evaluate("() => document.getElementById('document-bar').value")
    assert isinstance(share, float)
    assert 0 < share < 1
    says(visit, "Translating: about 1 second left")
    says(visit, "The document is translated.")
    expect(visit.page.locator("#document-bar")).to_be_hidden()


def test_a_chosen_glossary_is_used_in_documents_and_in_texts(visit: Visit) -> None:
    expect(visit.page.locator("#terms")).to_be_visible()
    drop(visit, "a.txt", ENGLISH.encode())
    says(visit, "The document is translated.")
    assert saved(visit)[1].decode() == GERMAN
    visit.page.get_by_label("Glossary").select_option("Cats")
    drop(visit, "a.txt", ENGLISH.encode())
    says(visit, "The document is translated.")
    assert "Kater" in saved(visit)[1].decode()
    visit.page.locator("#source").fill(ENGLISH)
    expect(visit.page.locator("#output")).to_contain_text("Kater")
    expect(visit.page.locator("#beyond")).to_have_text("With a glossary, no attention is shown.")
    visit.page.get_by_label("Glossary").select_option("None")
    visit.shows(GERMAN)
    expect(visit.page.locator("#beyond")).to_be_hidden()
    visit.page.locator("#from").select_option("de")
    expect(visit.page.locator("#terms")).to_be_hidden()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.pdf", b"%PDF", "This format is not translated. Choose a document that ends in .csv, .docm"),
        (
            "a.txt",
            bytes(11 * 2**20),
            "The document is too large: 11.0 MiB, and at most 10.0 MiB are allowed.",
        ),
        ("a.docx", b"no zip", "a.docx: damaged, or not a docx file"),
    ],
)
def test_what_goes_wrong_is_said_in_words(visit: Visit, name: str, content: bytes, message: str) -> None:
    drop(visit, name, content)
    says(visit, message)
    expect(visit.page.locator("#document-again")).to_be_hidden()
    expect(visit.page.locator("#document-bar")).to_be_hidden()
    drop(visit, "a.txt", ENGLISH.encode())
    says(visit, "The document is translated.")


def test_a_document_that_the_server_has_lost_is_sent_again(visit: Visit) -> None:
    visit.page.route(
        "**/v2/document/*",
        lambda route: route.fulfill(status=404, json={"message": "Document not found"}),
        times=1,
    )
    drop(visit, "a.txt", ENGLISH.encode())
    says(visit, "The server does not have this document any more. Send it again.")
    visit.page.locator("#document-again").click()
    says(visit, "The document is translated.")
    visit.complaints.clear()  # the browser's own line on the status


def test_a_server_with_keys_asks_for_one(browser: "playwright.Browser", bundle: Path, tmp_path: Path) -> None:
    key = make_key(tmp_path / "keys.json", "ann")
    with translation_server(f"en-de={bundle}", "--keys", tmp_path / "keys.json") as own:
        visit = visited(browser, own.url)
        drop(visit, "a.txt", ENGLISH.encode())
        says(visit, "An API key is required")
        visit.page.get_by_label("API key").fill(key)
        visit.page.keyboard.press("Tab")
        visit.page.locator("#document-again").click()
        says(visit, "The document is translated.")
        visit.page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_in_documents_that_are_done_failed_or_need_columns(
    browser: "playwright.Browser", server: TranslationServer, scheme: str
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed").Axe()
    visit = visited(browser, server.url, color_scheme=scheme, bypass_csp=True, viewport=PHONE)
    wide = ",".join(f"the long name of column {n}" for n in range(60))
    for name, content, message in (
        ("a.txt", ENGLISH, "The document is translated."),
        ("a.pdf", ENGLISH, "This format"),
        ("a.csv", TABLE, "Which columns"),
        ("wide.csv", wide, "Which columns"),
    ):
        drop(visit, name, content.encode())
        says(visit, message)
        found = axe.run(visit.page).response["violations"]
        assert [(each["id"], [node["html"] for node in each["nodes"]]) for each in found] == []
        assert visit.evaluate("() => document.documentElement.scrollWidth") == PHONE["width"]
    visit.page.close()
