"""The page in a real Chromium: against scripted answers (attacks, tool calls, failures), and against `ridge serve` with a small model.

Usage: page_test.py PATH_OF_RIDGE FOLDER_FOR_PICTURES [unittest arguments]
"""
import glob
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
sys.path[:0] = [HERE, os.path.dirname(HERE)]
import browser  # noqa: E402
import scripted_server  # noqa: E402
from live_server import LiveServer  # noqa: E402

RIDGE, PICTURES = (os.path.abspath(p) for p in (sys.argv.pop(1), sys.argv.pop(1)))
WEB = os.path.join(SOURCE, "src", "server", "web")
MODEL = os.path.join(SOURCE, "models", "ridge-tiny")
SKIPPED = 77                                                     # what ctest takes for "skipped"


class PageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.driver = browser.Driver()

    @classmethod
    def tearDownClass(cls):
        cls.driver.quit()

    def open(self, url, **how):
        page = self.driver.browser(**how)
        self.addCleanup(page.quit)
        page.open(url)
        page.wait("the page is up", "document.querySelectorAll('.plot').length === 5")
        return page

    def ask(self, page, question, wait=True):
        page.type("#input", question)
        page.click("#send")
        if wait:
            self.answered(page)

    def answered(self, page, seconds=60):
        page.wait("the answer is complete", "!document.body.classList.contains('busy') && document.querySelectorAll('.message.assistant').length > 0", seconds)

    def picture(self, page, name):
        page.picture(os.path.join(PICTURES, name + ".png"))


