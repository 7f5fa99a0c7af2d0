// Conversations in the browser's storage, one entry each, so that saving one does not write all. What is read (storage, imports) is checked field by field: a page of
// an older version, or a file of anybody's, may have written it.
//   { id, title, created, updated, system, messages: [{ role, content, reasoning?, tool_calls?, tool_call_id?, finish?, error?, stats? }] }

const kPrefix = "ridge.chat.", kSettings = "ridge.settings", kKey = "ridge.key";
const kRoles = new Set(["user", "assistant", "tool"]);

const text = (value, most = 5e6) => (typeof value === "string" ? value.slice(0, most) : "");
const number = value => (Number.isFinite(value) ? value : null);

function clean_message(m) {
  if (!m || !kRoles.has(m.role)) return null;
  const out = { role: m.role, content: text(m.content) };
  if (m.reasoning ?? m.reasoning_content) out.reasoning = text(m.reasoning ?? m.reasoning_content);
  if (Array.isArray(m.tool_calls) && m.tool_calls.length)
    out.tool_calls = m.tool_calls.filter(c => c?.function).slice(0, 128).map(c => ({ id: text(c.id, 200), type: "function", function: { name: text(c.function.name, 200), arguments: text(c.function.arguments) } }));
  if (m.role === "tool") out.tool_call_id = text(m.tool_call_id, 200);
  if (m.finish) out.finish = text(m.finish, 40);
  if (m.error) out.error = text(m.error, 2000);
  if (m.stats) out.stats = Object.fromEntries(["first_ms", "n_tokens", "tokens_per_s", "n_prompt", "n_cached"].map(k => [k, number(m.stats[k])]));
  return out;
}

export function clean_chat(c) {
  if (!c || !Array.isArray(c.messages)) return null;
  const messages = c.messages.map(clean_message).filter(Boolean);
  const system = text(c.system) || text(c.messages.find(m => m?.role === "system")?.content);
  const now = Date.now();
  return { id: text(c.id, 64) || new_id(), title: text(c.title, 200) || title_of(messages), created: number(c.created) ?? now, updated: number(c.updated) ?? now, system, messages };
}

export const new_id = () => Array.from(crypto.getRandomValues(new Uint8Array(8)), b => b.toString(16).padStart(2, "0")).join("");
export const new_chat = () => ({ id: new_id(), title: "", created: Date.now(), updated: Date.now(), system: "", messages: [] });

export function title_of(messages) {
  const first = messages.find(m => m.role === "user")?.content.trim().split("\n")[0] ?? "";
  return first.length > 60 ? first.slice(0, 59).trimEnd() + "…" : first;
}

export function load_chats() {
  const chats = [];
  for (let i = 0; i < localStorage.length; ++i) {
    const key = localStorage.key(i);
    if (!key.startsWith(kPrefix)) continue;
    const chat = load_chat(key.slice(kPrefix.length));
    if (chat) chats.push(chat);
  }
  return chats.sort((a, b) => b.updated - a.updated);
}

export function load_chat(id) {
  try {
    const chat = clean_chat(JSON.parse(localStorage.getItem(kPrefix + id)));
    return chat && { ...chat, id };
  } catch {
    return null;
  }
}

// False when the browser has no room left (or keeps nothing in this mode).
export function save_chat(chat) {
  try {
    localStorage.setItem(kPrefix + chat.id, JSON.stringify(chat));
    return true;
  } catch {
    return false;
  }
}

export const delete_chat = id => localStorage.removeItem(kPrefix + id);
export const changed_elsewhere = then => addEventListener("storage", e => { if (e.key === null || e.key.startsWith(kPrefix)) then(); });

export function load_settings() {
  try {
    const settings = JSON.parse(localStorage.getItem(kSettings));
    return settings && typeof settings === "object" && !Array.isArray(settings) ? settings : {};
  } catch {
    return {};
  }
}
export function save_settings(settings) {
  try { localStorage.setItem(kSettings, JSON.stringify(settings)); } catch { /* kept for this visit alone */ }
}

// The key stays with the tab unless it is to be remembered.
export const load_key = () => sessionStorage.getItem(kKey) ?? localStorage.getItem(kKey) ?? "";
export const key_is_remembered = () => localStorage.getItem(kKey) !== null;
export function save_key(key, remember) {
  localStorage.removeItem(kKey);
  sessionStorage.removeItem(kKey);
  if (key) (remember ? localStorage : sessionStorage).setItem(kKey, key);
}

export const to_json = chats => JSON.stringify({ ridgeline: 1, chats }, null, 1);

export function to_markdown(chat) {
  const parts = [`# ${chat.title || "Conversation"}`];
  if (chat.system) parts.push(`**System**\n\n${chat.system}`);
  for (const m of chat.messages) {
    const who = { user: "You", assistant: "Assistant", tool: "Tool result" }[m.role];
    const thought = m.reasoning ? `<details><summary>Reasoning</summary>\n\n${m.reasoning}\n\n</details>\n\n` : "";
    const calls = (m.tool_calls ?? []).map(c => "\n\n```json\n" + JSON.stringify({ name: c.function.name, arguments: c.function.arguments }, null, 1) + "\n```").join("");
    parts.push(`## ${who}\n\n${thought}${m.content}${calls}`);
  }
  return parts.join("\n\n") + "\n";
}

// Chats of a file that to_json wrote: all of them, one of them, or bare messages as the API has them. Throws when it is none of these.
export function from_json(content) {
  const value = JSON.parse(content);
  const found = Array.isArray(value?.chats) ? value.chats : Array.isArray(value) ? (value[0]?.role ? [{ messages: value }] : value) : [value];
  const chats = found.map(clean_chat).filter(c => c && c.messages.length);
  if (!chats.length) throw new Error("no conversation in this file");
  return chats.map(c => ({ ...c, id: new_id() }));
}
