// The settings: the system prompt of a conversation, how answers are sampled, more fields of the request, and the API key. What is left empty is not sent.
import { element } from "./markdown.js";
import * as store from "./store.js";

const $ = id => document.getElementById(id);

// Numbers of a request: [field, label, least, most, step].
const kNumbers = [
  ["temperature", "Temperature", 0, 5, 0.05], ["top_p", "Top p", 0, 1, 0.01], ["top_k", "Top k", 0, 1000, 1], ["min_p", "Min p", 0, 1, 0.01],
  ["repetition_penalty", "Repetition penalty", 0.5, 2, 0.01], ["presence_penalty", "Presence penalty", -2, 2, 0.05], ["frequency_penalty", "Frequency penalty", -2, 2, 0.05],
  ["max_tokens", "Max tokens", 1, 1e6, 1], ["seed", "Seed", 0, 2 ** 32 - 1, 1],
];
const kThinking = { "": "Default", on: "On", off: "Off" };

let settings = store.load_settings();
let chat = null;
let models = [];                           // names the server answers to: the model, and adapters over it

// What the server serves. One that was chosen earlier and is gone is not asked for.
export function set_models(names) {
  models = names;
  $("set-model").replaceChildren(...names.map(name => element("option", { value: name }, name)));
  $("set-model").parentElement.hidden = names.length < 2;
}

export const chosen_model = () => (models.includes(settings.model) ? settings.model : models[0] ?? "");

function parsed_extra(text) {
  if (!text?.trim()) return {};
  const value = JSON.parse(text);
  if (!value || typeof value !== "object" || Array.isArray(value)) throw new Error("an object is wanted: {\"field\": value}");
  return value;
}

export function request_fields() {
  const out = {};
  for (const [field, , least, most] of kNumbers) {
    const value = settings[field];
    if (Number.isFinite(value) && value >= least && value <= most) out[field] = value;
  }
  if (settings.thinking) out.chat_template_kwargs = { enable_thinking: settings.thinking === "on" };
  try { Object.assign(out, parsed_extra(settings.extra)); } catch { /* said in the dialog */ }
  return out;
}

function check_extra() {
  let fault = "";
  try { parsed_extra($("extra").value); } catch (e) { fault = `Not sent: ${e.message}`; }
  $("extra-fault").textContent = fault;
  $("extra-fault").hidden = !fault;
}

export function start_settings(chat_changed) {
  const keep = (field, value) => {
    if (value === "" || value === null) delete settings[field];
    else settings[field] = value;
    store.save_settings(settings);
  };
  const model = element("select", { id: "set-model" });
  model.addEventListener("change", () => keep("model", model.value));
  $("knobs").append(element("label", { class: "model", hidden: true }, "Model", model));
  for (const [field, label, least, most, step] of kNumbers) {
    const input = element("input", { type: "number", id: `set-${field}`, min: least, max: most, step, placeholder: "auto", inputmode: "decimal" });
    input.addEventListener("change", () => {
      if (input.value !== "") input.value = Math.min(most, Math.max(least, step === 1 ? Math.round(input.valueAsNumber) : input.valueAsNumber));
      keep(field, input.value === "" ? null : Number(input.value));
    });
    $("knobs").append(element("label", {}, label, input));
  }
  const thinking = element("select", { id: "set-thinking" }, ...Object.entries(kThinking).map(([value, name]) => element("option", { value }, name)));
  thinking.addEventListener("change", () => keep("thinking", thinking.value));
  $("knobs").append(element("label", {}, "Thinking", thinking));

  $("extra").addEventListener("input", () => { keep("extra", $("extra").value); check_extra(); });
  $("system").addEventListener("input", () => { chat.system = $("system").value; chat_changed(chat); });
  const keep_key = () => store.save_key($("key").value.trim(), $("remember").checked);
  $("key").addEventListener("input", keep_key);
  $("remember").addEventListener("change", keep_key);
  $("settings").addEventListener("click", e => { if (e.target === $("settings")) $("settings").close(); });
}

// `key_fault`: the server asked for a key; said beside its field.
export function open_settings(of_chat, key_fault) {
  chat = of_chat;
  settings = store.load_settings();
  $("system").value = chat.system;
  for (const [field] of kNumbers) $(`set-${field}`).value = settings[field] ?? "";
  $("set-thinking").value = settings.thinking ?? "";
  $("set-model").value = chosen_model();
  $("extra").value = settings.extra ?? "";
  check_extra();
  $("key").value = store.load_key();
  $("remember").checked = store.key_is_remembered();
  $("settings").showModal();
  if (key_fault) $("key").focus();
}
