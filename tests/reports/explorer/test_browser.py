"""The explorer's page in a real browser: what people do with it, with a mouse, a keyboard and on a phone."""

import re
import shutil
import sys

import pytest
from explorers import Explorer, chromium, two_runs

import pyes

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


def _opened(context, explorer):
    """Return the page in a new tab, once its map is there."""
    page = context.new_page()
    page.goto(f"{explorer.url}?token={explorer.token}")
    expect(page.locator("#axes")).to_contain_text("48 individuals")
    return page


def _shown(page):
    return page.locator("#shown")


def _chart(page, title):
    return page.locator(".chart").filter(has=page.get_by_role("heading", name=title))


def _hover(page, title, share):
    """Move the mouse to a share of a chart's width; return its legend."""
    over = _chart(page, title).locator(".u-over")
    over.scroll_into_view_if_needed()
    box = over.bounding_box()
    page.mouse.move(box["x"] + box["width"] * share, box["y"] + box["height"] / 2)
    return _chart(page, title).locator(".u-legend")


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
    expect(_shown(page)).to_contain_text("the same return and length")
    page.keyboard.press("p")  # the choice has not kept the keys
    expect(page.locator("#pins .card")).to_have_count(1)
    page.locator("#slider").focus()
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#generation")).to_have_text("3")
    page.keyboard.press("b")
    expect(_shown(page)).to_contain_text("generation 3")
    page.keyboard.press("Tab")
    page.mouse.wheel(0, -300)


def test_the_map_comes_back_with_the_graphics_card(page):
    canvas = page.locator("#points")
    before = canvas.screenshot()
    page.evaluate(
        """() => new Promise((done) => {
            const canvas = document.getElementById('points');
            const lose = canvas.getContext('webgl').getExtension('WEBGL_lose_context');
            canvas.addEventListener('webglcontextlost', () => setTimeout(() => lose.restoreContext(), 50));
            const drawn = () => requestAnimationFrame(() => requestAnimationFrame(done));
            canvas.addEventListener('webglcontextrestored', drawn);
            lose.loseContext();
        })"""
    )
    assert canvas.screenshot() == before


def test_curves_configuration_and_another_run(page):
    expect(page.locator(".chart")).to_have_count(7)
    legend = _hover(page, "return of the center", 0.5)  # between an evaluation of one run and that of another
    expect(legend).to_contain_text("timesteps")
    expect(legend).not_to_contain_text("\N{EN DASH}")
    page.select_option("#x", "generation")
    for title in ("return of the center", "returns of the population"):
        expect(_chart(page, title).locator(".u-legend")).to_contain_text("generation")  # each is drawn anew by itself
        expect(_hover(page, title, 0.999).locator(".u-value").first).to_have_text("6")  # the last evaluation's center
    page.get_by_text("Configuration").click()
    expect(page.locator("#differs")).to_contain_text("seed")
    expect(page.locator("#settings .differs")).to_have_count(1)
    expect(page.locator("#settings")).to_contain_text("task.env_kwargs{}")
    page.select_option("#run", "1")
    expect(page.locator("#axes")).to_contain_text("48 individuals")
    expect(page.locator(".chart")).to_have_count(7)


def test_a_zoom_stays_while_a_chart_grows(page):
    title = "distribution of returns"
    _hover(page, title, 0)
    page.mouse.down()
    _hover(page, title, 0.5)
    page.mouse.up()
    last = _hover(page, title, 0.999).locator(".u-value").first
    expect(last).to_have_text("2")
    page.evaluate("""async () => {
        const { drawDistribution } = await import('/static/charts.js');
        const generation = [0, 1, 2, 3, 4, 5, 6];
        drawDistribution(document.getElementById('grid'), { generation, return: generation });
    }""")
    _hover(page, title, 0.5)
    _hover(page, title, 0.999)
    expect(last).to_have_text("2")
    _chart(page, title).locator(".u-over").dblclick()
    _hover(page, title, 0.999)
    expect(last).to_have_text("6")


DRAWN = """async () => {
    const { PlaneMap } = await import('/static/map.js');
    const canvas = document.createElement('canvas');
    document.getElementById('plane').prepend(canvas);
    const map = new PlaneMap(canvas, () => {});
    const columns = (...x) => ({
        x: Float32Array.from(x), y: new Float32Array(x.length), path_x: new Float32Array(10001),
        path_y: new Float32Array(10001), generation: new Float32Array(x.length),
        return: Float32Array.from(x, (_, i) => i),
    });
    const at = (index) => map.pixel(...map.placeOf(index))[0] / canvas.clientWidth;
    const said = {};
    map.show(columns(-1, 1), true);
    map.show(columns(-1, 1, 9), false);
    said.whole = [at(0), at(2)];
    map.zoomAt(0, 0, 3);
    const before = at(1);
    map.show(columns(-1, 1, 9, 20), false);
    said.moved = Math.abs(at(1) - before);
    map.whole();
    said.again = [at(0), at(3)];
    map.color('return');
    const line = map.shapes.line;
    let lines = 0;
    map.shapes.line = () => lines++;
    map.drawNow(0);
    map.shapes.line = line;
    said.lines = lines;
    map.path = null; // points alone
    map.drawNow(0);
    const { gl } = map, pixels = new Uint8Array(4 * canvas.width * canvas.height);
    gl.readPixels(0, 0, canvas.width, canvas.height, gl.RGBA, gl.UNSIGNED_BYTE, pixels);
    said.colors = [0, 3].map((index) => {
        const [px, py] = map.pixel(...map.placeOf(index)), row = Math.round(canvas.height - py);
        return Array.from({ length: 11 }, (_, i) => 4 * (row * canvas.width + Math.round(px) - 5 + i))
            .map((place) => [...pixels.subarray(place, place + 4)]).filter((color) => color[3]);
    });
    said.back = getComputedStyle(canvas.parentElement).backgroundColor.match(/[0-9]+/g).map(Number);
    canvas.remove();
    return said;
}"""


