// The page: which conversation is shown, what is said in it, and what the buttons do. Every conversation may have one answer on its way, also while another is shown.
import { ApiError, get_json, stream_chat } from "./api.js";
import { copy_text, element } from "./markdown.js";
import { MessageView } from "./message.js";
import { start_live, count } from "./live.js";
import * as store from "./store.js";
import { chosen_model, open_settings, request_fields, set_models, start_settings } from "./settings.js";

const $ = id => document.getElementById(id);
const icon = name => {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.append(document.createElementNS("http://www.w3.org/2000/svg", "use"));
  svg.firstChild.setAttribute("href", `#i-${name}`);
  return svg;
};

let chats = store.load_chats();
let chat = null;                           // the one shown; it joins `chats` with its first message
let views = [];                            // of its messages
const answering = new Map();               // chat id -> AbortController

// ---- what is shown

function toast(text, action, then) {
  const node = $("toast");
  node.replaceChildren(text);
  if (action) node.append(element("button", { class: "quiet", type: "button", onclick: () => { node.hidden = true; then(); } }, action));
  node.hidden = false;
  clearTimeout(toast.timer);
  toast.timer = setTimeout(() => { node.hidden = true; }, 6000);
}

const at_end = () => $("scroll").scrollHeight - $("scroll").scrollTop - $("scroll").clientHeight < 48;
let follows = true;                        // the text as it grows, until the reader scrolls up
function to_end() {
  follows = true;
  $("scroll").scrollTop = $("scroll").scrollHeight;
}

function show_list() {
  const wanted = $("filter").value.trim().toLowerCase();
  const found = chats.filter(c => !wanted || c.title.toLowerCase().includes(wanted) || c.messages.some(m => m.content.toLowerCase().includes(wanted)));
  const nodes = [];
  let group = "";
  for (const c of found) {
    const days = Math.floor((new Date().setHours(24, 0, 0, 0) - c.updated) / 864e5);
    const now = days <= 0 ? "Today" : days === 1 ? "Yesterday" : days < 7 ? "This week" : new Date(c.updated).toLocaleDateString(undefined, { month: "long", year: "numeric" });
    if (now !== group) nodes.push(element("h3", {}, (group = now)));
    nodes.push(list_entry(c));
  }
  if (!nodes.length) nodes.push(element("p", { class: "hint" }, wanted ? "Nothing found." : "No conversations yet."));
  $("chat-list").replaceChildren(...nodes);
}

function list_entry(c) {
  const open = element("button", { class: "entry", type: "button", onclick: () => { show_chat(c); close_drawers(); } }, c.title || "Untitled");
  const more = element("button", { class: "icon", type: "button", "aria-label": `More for ${c.title}`, onclick: e => show_menu(e.currentTarget, c) }, icon("more"));
  return element("div", { class: "row" + (c.id === chat?.id ? " chosen" : "") + (answering.has(c.id) ? " busy" : ""), "data-chat": c.id }, open, more);
}

function show_menu(button, c) {
  document.querySelector(".menu")?.remove();
  const item = (name, then) => element("button", { type: "button", role: "menuitem", onclick: () => { menu.remove(); then(); } }, name);
  const file = c.title.replace(/[^\p{L}\p{N}]+/gu, "-").slice(0, 40) || "conversation";
  const menu = element("div", { class: "menu", role: "menu" }, item("Rename", () => rename(c)), item("Export as JSON", () => download(`${file}.json`, store.to_json([c]))),
    item("Export as Markdown", () => download(`${file}.md`, store.to_markdown(c))), item("Delete", () => remove(c)));
  button.closest(".row").append(menu);
  menu.firstChild.focus();
  const away = e => {
    if (e.type === "keydown" ? e.key !== "Escape" : menu.contains(e.target) || button.contains(e.target)) return;
    menu.remove();
    removeEventListener("pointerdown", away, true);
    removeEventListener("keydown", away, true);
  };
  addEventListener("pointerdown", away, true);
  addEventListener("keydown", away, true);
}

function rename(c) {
  const row = $("chat-list").querySelector(`[data-chat="${c.id}"]`);
  const field = element("input", { class: "rename", "aria-label": "New name", maxlength: 200 });
  field.value = c.title;
  const done = keep => {
    if (!field.isConnected) return;
    if (keep && field.value.trim()) c.title = field.value.trim(), keep_chat(c);
    show_list();
    show_title();
  };
  field.addEventListener("blur", () => done(true));
  field.addEventListener("keydown", e => { if (e.key === "Enter") done(true); if (e.key === "Escape") done(false); });
  row.replaceChildren(field);
  field.select();
}

function remove(c) {
  answering.get(c.id)?.abort();
  chats = chats.filter(other => other !== c);
  store.delete_chat(c.id);
  if (chat === c) show_chat(store.new_chat());
  show_list();
  toast(`“${c.title}” was deleted.`, "Undo", () => { chats.push(c); keep_chat(c); chats.sort((a, b) => b.updated - a.updated); show_list(); });
}

