// One message as it is shown: its text, the reasoning folded, tool calls with a place for their results, what it cost, and what can be done with it.
import { code_block, element, show_markdown } from "./markdown.js";

function pretty(json) {
  try { return JSON.stringify(JSON.parse(json), null, 2); } catch { return json; }
}

function figures(stats) {
  if (!stats?.n_tokens) return "";
  const parts = [`${stats.n_tokens} tokens`];
  if (stats.tokens_per_s) parts.push(`${stats.tokens_per_s.toFixed(1)} tok/s`);
  if (stats.first_ms != null) parts.push(`first after ${stats.first_ms < 1000 ? `${Math.round(stats.first_ms)} ms` : `${(stats.first_ms / 1000).toFixed(1)} s`}`);
  if (stats.n_cached) parts.push(`${stats.n_cached} of ${stats.n_prompt} prompt tokens cached`);
  return parts.join(" · ");
}

export class MessageView {
  constructor(message, index, actions) {
    this.message = message;
    this.index = index;
    this.actions = actions;
    this.body = element("div", { class: "text" });
    this.node = element("article", { class: `message ${message.role}`, "aria-label": { user: "You", assistant: "Answer", tool: "Tool result" }[message.role] });
    this.foot = element("footer");
    if (message.role === "assistant") {
      this.thought = element("div", { class: "text" });
      this.summary = element("summary", {}, "Reasoning");
      this.folded = element("details", { class: "reasoning", hidden: true }, this.summary, this.thought);
      this.calls = element("div", { class: "calls" });
      this.note = element("p", { class: "note", hidden: true });
      this.node.append(this.folded, this.body, this.calls, this.note);
    } else {
      this.node.append(this.body);
    }
    this.node.append(this.foot);
  }

  update(growing, last) {
    const m = this.message;
    const state = JSON.stringify([m.content.length, m.reasoning?.length, m.tool_calls, m.finish, m.error, growing, last]);
    if (state === this.state) return;      // most messages are as they were
    this.state = state;
    this.node.classList.toggle("growing", growing);
    if (m.role === "assistant") this.update_answer(growing, last);
    else if (m.role === "tool") this.body.replaceChildren(code_block(pretty(m.content), "json"));
    else this.body.textContent = m.content;
    this.foot.replaceChildren(...(growing ? [] : this.buttons(last)));
  }

  update_answer(growing, last) {
    const m = this.message;
    show_markdown(this.body, m.content);
    this.folded.hidden = !m.reasoning;
    if (m.reasoning) {
      show_markdown(this.thought, m.reasoning);
      this.summary.textContent = growing && !m.content ? "Thinking…" : "Reasoning";
    }
    const calls = JSON.stringify(m.tool_calls ?? []) + (growing ? "" : last);
    if (calls !== this.calls_shown) this.show_calls(growing, last);
    this.calls_shown = calls;
    const note = m.error ?? { length: "The token limit was reached.", stopped: "Stopped.", content_filter: "Withheld by the server." }[m.finish] ?? "";
    this.note.textContent = note;
    this.note.hidden = !note || growing;
    this.note.classList.toggle("fault", Boolean(m.error));
  }

  show_calls(growing, last) {
    const calls = (this.message.tool_calls ?? []).filter(Boolean);
    const fields = calls.map(c => element("textarea", { rows: 1, placeholder: `Result of ${c.function.name}`, "aria-label": `Result of ${c.function.name}` }));
    const nodes = calls.map((c, i) => element("div", { class: "call" }, element("header", {}, this.actions.icon("on"), element("code", {}, c.function.name)), code_block(pretty(c.function.arguments), "json"),
      ...(last && !growing ? [fields[i]] : [])));
    if (calls.length && last && !growing)
      nodes.push(element("button", { type: "button", class: "plain", onclick: () => this.actions.tool_results(this.index, calls.map((c, i) => ({ role: "tool", tool_call_id: c.id, content: fields[i].value }))) }, "Send results"));
    this.calls.replaceChildren(...nodes);
  }

  buttons(last) {
    const m = this.message;
    const button = (name, icon, then) => element("button", { class: "icon", type: "button", "aria-label": name, title: name, onclick: then }, this.actions.icon(icon));
    const out = [];
    if (m.content) out.push(button("Copy", "copy", e => this.actions.copy(m.content, e.currentTarget)));
    if (m.role === "user") out.push(button("Edit and send again", "edit", () => !this.actions.busy() && this.edit()));
    if (m.role === "assistant") out.push(button("Answer again", "again", () => !this.actions.busy() && this.actions.regenerate(this.index)));
    if (m.role === "assistant" && last && m.content && (m.finish === "length" || m.finish === "stopped")) out.push(button("Go on", "on", () => !this.actions.busy() && this.actions.go_on()));
    const cost = figures(m.stats);
    if (cost) out.push(element("span", { class: "cost" }, cost));
    return out;
  }

  edit() {
    const field = element("textarea", { "aria-label": "Your message" });
    field.value = this.message.content;
    const done = () => { this.state = null; this.node.classList.remove("editing"); this.node.replaceChildren(this.body, this.foot); };
    const send = () => { if (field.value.trim()) done(), this.actions.edit(this.index, field.value.trim()); };
    field.addEventListener("keydown", e => {
      if (e.key === "Escape") { e.stopPropagation(); done(); }
      if (e.key === "Enter" && (e.ctrlKey || e.metaKey)) send();
    });
    this.node.classList.add("editing");
    this.node.replaceChildren(field, element("div", { class: "edit-buttons" }, element("button", { type: "button", class: "quiet", onclick: done }, "Cancel"), element("button", { type: "button", class: "plain", onclick: send }, "Send")));
    field.style.height = Math.min(field.scrollHeight + 2, innerHeight * 0.5) + "px";
    field.focus();
  }
}