def _contrast(color, other):
    """Return the contrast ratio of two colors as WCAG defines it."""

    def luminance(color):
        shares = [
            (value / 255 / 12.92 if value <= 10 else ((value / 255 + 0.055) / 1.055) ** 2.4) for value in color[:3]
        ]
        return sum(share * weight for share, weight in zip(shares, (0.2126, 0.7152, 0.0722), strict=True))

    darker, brighter = sorted((luminance(color), luminance(other)))
    return (brighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_the_map_shows_all_of_a_run_that_grows_in_colors_that_are_seen(browser, explorer, mode):
    with browser.new_context(color_scheme=mode) as context:
        page = _opened(context, explorer)
        said = page.evaluate(DRAWN)
    assert all(0 <= place <= 1 for place in said["whole"] + said["again"])
    assert said["moved"] < 1e-6  # what the user looks at
    assert said["lines"] <= 2 * 2001 + 20
    for colors in said["colors"]:  # the least and the greatest return
        assert max(_contrast(color, said["back"]) for color in colors) > 3


def test_a_phone_in_the_dark_shows_everything_in_one_column(browser, explorer):
    options = {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark", "has_touch": True}
    with browser.new_context(**options) as context:
        page = _opened(context, explorer)
        assert page.locator("body").bounding_box()["width"] <= 390
        assert page.locator("#individual").bounding_box()["y"] > page.locator("#points").bounding_box()["y"]


def test_an_individual_that_is_not_there_yet_is_not_marked(browser, runs, tmp_path):
    run = shutil.copytree(runs / "seed-1", tmp_path / "run")
    with Explorer(run) as explorer, browser.new_context() as context:
        page = _opened(context, explorer)
        page.evaluate("""async () => {
            const { PlaneMap } = await import('/static/map.js');
            PlaneMap.prototype.select = (index) => { document.body.dataset.marked = index; };
        }""")
        page.fill("#go_generation", "99")
        page.get_by_role("button", name="play").click()
        expect(_shown(page)).to_contain_text("generation: got 99")
        pyes.train({"resume": str(run), "generations": 7}, display=False)
        expect(page.locator("#axes")).to_contain_text("56 individuals")
        expect(page.locator("body")).to_have_attribute("data-marked", "undefined")


def test_the_state_is_told_while_a_map_is_made(browser, explorer):
    with browser.new_context() as context:
        page = context.new_page()
        page.route("**/points?*", lambda route: None)  # has no end
        page.goto(f"{explorer.url}?token={explorer.token}")
        expect(page.locator("#wait")).to_contain_text("rebuilding")
        for _ in range(2):
            with page.expect_request("**/api/runs?*", timeout=PATIENCE):
                pass


def test_a_run_that_cannot_be_read_leaves_nothing_of_another_one(browser, runs, tmp_path):
    shutil.copytree(runs, tmp_path, dirs_exist_ok=True)
    journal, metrics, nodes = (tmp_path / "seed-2" / name for name in ("journal.bin", "metrics.csv", "nodes.csv"))
    rows = metrics.read_bytes()
    with Explorer(tmp_path) as explorer, browser.new_context() as context:
        page = _opened(context, explorer)
        expect(page.locator("#left_out")).to_be_empty()
        metrics.write_bytes(b"\xff\xfe\0broken")  # not of the run that is shown
        journal.write_bytes(b"broken")
        expect(page.locator("#left_out")).to_contain_text("Left out: cannot read")
        page.select_option("#run", "1")
        expect(page.locator("#wait")).to_contain_text("journal.bin")
        for empty in ("#axes", "#generation", "#settings", "#log"):
            expect(page.locator(empty)).to_be_empty()
        expect(page.locator("#scale")).to_be_hidden()
        expect(page.get_by_role("alert")).to_contain_text("metrics.csv")
        nodes.write_bytes(b"\xff\xfe\0broken")
        metrics.write_bytes(rows)
        expect(page.get_by_role("alert")).to_contain_text("nodes.csv")
        with page.expect_request("**/api/runs/1?*", timeout=PATIENCE), page.expect_request("**/api/runs?*"):
            pass
        assert "nodes.csv" in page.locator("#problem").text_content()
        nodes.unlink()
        expect(page.get_by_role("alert")).to_be_hidden()
        expect(page.locator("#settings")).to_contain_text("CartPole-v1")


def test_the_page_says_that_the_run_or_the_explorer_is_gone(browser, runs, tmp_path):
    run = shutil.copytree(runs / "seed-1", tmp_path / "run")
    with Explorer(run) as explorer, browser.new_context() as context:
        page = _opened(context, explorer)
        shutil.rmtree(run)
        expect(page.get_by_role("alert")).to_contain_text("is gone")
        explorer.end()
        expect(page.get_by_role("alert")).to_contain_text("pyes explore has ended")
