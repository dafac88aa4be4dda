"""The explorer's page in a real browser: what people do with it, with a mouse, a keyboard and on a phone."""

import re
import shutil
import sys

import pytest
from explorers import Explorer, chromium, two_runs

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="ends processes by /proc"),
    pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium"),
]
sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
expect = sync_api.expect
PATIENCE = 30_000  # milliseconds


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return two_runs(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def browser():
    expect.set_options(timeout=PATIENCE)
    with sync_api.sync_playwright() as playwright:
        browser = chromium(playwright)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def explorer(runs):
    with Explorer(runs) as explorer:
        yield explorer


@pytest.fixture
def page(browser, explorer):
    """Lend the page with its map; nothing on it may fail."""
    with browser.new_context(viewport={"width": 1280, "height": 900}) as context:
        page, failures = context.new_page(), []
        page.on("pageerror", lambda error: failures.append(str(error)))
        page.on("console", lambda message: failures.append(message.text) if message.type == "error" else None)
        page.goto(f"{explorer.url}?token={explorer.token}")
        expect(page.locator("#axes")).to_contain_text("48 individuals")
        yield page
        assert [each for each in failures if "the server responded with a status of 404" not in each] == []


def _shown(page):
    return page.locator("#shown")


def test_a_click_on_the_map_plays_an_individual(page):
    box = page.locator("#points").bounding_box()
    for step in range(1, 40):  # across the middle of the map, until a point is hit
        page.mouse.click(box["x"] + box["width"] * step / 40, box["y"] + box["height"] / 2)
        if page.locator("#shown .card").count():
            break
    expect(_shown(page)).to_contain_text("the same return and length")
    expect(_shown(page).locator("video")).to_have_js_property("readyState", 4)
    expect(_shown(page).locator("code")).to_contain_text("pyes replay")


def test_form_best_pins_and_policy(page, tmp_path):
    page.fill("#go_generation", "4")
    page.fill("#go_member", "7")
    page.get_by_role("button", name="play").click()
    expect(_shown(page)).to_contain_text("generation 4, member 7")
    expect(_shown(page)).to_contain_text("the same return and length")
    page.get_by_role("button", name="pin", exact=True).click()
    page.get_by_role("button", name="best").click()
    expect(_shown(page)).to_contain_text(re.compile(r"generation 5, member \d"))
    expect(_shown(page)).to_contain_text("the same return and length")
    page.get_by_role("button", name="pin", exact=True).click()
    expect(page.locator("#pins .card")).to_have_count(2)
    page.get_by_role("button", name="unpin").first.click()
    expect(page.locator("#pins .card")).to_have_count(1)
    with page.expect_download() as download:
        _shown(page).get_by_role("link", name="policy").click()
    assert download.value.suggested_filename.endswith(".zip")
    page.fill("#go_member", "8")
    page.get_by_role("button", name="play").click()
    expect(_shown(page)).to_contain_text("member: got 8, expected 0 to 7")


def test_keys_slider_and_colors(page):
    expect(page.locator("#generation")).to_have_text("5")
    page.locator("h1").click()
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#generation")).to_have_text("4")
    page.keyboard.press("b")
    expect(_shown(page)).to_contain_text("generation 4")
    before = _shown(page).locator("strong").text_content()
    page.keyboard.press("ArrowDown")
    expect(_shown(page).locator("strong")).not_to_have_text(before)
    page.select_option("#color", "generation")
    expect(page.locator("#most")).to_have_text("5")
    page.keyboard.press("Tab")
    page.mouse.wheel(0, -300)


def test_curves_configuration_and_another_run(page):
    expect(page.locator(".chart")).to_have_count(7)
    page.select_option("#x", "generation")
    expect(page.locator(".chart .u-legend").first).to_contain_text("generation")
    page.get_by_text("Configuration").click()
    expect(page.locator("#differs")).to_contain_text("seed")
    expect(page.locator("#settings .differs")).to_have_count(1)
    page.select_option("#run", "1")
    expect(page.locator("#axes")).to_contain_text("48 individuals")
    expect(page.locator(".chart")).to_have_count(7)


def test_a_phone_in_the_dark_shows_everything_in_one_column(browser, explorer):
    options = {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark", "has_touch": True}
    with browser.new_context(**options) as context:
        page = context.new_page()
        page.goto(f"{explorer.url}?token={explorer.token}")
        expect(page.locator("#axes")).to_contain_text("48 individuals")
        assert page.locator("body").bounding_box()["width"] <= 390
        assert page.locator("#individual").bounding_box()["y"] > page.locator("#points").bounding_box()["y"]


def test_the_page_says_that_the_run_or_the_explorer_is_gone(browser, runs, tmp_path):
    run = shutil.copytree(runs / "seed-1", tmp_path / "run")
    with Explorer(run) as explorer, browser.new_context() as context:
        page = context.new_page()
        page.goto(f"{explorer.url}?token={explorer.token}")
        expect(page.locator("#axes")).to_contain_text("48 individuals")
        shutil.rmtree(run)
        expect(page.get_by_role("alert")).to_contain_text("is gone")
        explorer.end()
        expect(page.get_by_role("alert")).to_contain_text("pyes explore has ended")