function download(name, content) {
  const link = element("a", { href: URL.createObjectURL(new Blob([content], { type: "application/octet-stream" })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

function keep_chat(c) {
  if (!store.save_chat(c)) toast("This browser has no room left: export and delete some conversations.");
}

function show_title() {
  $("title").textContent = chat.title || "New conversation";
  document.title = chat.title ? `${chat.title} · Ridgeline` : "Ridgeline";
}

function show_chat(c) {
  chat = c;
  history.replaceState(null, "", c.messages.length ? `#${c.id}` : location.pathname + location.search);
  views = [];
  $("messages").replaceChildren();
  show_messages();
  show_title();
  show_list();
  show_state();
  to_end();
}

const actions = {
  busy: () => answering.has(chat.id),
  edit: (i, content) => { chat.messages.length = i; send(content); },
  regenerate: i => { while (i > 0 && chat.messages[i - 1].role !== "user" && chat.messages[i - 1].role !== "tool") --i; chat.messages.length = i; answer(chat); },
  go_on: () => answer(chat, true),
  tool_results: (i, results) => { chat.messages.length = i + 1; chat.messages.push(...results); answer(chat); },
  copy: copy_text,
  icon,
};

function show_messages() {
  while (views.length > chat.messages.length) views.pop().node.remove();
  chat.messages.forEach((m, i) => {
    if (views[i]?.message !== m) {
      const view = new MessageView(m, i, actions);
      if (views[i]) views[i].node.replaceWith(view.node);
      else $("messages").append(view.node);
      views[i] = view;
    }
    views[i].update(answering.has(chat.id) && i === chat.messages.length - 1, i === chat.messages.length - 1);
  });
  $("messages").classList.toggle("empty", !chat.messages.length);
}

function show_state() {
  const busy = answering.has(chat.id);
  $("send").replaceChildren(icon(busy ? "stop" : "send"));
  $("send").title = busy ? "Stop" : "Send";
  $("send").setAttribute("aria-label", $("send").title);
  $("send").disabled = !busy && !$("input").value.trim();
  document.body.classList.toggle("busy", busy);
}

// ---- what is said

function send(content) {
  chat.messages.push({ role: "user", content });
  chat.title ||= store.title_of(chat.messages);
  if (!chats.includes(chat)) chats.unshift(chat);
  answer(chat);
}

// Messages as the API takes them: an answer that failed or was stopped before its first word is left out.
function as_request(c) {
  const messages = c.messages.filter(m => m.role !== "assistant" || m.content || m.tool_calls?.length).map(m => {
    const out = { role: m.role, content: m.content };
    if (m.tool_calls?.length) out.tool_calls = m.tool_calls;
    if (m.role === "tool") out.tool_call_id = m.tool_call_id;
    return out;
  });
  return c.system ? [{ role: "system", content: c.system }, ...messages] : messages;
}

async function answer(c, go_on = false) {
  if (answering.has(c.id)) return;
  const request = { model: chosen_model(), ...request_fields() };
  let message = c.messages.at(-1);
  if (go_on) Object.assign(request, { continue_final_message: true, add_generation_prompt: false });
  request.messages = as_request(c);
  if (go_on) delete message.finish, delete message.error, delete message.stats;
  else c.messages.push((message = { role: "assistant", content: "" }));
  const stop = new AbortController();
  answering.set(c.id, stop);
  c.updated = Date.now();
  chats.sort((a, b) => b.updated - a.updated);
  keep_chat(c);
  if (c === chat) show_chat_grown();
  show_list();

  let drawn = false, saved = performance.now();
  const changed = () => {
    if (performance.now() - saved > 1000) keep_chat(c), (saved = performance.now());
    if (drawn || c !== chat) return;
    drawn = true;
    requestAnimationFrame(() => {
      drawn = false;
      if (c !== chat) return;
      show_messages();
      if (follows) to_end();
    });
  };
  try {
    await stream_chat(request, store.load_key(), message, changed, stop.signal);
  } catch (e) {
    if (e.name === "AbortError") message.finish = "stopped";
    else message.error = e instanceof ApiError ? e.message : "The server cannot be reached, or the connection broke off.";
    if (e.status === 401) open_settings(chat, e.message);
  }
  answering.delete(c.id);
  c.updated = Date.now();
  keep_chat(c);
  if (c === chat) show_messages(), show_state(), follows && to_end();
  show_list();
}

function show_chat_grown() {
  history.replaceState(null, "", `#${chat.id}`);
  show_messages();
  show_title();
  show_state();
  to_end();
}

// ---- what the page is wired to

function submit() {
  if (answering.has(chat.id)) return answering.get(chat.id).abort();
  const content = $("input").value.trim();
  if (!content) return;
  $("input").value = "";
  resize_input();
  send(content);
}

function resize_input() {
  const input = $("input");
  input.style.height = "auto";
  input.style.height = Math.min(input.scrollHeight, innerHeight * 0.4) + "px";
  show_state();
}

const touch = matchMedia("(pointer: coarse)");
$("composer").addEventListener("submit", e => { e.preventDefault(); submit(); });
$("input").addEventListener("input", resize_input);
$("input").addEventListener("keydown", e => {
  if (e.key === "Enter" && !e.shiftKey && !e.isComposing && !touch.matches) {
    e.preventDefault();
    if (!answering.has(chat.id)) submit();
  }
});
addEventListener("keydown", e => { if (e.key === "Escape" && !document.querySelector("dialog[open], .menu")) answering.get(chat.id)?.abort(); });

$("scroll").addEventListener("scroll", () => { $("to-end").hidden = at_end(); if (at_end()) follows = true; });
for (const turn of ["wheel", "touchmove"]) $("scroll").addEventListener(turn, () => requestAnimationFrame(() => { follows = at_end(); }), { passive: true });
$("to-end").addEventListener("click", to_end);

// The panels: side by side where there is room (and then remembered), else drawers over the page.
const narrow = matchMedia("(max-width: 60rem)");
const panels = { chats: "no-chats", engine: "no-engine" };
function close_drawers() { document.body.classList.remove("drawer-chats", "drawer-engine"); }
function toggle_panel(name) {
  if (narrow.matches) {
    const open = document.body.classList.contains(`drawer-${name}`);
    close_drawers();
    if (!open) document.body.classList.add(`drawer-${name}`);
  } else {
    localStorage.setItem(`ridge.${panels[name]}`, document.body.classList.toggle(panels[name]) ? "1" : "");
  }
}
for (const name of Object.values(panels)) document.body.classList.toggle(name, localStorage.getItem(`ridge.${name}`) === "1");
$("show-chats").addEventListener("click", () => toggle_panel("chats"));
for (const id of ["show-engine", "hide-engine"]) $(id).addEventListener("click", () => toggle_panel("engine"));
$("shade").addEventListener("click", close_drawers);

const themes = ["", "light", "dark"];
function show_theme() { document.documentElement.dataset.theme = localStorage.getItem("ridge.theme") ?? ""; }
$("theme").addEventListener("click", () => {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const order = dark ? ["", "light", "dark"] : ["", "dark", "light"];
  const next = order[(order.indexOf(document.documentElement.dataset.theme) + 1) % themes.length];
  localStorage.setItem("ridge.theme", next);
  show_theme();
  toast({ "": "Light or dark as the system", light: "Light", dark: "Dark" }[next]);
});
show_theme();

$("new-chat").addEventListener("click", () => { show_chat(store.new_chat()); close_drawers(); if (!touch.matches) $("input").focus(); });
$("filter").addEventListener("input", show_list);
$("show-settings").addEventListener("click", () => open_settings(chat));
$("export-all").addEventListener("click", () => download(`ridgeline-${new Date().toISOString().slice(0, 10)}.json`, store.to_json(chats)));
$("import").addEventListener("click", () => $("import-file").click());
$("import-file").addEventListener("change", async e => {
  try {
    const found = store.from_json(await e.target.files[0].text());
    found.forEach(keep_chat);
    chats = [...found, ...chats].sort((a, b) => b.updated - a.updated);
    show_chat(found[0]);
    toast(found.length === 1 ? "One conversation imported." : `${found.length} conversations imported.`);
  } catch (fault) {
    toast(`Not imported: ${fault.message}`);
  }
  e.target.value = "";
});

// Another tab wrote: take its conversations, but not over an answer that comes in here.
store.changed_elsewhere(() => {
  const here = new Map(chats.map(c => [c.id, c]));
  chats = store.load_chats().map(c => (answering.has(c.id) ? here.get(c.id) : c));
  const same = chats.find(c => c.id === chat.id);
  if (same && same !== chat) show_chat(same);
  else show_list();
});
addEventListener("pagehide", () => { for (const id of answering.keys()) store.save_chat(chats.find(c => c.id === id)); });

start_settings(c => { if (c.messages.length) keep_chat(c); });
show_chat(chats.find(c => `#${c.id}` === location.hash) ?? store.new_chat());
resize_input();
if (!touch.matches) $("input").focus();

async function find_models() {
  try {
    set_models(((await get_json("v1/models", store.load_key())).data ?? []).map(m => m.id));
  } catch { /* the live figures say what is wrong */ }
}
find_models();
start_live($("plots"), $("facts"), store.load_key, (now, generated) => {
  $("status").textContent = "";
  if (!chosen_model()) find_models();
  $("model").textContent = [chosen_model() || now.model, generated > 0 ? `${count(generated)} tok/s` : ""].filter(Boolean).join(" · ");
}, e => {
  $("status").textContent = e.status === 401 ? "The server wants an API key: see Settings." : e instanceof ApiError ? `The server answers: ${e.message}` : "The server cannot be reached.";
});
