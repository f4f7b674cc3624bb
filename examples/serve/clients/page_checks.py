"""Checks the page in headless Chromium, and takes its picture."""

import tempfile

from playwright.sync_api import expect, sync_playwright

from harness import ARGUMENTS, DATA, Checks, Server

page_checks = Checks()

FLAGS = [
    "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update",
    "--disable-sync",
]


def ask(page, text):
    page.get_by_label("Message", exact=True).fill(text)
    page.keyboard.press("Enter")


def answers(page):
    return page.locator("article.assistant")


@page_checks
def a_story_streams(page, _):
    page.get_by_role("button", name="Settings").click()
    page.get_by_label("Temperature").fill("0")
    page.get_by_role("button", name="Done").click()
    ask(page, "Tell me a very short story about a fox and a lantern")
    expect(answers(page).locator(".figures")).to_contain_text("tokens/s")
    expect(answers(page).locator(".figures")).to_contain_text("from the cache")
    expect(answers(page).locator(".text")).to_contain_text("Once there was a clever fox")
    expect(page.locator("#model")).to_have_text("storyteller")


@page_checks
def a_conversation_goes_on(page, _):
    ask(page, "What was the moral?")
    expect(answers(page).nth(1).locator(".figures")).to_contain_text("tokens/s")
    assert not answers(page).nth(1).locator(".figures").inner_text().split(" · ")[2].startswith("0 of")


@page_checks
def a_reload_keeps_the_conversation(page, _):
    before = answers(page).first.inner_text()
    page.reload()
    expect(answers(page)).to_have_count(2)
    assert answers(page).first.inner_text() == before
    if ARGUMENTS.picture:
        page.screenshot(path=ARGUMENTS.picture)


@page_checks
def escape_and_the_button_stop_an_answer(page, server):
    page.get_by_role("button", name="New chat").click()
    # The ends of the text are forbidden, so that the answer is long.
    page.route("**/v1/chat/completions", lambda route: route.continue_(
        post_data=route.request.post_data.replace('"stream":true', '"stream":true,"n":16,"logit_bias":{"4093":-100,"4095":-100}')
    ))
    for stop in [lambda: page.keyboard.press("Escape"), lambda: page.get_by_role("button", name="Stop").click()]:
        ask(page, "Tell me a story about a fox")
        expect(answers(page).last.locator(".text")).not_to_be_empty()
        stop()
        expect(answers(page).last.locator(".figures")).to_have_text("stopped")
        server.wait_for(lambda: server.metric("requests_admitted") == 0, "the end of the request", 5)
    page.unroute("**/v1/chat/completions")


@page_checks
def an_error_is_shown(page, _):
    page.get_by_role("button", name="New chat").click()
    ask(page, "fox " * 3000)
    expect(answers(page).locator(".error")).to_contain_text("context")
    page.get_by_role("button", name="New chat").click()


@page_checks
def everything_works_with_the_keyboard(page, _):
    page.get_by_label("Message", exact=True).focus()
    seen = set()
    for _ in range(8):
        page.keyboard.press("Tab")
        seen.add(page.evaluate("document.activeElement.id || document.activeElement.tagName"))
    assert {"new", "open-settings", "attach", "send", "MAIN"} <= seen, seen
    page.locator("#open-settings").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog", name="Settings")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog", name="Settings")).to_be_hidden()


@page_checks
def every_control_has_a_name(page, _):
    nameless = page.evaluate("""() => [...document.querySelectorAll('button, input, textarea')].filter(control =>
        !control.textContent.trim() && !control.labels?.length && !control.getAttribute('aria-label')).length""")
    assert nameless == 0, nameless


@page_checks
def dark_mode_has_contrast(page, _):
    def contrast():
        return page.evaluate("""() => {
            const luminance = color => {
                const [r, g, b] = color.match(/\\d+/g).map(part => part / 255)
                    .map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
                return 0.2126 * r + 0.7152 * g + 0.0722 * b;
            };
            const ratio = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
            const paper = luminance(getComputedStyle(document.body).backgroundColor);
            const of = selector => ratio(luminance(getComputedStyle(document.querySelector(selector)).color), paper);
            return [paper, of('body'), of('#model')];
        }""")

    for scheme, is_dark in [("light", False), ("dark", True)]:
        page.emulate_media(color_scheme=scheme)
        paper, text, faint = contrast()
        assert (paper < 0.2) == is_dark and text > 7 and faint > 4.5, (scheme, paper, text, faint)


@page_checks
def nothing_comes_from_other_hosts(page, server):
    hosts = set()
    page.on("request", lambda request: hosts.add(request.url.split("/")[2] if "//" in request.url else ""))
    page.reload()
    expect(page.locator("#model")).to_have_text("storyteller")
    assert hosts <= {server.url.split("/")[2], ""}, hosts


def an_image_is_sent(page, _):
    page.locator("#file").set_input_files(DATA / "seer" / "picture.png")
    expect(page.get_by_alt_text("image 1 to send")).to_be_visible()
    ask(page, "What is in the picture?")
    expect(answers(page).locator(".figures")).to_contain_text("tokens/s")
    expect(page.get_by_alt_text("attached image")).to_be_visible()
    page.reload()
    expect(page.get_by_alt_text("attached image")).to_be_visible()


def a_key_is_asked_for(page, _):
    expect(page.locator("#model")).to_contain_text("API key")
    page.get_by_role("button", name="Settings").click()
    page.get_by_label("API key").fill("secret")
    page.get_by_role("button", name="Done").click()
    expect(page.locator("#model")).to_have_text("storyteller")


def in_browser(title, checks, *arguments):
    """Runs checks with a server and a fresh browser."""
    with Server(*arguments) as server, sync_playwright() as playwright, tempfile.TemporaryDirectory() as profile:
        context = playwright.chromium.launch_persistent_context(
            profile, executable_path="/usr/bin/chromium", headless=True, chromium_sandbox=False, args=FLAGS,
            viewport={"width": 760, "height": 680},
        )
        page = context.pages[0]
        errors = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(server.url)
        result = checks.run(title, page, server)
        context.close()
        assert not errors, errors
        return result


def run():
    image, key = Checks(), Checks()
    image(an_image_is_sent)
    key(a_key_is_asked_for)
    return [
        in_browser("the page", page_checks),
        in_browser("the page with images", image, "--model", DATA / "seer" / "seer.gguf"),
        in_browser("the page with a key", key, "--api-key", "secret"),
    ]