class Scripted(PageTest):
    """Answers that a model would give only by chance."""

    def setUp(self):
        self.server = scripted_server.Server(WEB)
        self.addCleanup(self.server.close)

    def test_nothing_in_an_answer_runs_or_loads(self):
        page = self.open(self.server.url)
        self.ask(page, "attack")
        page.js("document.querySelectorAll('#messages a').forEach(a => a.dispatchEvent(new MouseEvent('mouseover', {bubbles: true})))")
        time.sleep(0.5)
        self.assertIsNone(page.js("window.owned ?? null"))
        self.assertEqual(page.count("#messages :is(script, img, iframe, style, object, embed, form, link)"), 0)
        links = page.js("[...document.querySelectorAll('#messages a')].map(a => a.protocol)")
        self.assertTrue(links)
        self.assertLessEqual(set(links), {"https:", "http:", "mailto:"})
        handlers = "[...document.querySelectorAll('#messages *')].filter(e => [...e.attributes].some(a => a.name.startsWith('on'))).length"
        self.assertEqual(page.js(handlers), 0)
        self.assertIn("<script>window.owned = 1</script>", page.text("#messages"))
        fetched = page.js("performance.getEntriesByType('resource').map(e => e.name)")
        self.assertEqual([u for u in fetched if not u.startswith(self.server.url)], [])
        self.assertEqual(page.console(), [])
        # Titles and stored conversations are text as well.
        self.ask(page, "<img src=x onerror=window.owned=20>")
        page.click("#new-chat")
        self.ask(page, "<img src=x onerror=window.owned=21>")
        page.reload()
        page.wait("the list is back", "document.querySelectorAll('.row').length === 2")
        self.assertIsNone(page.js("window.owned ?? null"))
        self.assertEqual(page.count("img"), 0)

    def test_markdown_becomes_what_it_means(self):
        page = self.open(self.server.url)
        self.ask(page, "markdown")
        inside = "document.querySelector('.message.assistant > .text').querySelectorAll(arguments[0]).length"
        for selector, n in {"strong": 2, "p > em": 2, "h3": 1, "ol > li": 3, "ol ul > li": 2, "td": 6, "td.right": 4, ".code pre code": 1, ".hl-word": 4, ".hl-comment": 2, "blockquote": 1, "li.task": 2, "del": 1,
                            "a[href='https://en.wikipedia.org/wiki/Roofline_model']": 1}.items():
            self.assertEqual(page.js(inside, selector), n, selector)
        shown = page.text(".message.assistant > .text")
        self.assertIn("snake_case_names, 2 * 3 * 4, and a_b.", shown)
        self.assertIn("20 tokens", page.text(".message.assistant footer"))
        self.assertIn("32 of 40 prompt tokens cached", page.text(".message.assistant footer"))
        self.picture(page, "markdown")

    def test_the_same_text_in_any_pieces_gives_the_same_nodes(self):
        page = self.open(self.server.url)
        same = page.js("""(() => { return import('./markdown.js').then(({show_markdown}) => {
            const text = arguments_text; const whole = document.createElement('div'), grown = document.createElement('div');
            show_markdown(whole, text);
            for (let i = 1; i <= text.length; ++i) show_markdown(grown, text.slice(0, i));
            return whole.innerHTML === grown.innerHTML; }); })()""".replace("arguments_text", json.dumps(scripted_server.MARKDOWN + scripted_server.ATTACK)))
        self.assertTrue(same)

    def test_deeply_nested_marks_cost_little(self):
        page = self.open(self.server.url)
        began = time.time()
        self.ask(page, "deep")
        self.assertLess(time.time() - began, 20)
        self.assertIn("deep", page.text(".message.assistant > .text"))

    def test_reasoning_is_folded_and_tool_calls_are_shown_and_answered(self):
        page = self.open(self.server.url)
        self.ask(page, "think")
        self.assertFalse(page.js("document.querySelector('.reasoning').open"))
        self.assertEqual(page.js("document.querySelector('.reasoning .text').textContent"), "First I reason. ")
        self.assertEqual(page.text(".message.assistant > .text"), "Then I answer.")
        self.ask(page, "tool")
        self.assertEqual(page.text(".call header"), "weather")
        self.assertIn('"place": "Oslo"', page.text(".call pre"))
        self.picture(page, "tool_call")
        page.type(".call textarea", "mild")
        page.click(".calls .plain")
        page.wait("the last answer", "[...document.querySelectorAll('.message.assistant > .text')].at(-1).innerText === 'It is mild in Oslo.'")
        sent = self.server.requests[-1]["messages"]
        self.assertEqual(sent[-1], {"role": "tool", "content": "mild", "tool_call_id": "call_1"})
        self.assertEqual(sent[-2]["tool_calls"][0]["function"], {"name": "weather", "arguments": '{"place": "Oslo"}'})

    def test_stop_keeps_what_was_said_and_the_server_learns_of_it(self):
        page = self.open(self.server.url)
        self.ask(page, "slow", wait=False)
        page.wait("some of the answer", "(document.querySelector('.message.assistant > .text')?.innerText ?? '').length > 40")
        page.click("#send")
        self.answered(page)
        said = page.text(".message.assistant > .text")
        self.assertLess(len(said), 5000)
        self.assertIn("Stopped", page.text(".note"))
        page.wait("the server noticed", lambda: self.server.n_gone == 1, 10)
        page.reload()
        page.wait("the answer is back", "document.querySelectorAll('.message.assistant').length === 1")
        self.assertEqual(page.text(".message.assistant > .text"), said)

    def test_reload_in_the_middle_of_an_answer_keeps_what_had_come(self):
        page = self.open(self.server.url)
        self.ask(page, "slow", wait=False)
        page.wait("some of the answer", "(document.querySelector('.message.assistant > .text')?.innerText ?? '').length > 40")
        page.reload()
        page.wait("part of it is back", "(document.querySelector('.message.assistant > .text')?.innerText ?? '').length > 20")

    def test_edit_and_regenerate_send_the_conversation_up_to_there(self):
        page = self.open(self.server.url)
        self.ask(page, "one")
        self.ask(page, "two")
        page.click(".message.assistant footer [title='Answer again']")
        self.answered(page)
        self.assertEqual([m["content"] for m in self.server.requests[-1]["messages"]], ["one"])
        self.assertEqual(page.count(".message"), 2)
        page.click(".message.user footer [title^='Edit']")
        page.type(".message.user textarea", "three", clear=True)
        page.click(".edit-buttons .plain")
        page.wait("the new answer", "document.querySelector('.message.assistant > .text')?.innerText === 'You said: three'")
        self.assertEqual([m["content"] for m in self.server.requests[-1]["messages"]], ["three"])
        page.click("#new-chat")
        self.ask(page, "short")
        page.click(".message.assistant footer [title='Go on']")
        page.wait("the rest", "document.querySelector('.message.assistant > .text')?.innerText === 'Once upon a time.'")

    def test_settings_reach_the_request(self):
        page = self.open(self.server.url)
        page.click("#show-settings")
        page.type("#system", "Be brief.")
        page.type("#set-temperature", "0.3")
        page.type("#set-max_tokens", "64")
        page.type("#extra", '{"top_logprobs": 2')
        self.assertIn("Not sent", page.text("#extra-fault"))
        page.type("#extra", ', "logprobs": true}')
        self.assertEqual(page.text("#extra-fault"), "")
        self.picture(page, "settings")
        page.type("#key", browser.KEYS["escape"])
        self.ask(page, "hello")
        request = self.server.requests[-1]
        self.assertEqual(request["messages"][0], {"role": "system", "content": "Be brief."})
        self.assertEqual({k: request.get(k) for k in ("temperature", "max_tokens", "top_logprobs", "logprobs", "stream", "model", "top_p")},
                         {"temperature": 0.3, "max_tokens": 64, "top_logprobs": 2, "logprobs": True, "stream": True, "model": "scripted", "top_p": None})
        page.reload()
        page.wait("the conversation is back", "document.querySelectorAll('.message').length === 2")
        page.click("#show-settings")
        self.assertEqual(page.js("document.getElementById('system').value + document.getElementById('set-temperature').value"), "Be brief.0.3")

    def test_one_of_several_models_can_be_chosen(self):
        self.server.models = ["scripted", "scripted-adapter"]
        page = self.open(self.server.url)
        page.click("#show-settings")
        page.wait("both are offered", "document.querySelectorAll('#set-model option').length === 2")
        page.js("(() => { const s = document.getElementById('set-model'); s.value = 'scripted-adapter'; s.dispatchEvent(new Event('change')); document.getElementById('settings').close(); })()")
        self.ask(page, "hello")
        self.assertEqual(self.server.requests[-1]["model"], "scripted-adapter")

    def test_failures_are_said_and_can_be_mended(self):
        page = self.open(self.server.url)
        self.ask(page, "refuse")
        self.assertEqual(page.text(".note.fault"), "temperature must be at least 0 <b>now</b>")
        page.click("#new-chat")
        self.ask(page, "break")
        self.assertEqual(page.text(".note.fault"), "the device failed")
        self.assertEqual(page.text(".message.assistant > .text"), "half an ans")
        page.click(".message.assistant footer [title='Answer again']")
        self.answered(page)
        self.assertEqual(len(self.server.requests[-1]["messages"]), 1)

    def test_a_server_with_a_key_is_asked_with_it(self):
        guarded = scripted_server.Server(WEB, api_key="open sesame")
        self.addCleanup(guarded.close)
        page = self.open(guarded.url)
        page.wait("it says so", "document.getElementById('status').innerText.includes('API key')")
        self.ask(page, "hello")
        page.wait("the settings open", "document.getElementById('settings').open")
        page.type("#key", "open sesame")
        page.js("document.getElementById('settings').close()")
        page.click(".message.assistant footer [title='Answer again']")
        page.wait("an answer", "document.querySelector('.message.assistant > .text').innerText === 'You said: hello'")
        self.assertIsNone(page.js("localStorage.getItem('ridge.key')"))

    def test_conversations_are_renamed_deleted_restored_exported_and_imported(self):
        page = self.open(self.server.url)
        with tempfile.TemporaryDirectory() as folder:
            page.accept_downloads(folder)
            self.ask(page, "first question")
            page.click("#new-chat")
            self.ask(page, "second question")
            rows = "[...document.querySelectorAll('.row .entry')].map(e => e.innerText)"
            self.assertEqual(page.js(rows), ["second question", "first question"])
            page.type("#filter", "first")
            self.assertEqual(page.js(rows), ["first question"])
            page.js("(() => { const f = document.getElementById('filter'); f.value = ''; f.dispatchEvent(new Event('input')); })()")

            def menu(item):
                page.click(".row.chosen .icon")
                page.click(f".menu button:nth-child({item})")

            menu(1)
            page.js("document.querySelector('.rename').value = ''")
            page.type(".rename", "Renamed" + browser.KEYS["enter"])
            self.assertEqual(page.js(rows), ["Renamed", "first question"])
            self.assertEqual(page.text("#title"), "Renamed")
            menu(3)
            path = page.wait("the Markdown file", lambda: glob.glob(os.path.join(folder, "*.md")))[0]
            with open(path) as f:
                self.assertIn("## You\n\nsecond question\n\n## Assistant\n\nYou said: second question", f.read())
            menu(4)
            self.assertEqual(page.js(rows), ["first question"])
            page.click("#toast button")
            self.assertEqual(page.js(rows), ["Renamed", "first question"])
            page.click("#export-all")
            path = page.wait("the JSON file", lambda: [p for p in glob.glob(os.path.join(folder, "*.json")) if os.path.getsize(p) > 10])[0]
            page.js("localStorage.clear()")
            page.open(self.server.url)
            page.wait("an empty list", "document.querySelectorAll('.row').length === 0")
            page.type("#import-file", path)
            page.wait("both are back", "document.querySelectorAll('.row').length === 2")
            broken = os.path.join(folder, "broken.json")
            with open(broken, "w") as f:
                json.dump({"chats": [{"messages": [{"role": "user", "content": {"a": 1}}, {"role": "wizard"}, None], "title": ["<b>"], "updated": "x"}, 7]}, f)
            page.type("#import-file", broken)
            page.wait("what is usable of it", "document.querySelectorAll('.row').length === 3")
            page.reload()
            page.wait("and it is still there", "document.querySelectorAll('.row').length === 3")
        self.assertEqual(page.console(), [])

    def test_plots_move(self):
        page = self.open(self.server.url)
        page.wait("a few seconds of figures", "Number(document.querySelector('[data-plot=pages]').dataset.points) >= 4", 20)
        path = "document.querySelector('[data-plot=requests] .line').getAttribute('d')"
        before = page.js(path)
        page.wait("the next second", f"{path} !== {json.dumps(before)}", 10)
        self.assertIn("of 512", page.text("[data-plot=pages] .unit"))
        self.assertEqual(page.text("[data-plot=prefix] strong"), "75")

    def test_telephone(self):
        page = self.open(self.server.url, width=390, height=780, telephone=True)
        self.ask(page, "markdown")
        self.assertEqual(page.js("document.documentElement.scrollWidth"), 390)
        self.picture(page, "telephone")
        self.assertFalse(page.js("document.getElementById('chats').getBoundingClientRect().right > 0"))
        page.click("#show-chats")
        page.wait("the drawer is open", "document.getElementById('chats').getBoundingClientRect().left === 0")
        self.picture(page, "telephone_chats")
        page.click(".row .entry")
        page.wait("it closes", "document.getElementById('chats').getBoundingClientRect().right <= 0")
        page.click("#show-engine")
        page.wait("the engine is shown", "Math.round(document.getElementById('engine').getBoundingClientRect().right) === 390")
        page.wait("figures", "Number(document.querySelector('[data-plot=pages]').dataset.points) >= 5", 20)
        self.picture(page, "telephone_engine")

    def test_dark(self):
        page = self.open(self.server.url, dark=True)
        self.ask(page, "markdown")
        page.wait("figures", "Number(document.querySelector('[data-plot=pages]').dataset.points) >= 8", 20)
        self.picture(page, "dark")
        background = page.js("getComputedStyle(document.body).backgroundColor")
        self.assertLess(max(map(int, re.findall(r"\d+", background)[:3])), 60)


