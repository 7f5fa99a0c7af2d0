// What the engine does, once a second: /live has counters that only grow; the page takes differences over a second and plots the last two minutes of them.
import { get_json } from "./api.js";
import { element } from "./markdown.js";

const kSeconds = 120;
const kSvg = "http://www.w3.org/2000/svg";

export function count(x) {
  if (!Number.isFinite(x)) return "–";
  if (x >= 1e5) return (x / 1e3).toFixed(0) + "k";
  if (x >= 100 || Number.isInteger(x)) return Math.round(x).toLocaleString("en").replaceAll(",", "\u2009");
  return x >= 10 ? x.toFixed(1) : x.toFixed(2);
}

export function bytes(x) {
  if (!Number.isFinite(x)) return "–";
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (x < 1000) return (x < 10 && unit !== "B" ? x.toFixed(1) : x.toFixed(0)) + " " + unit;
    x /= 1000;
  }
  return x.toFixed(1) + " TB";
}

function duration(s) {
  if (!Number.isFinite(s)) return "–";
  if (s < 90) return `${Math.round(s)} s`;
  if (s < 5400) return `${Math.round(s / 60)} min`;
  return s < 172800 ? `${(s / 3600).toFixed(1)} h` : `${Math.round(s / 86400)} days`;
}

function svg(name, attributes) {
  const node = document.createElementNS(kSvg, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  return node;
}

// One figure: its name, its value now, a line below it, and its last two minutes as one or two lines. `most`: the top of the plot when it is known; `apart`: the second
// line has a scale of its own.
class Plot {
  constructor(name, title, n_series, { most, apart } = {}) {
    this.most = most;
    this.apart = apart;
    this.series = Array.from({ length: n_series }, () => []);
    this.value = element("strong", {}, "–");
    this.unit = element("span", { class: "unit" });
    this.below = element("p", {}, "\u00a0");
    this.peak = element("span", { class: "peak" });
    const drawing = svg("svg", { viewBox: `0 0 ${kSeconds} 40`, preserveAspectRatio: "none", "aria-hidden": "true" });
    this.areas = this.series.map((_, i) => drawing.appendChild(svg("path", { class: `area s${i}` })));
    this.lines = this.series.map((_, i) => drawing.appendChild(svg("path", { class: `line s${i}`, "vector-effect": "non-scaling-stroke" })));
    this.node = element("section", { class: "plot", "data-plot": name }, element("header", {}, element("h3", {}, title), element("span", { class: "figure" }, this.value, this.unit)),
      element("div", { class: "drawing" }, drawing, this.peak), this.below);
  }
  show(values, value, unit, second, below) {
    this.value.textContent = value;
    this.unit.textContent = unit;
    this.below.replaceChildren(...(second ? [element("span", { class: "second" }, second), below ? ` · ${below}` : ""] : [below || "\u00a0"]));
    this.series.forEach((s, i) => {
      s.push(Number.isFinite(values[i]) ? Math.max(0, values[i]) : 0);
      if (s.length > kSeconds + 1) s.shift();
    });
    this.draw();
  }
  draw() {
    const scale = this.apart ? this.series[0] : this.series.flat();
    this.peak.textContent = this.most ? "" : count(Math.max(...scale));
    this.series.forEach((s, i) => {
      const top = this.most ?? Math.max(1, ...(this.apart ? s : scale)) * 1.12;
      const points = s.map((v, k) => `${kSeconds - (s.length - 1 - k)} ${(38.5 - 36 * Math.min(1, v / top)).toFixed(2)}`);
      const line = "M" + points.join("L");
      this.lines[i].setAttribute("d", s.length > 1 ? line : "");
      this.areas[i].setAttribute("d", s.length > 1 ? `${line}L${kSeconds} 40L${kSeconds - s.length + 1} 40Z` : "");
    });
    this.node.dataset.points = this.series[0].length;
  }
}

// Starts polling. `seen` gets every answer of /live and the tokens per second of the last one; `lost` is told when the server cannot be reached or refuses.
export function start_live(plots_node, facts_node, get_key, seen, lost) {
  const plots = {
    tokens: new Plot("tokens", "Generating", 2, { apart: true }),
    memory: new Plot("memory", "Memory bandwidth", 1, { most: 100 }),
    requests: new Plot("requests", "Requests", 2),
    pages: new Plot("pages", "KV pages in use", 2),
    prefix: new Plot("prefix", "Prefix hits", 1, { most: 100 }),
  };
  plots_node.append(...Object.values(plots).map(p => p.node));
  let before = null, hit_share = NaN;

  function show(now) {
    const total = now.total ?? {}, kv = now.kv ?? {};
    const delta = key => (before ? (total[key] ?? NaN) - (before.total?.[key] ?? NaN) : NaN);
    const seconds = before ? now.time - before.time : NaN;
    if (before && !(seconds > 0)) return;  // the server began anew, or answered twice
    const generated = delta("generated_tokens") / seconds, prompt = delta("prompt_tokens") / seconds;
    plots.tokens.show([generated, prompt], count(generated), "tok/s", `${count(prompt)} tok/s of prompts`, `${count(total.generated_tokens)} in all`);

    // Of steps that only decode, where each token's bytes are its own; while there are none, of all steps.
    const decodes = delta("decode_tokens") > 0;
    const moved = delta(decodes ? "decode_bytes" : "bytes"), computed = decodes ? delta("decode_tokens") : delta("generated_tokens") + delta("prompt_tokens") - delta("cached_tokens");
    const speed = moved / delta(decodes ? "decode_seconds" : "step_seconds");
    const share = speed / now.bandwidth * 100;
    const busy = speed > 0 ? `${bytes(speed)}/s of ${bytes(now.bandwidth)}/s` : `idle · ${bytes(now.bandwidth)}/s measured`;
    plots.memory.show([share], Number.isFinite(share) ? share.toFixed(0) : "–", "%", "", busy + (speed > 0 && computed > 0 ? ` · ${bytes(moved / computed)} a token` : ""));

    plots.requests.show([now.running, now.waiting], count(now.running), "running", `${count(now.waiting)} waiting`, `${count(total.requests)} in all`);
    plots.pages.show([kv.used, kv.shared], count(kv.used), `of ${count(kv.pages)}`, `${count(kv.shared)} shared`, `${count(kv.cached)} kept for reuse`);
    if (delta("prompt_tokens") > 0) hit_share = delta("cached_tokens") / delta("prompt_tokens") * 100;
    plots.prefix.show([hit_share], Number.isFinite(hit_share) ? hit_share.toFixed(0) : "–", "%", "", `${count(total.cached_tokens)} of ${count(total.prompt_tokens)} prompt tokens`);

    const facts = { Model: now.model, Device: now.device, Context: Number.isFinite(now.max_context) ? `${count(now.max_context)} tokens` : null, "KV memory": Number.isFinite(kv.bytes) ? bytes(kv.bytes) : null, Up: duration(now.uptime_s), Version: now.version };
    facts_node.replaceChildren(...Object.entries(facts).filter(([, v]) => v).flatMap(([k, v]) => [element("dt", {}, k), element("dd", {}, String(v))]));
    before = now;
    seen(now, generated);
  }

  async function poll() {
    let wait = 1000;
    if (!document.hidden) {
      try {
        show(await get_json("live", get_key(), AbortSignal.timeout(5000)));
      } catch (e) {
        wait = 3000;
        before = null;
        lost(e);
      }
    }
    setTimeout(poll, wait);
  }
  poll();
}