@unittest.skipUnless(subprocess.run([RIDGE, "serve", "--help"], capture_output=True).returncode == 0, "this build has no `ridge serve`")
class Live(PageTest):
    """The same page as `ridge serve` hands it out, with a model behind it."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.server = LiveServer([RIDGE, "serve", MODEL]).wait()
        cls.url = cls.server.url + "/"

    @classmethod
    def tearDownClass(cls):
        cls.server.end()
        super().tearDownClass()

    def test_a_question_is_answered_in_a_stream_stopped_found_again_and_seen_in_the_plots(self):
        page = self.open(self.url)
        page.click("#show-settings")
        page.type("#set-max_tokens", "200")
        page.type("#extra", '{"ignore_eos": true}')
        page.js("document.getElementById('settings').close()")
        self.ask(page, "Once upon a time", wait=False)
        length = "document.querySelector('.message.assistant > .text')?.innerText.length ?? 0"
        seen = set()
        page.wait("the answer grows", lambda: (seen.add(page.js(length)), len(seen) >= 3)[1])
        self.answered(page)
        self.assertGreater(page.js(length), 0)
        self.assertRegex(page.text(".message.assistant footer"), r"200 tokens · [\d.]+ tok/s")

        page.js("(() => { document.getElementById('set-max_tokens').value = 100000; document.getElementById('set-max_tokens').dispatchEvent(new Event('change')); })()")
        page.js("(() => { const s = JSON.parse(localStorage.getItem('ridge.settings')); delete s.max_tokens; localStorage.setItem('ridge.settings', JSON.stringify(s)); })()")
        page.reload()
        page.wait("the conversation is found again", "document.querySelectorAll('.message').length === 2")
        self.assertEqual(page.text(".message.user .text"), "Once upon a time")

        self.ask(page, "And then?", wait=False)
        last = "([...document.querySelectorAll('.message.assistant > .text')][1]?.innerText.length ?? 0)"
        page.wait("the second answer begins", last + " > 5")
        page.click("#send")
        self.answered(page, 10)
        page.wait("the engine stopped as well", lambda: self.live()["running"] == 0, 10)

        page.wait("figures of a few seconds", "Number(document.querySelector('[data-plot=tokens]').dataset.points) >= 4", 20)
        line = "document.querySelector('[data-plot=tokens] .line').getAttribute('d')"
        before = page.js(line)
        self.ask(page, "More", wait=False)
        page.wait("the plot of tokens moves", f"{line} !== {json.dumps(before)} && Number(document.querySelector('[data-plot=tokens] .figure strong').innerText.replace(/\\s/g, '').replace('k', 'e3')) > 0", 20)
        self.picture(page, "live")
        page.click("#send")
        self.answered(page)
        self.assertEqual(page.console(), [])
        self.assertEqual(page.js("performance.getEntriesByType('resource').map(e => e.name)" f".filter(u => !u.startsWith('{self.url}'))"), [])

    def live(self):
        with urllib.request.urlopen(self.url + "live", timeout=5) as response:
            return json.load(response)


if __name__ == "__main__":
    if browser.missing():
        print("skipped: " + browser.missing())
        sys.exit(SKIPPED)
    unittest.main(verbosity=2)
