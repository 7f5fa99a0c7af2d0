// Markdown to DOM nodes. Text only ever becomes a text node, elements come from a fixed list, and the one attribute taken from the text (a link's address) must be
// http, https or mailto: nothing an answer contains can run or load anything. HTML in the text stays text; an image becomes a link to it.
import { highlight } from "./highlight.js";

const kMaxDepth = 12;                      // of quotes, lists and emphasis inside each other: deeper ones stay text

export function element(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "class") node.className = value;
    else if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value !== false && value != null) node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children);
  return node;
}

// Shows `text` in `parent`. Blocks whose source is as before keep their nodes, so that a growing answer costs what is new of it and a selection survives.
export function show_markdown(parent, text) {
  const lines = text.replace(/\r\n?/g, "\n").split("\n");
  const old = parent.blocks ?? [];
  const blocks = [];
  for (let i = 0; i < lines.length;) {
    const block = next_block(lines, i, 0);
    if (block.make) {
      const source = lines.slice(i, block.end).join("\n");
      const before = old[blocks.length];
      if (before?.source === source) {
        blocks.push(before);
      } else {
        const node = block.make();
        if (before) before.node.replaceWith(node);
        else parent.append(node);
        blocks.push({ source, node });
      }
    }
    i = block.end;
  }
  for (const gone of old.slice(blocks.length)) gone.node.remove();
  parent.blocks = blocks;
}

const kFence = /^ {0,3}(`{3,}|~{3,})\s*([^`]*)$/;
const kHeading = /^ {0,3}(#{1,6})(?:\s+(.*?))?\s*#*\s*$/;
const kRule = /^ {0,3}(?:(?:-\s*){3,}|(?:\*\s*){3,}|(?:_\s*){3,})$/;
const kQuote = /^ {0,3}>/;
const kItem = /^(\s*)([-*+]|\d{1,9}[.)])(\s+|$)/;
const kTableRule = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;

const blank = line => line.trim() === "";
const indent_of = line => line.length - line.trimStart().length;
const is_table = (lines, i) => lines[i].includes("|") && i + 1 < lines.length && lines[i + 1].includes("-") && kTableRule.test(lines[i + 1]) && cells_of(lines[i]).length === cells_of(lines[i + 1]).length;
const starts_block = (lines, i) => kFence.test(lines[i]) || kHeading.test(lines[i]) || kRule.test(lines[i]) || kQuote.test(lines[i]) || kItem.test(lines[i]) || is_table(lines, i);

// The block that begins at line i: where it ends, and what makes its node (nothing for a blank line).
function next_block(lines, i, depth) {
  const line = lines[i];
  if (blank(line)) return { end: i + 1 };
  let match;
  if ((match = kFence.exec(line))) return fenced_code(lines, i, match);
  if ((match = kHeading.exec(line))) return { end: i + 1, make: () => inline(element("h" + Math.min(6, match[1].length + 1)), match[2] ?? "") };
  if (kRule.test(line)) return { end: i + 1, make: () => element("hr") };
  if (depth < kMaxDepth && kQuote.test(line)) return quote(lines, i, depth);
  if (depth < kMaxDepth && kItem.test(line)) return list(lines, i, depth);
  if (is_table(lines, i)) return table(lines, i);
  let end = i + 1;
  while (end < lines.length && !blank(lines[end]) && !starts_block(lines, end)) ++end;
  return { end, make: () => inline(element("p"), lines.slice(i, end).join("\n")) };
}

function append_blocks(parent, lines, depth) {
  for (let i = 0; i < lines.length;) {
    const block = next_block(lines, i, depth);
    if (block.make) parent.append(block.make());
    i = block.end;
  }
  return parent;
}

function fenced_code(lines, i, [, fence, info]) {
  const closing = new RegExp(`^\\s*${fence[0]}{${fence.length},}\\s*$`);
  let end = i + 1;
  while (end < lines.length && !closing.test(lines[end])) ++end;
  const indent = indent_of(lines[i]);
  const code = lines.slice(i + 1, end).map(l => l.slice(Math.min(indent, indent_of(l)))).join("\n");
  return { end: Math.min(end + 1, lines.length), make: () => code_block(code, info.trim().split(/\s+/)[0]) };
}

export function code_block(code, language) {
  const body = element("code");
  highlight(body, code, language);
  const copy = element("button", { class: "quiet", type: "button", onclick: () => copy_text(code, copy) }, "Copy");
  return element("div", { class: "code" }, element("div", { class: "code-head" }, element("span", {}, language || "text"), copy), element("pre", {}, body));
}

export async function copy_text(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {                                // not a secure origin: the old way
    const area = element("textarea", { class: "offscreen" });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  button.classList.add("done");
  setTimeout(() => button.classList.remove("done"), 1200);
}

function quote(lines, i, depth) {
  let end = i;
  while (end < lines.length && kQuote.test(lines[end])) ++end;
  const inside = lines.slice(i, end).map(l => l.replace(/^ {0,3}> ?/, ""));
  return { end, make: () => append_blocks(element("blockquote"), inside, depth + 1) };
}

function list(lines, i, depth) {
  const [, space, marker] = kItem.exec(lines[i]);
  const ordered = /\d/.test(marker), base = space.length;
  const items = [];
  let end = i;
  while (end < lines.length) {
    const match = kItem.exec(lines[end]);
    if (!match || kRule.test(lines[end]) || match[1].length < base || /\d/.test(match[2]) !== ordered || (items.length && match[1].length > items.at(-1).inner - 1)) break;
    const inner = match[0].length - (match[3].length > 4 ? match[3].length - 1 : 0);
    const item = { inner, lines: [lines[end].slice(inner)] };
    items.push(item);
    for (++end; end < lines.length; ++end) {
      const line = lines[end];
      if (blank(line)) {
        if (end + 1 < lines.length && !blank(lines[end + 1]) && indent_of(lines[end + 1]) > base && !(kItem.exec(lines[end + 1])?.[1].length <= base)) item.lines.push("");
        else if (end + 1 < lines.length && kItem.exec(lines[end + 1]) && indent_of(lines[end + 1]) <= base + 3) continue;
        else break;
      } else if (indent_of(line) >= inner || (indent_of(line) > base && kItem.test(line) && indent_of(line) >= base + 2)) {
        item.lines.push(line.slice(Math.min(inner, indent_of(line))));
      } else if (!starts_block(lines, end) && !blank(lines[end - 1])) {
        item.lines.push(line.trimStart());
      } else {
        break;
      }
    }
  }
  const make = () => {
    const node = element(ordered ? "ol" : "ul", ordered && parseInt(marker) !== 1 ? { start: parseInt(marker) } : {});
    for (const { lines: content } of items) node.append(list_item(content, depth));
    return node;
  };
  return { end, make };
}

function list_item(lines, depth) {
  const node = element("li");
  const task = /^\[([ xX])\]\s+/.exec(lines[0]);
  if (task) {
    node.className = "task";
    node.append(element("input", { type: "checkbox", disabled: true, checked: task[1] !== " " }));
    lines = [lines[0].slice(task[0].length), ...lines.slice(1)];
  }
  append_blocks(node, lines, depth + 1);
  const only = node.querySelectorAll(":scope > p");
  if (only.length === 1 && !lines.includes("")) only[0].replaceWith(...only[0].childNodes);      // a tight item
  return node;
}

function cells_of(line) {
  const cells = line.trim().replace(/^\||(?<!\\)\|$/g, "").split(/(?<!\\)\|/);
  return cells.map(c => c.trim().replaceAll("\\|", "|"));
}

function table(lines, i) {
  const align = cells_of(lines[i + 1]).map(c => (c.endsWith(":") ? (c.startsWith(":") ? "center" : "right") : ""));
  let end = i + 2;
  while (end < lines.length && !blank(lines[end]) && lines[end].includes("|")) ++end;
  const row = (line, name) => element("tr", {}, ...align.map((a, k) => inline(element(name, a ? { class: a } : {}), cells_of(line)[k] ?? "")));
  const make = () => element("div", { class: "table" },
    element("table", {}, element("thead", {}, row(lines[i], "th")), element("tbody", {}, ...lines.slice(i + 2, end).map(l => row(l, "td")))));
  return { end, make };
}

// The address of a link when it may be followed.
export function safe_address(text) {
  try {
    const url = new URL(text);
    return ["http:", "https:", "mailto:"].includes(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

function link(address, title, build) {
  const href = safe_address(address);
  return href ? build(element("a", { href, title: title || null, target: "_blank", rel: "noopener noreferrer" })) : null;
}

const kWord = /[\p{L}\p{N}]/u;

// Appends the inline content of `text` to `parent`. A search for a closing mark that failed once is not tried again further on: the time stays linear.
function inline(parent, text, depth = 0) {
  const failed = new Set();
  let plain = "";
  const flush = () => { if (plain) parent.append(plain); plain = ""; };
  const put = node => { flush(); parent.append(node); };
  for (let i = 0; i < text.length;) {
    const c = text[i];
    let piece = null;                      // { node, end }
    if (c === "\\" && i + 1 < text.length && /[!-\/:-@\[-`{-~]/.test(text[i + 1])) { plain += text[i + 1]; i += 2; continue; }
    if (c === "\n") { plain = plain.trimEnd(); put(element("br")); i += 1; continue; }
    if (c === "`") piece = code_span(text, i, failed);
    else if (depth < kMaxDepth && (c === "*" || c === "_" || c === "~")) piece = emphasis(text, i, depth, failed);
    else if (depth < kMaxDepth && c === "[") piece = bracket_link(text, i, depth, failed);
    else if (c === "!" && text[i + 1] === "[") piece = image_link(text, i, failed);
    else if (c === "<" || (c === "h" && !(i && kWord.test(text[i - 1])))) piece = bare_link(text, i);
    if (piece) { put(piece.node); i = piece.end; continue; }
    // A run of the same mark that opens nothing is text as a whole.
    let n = 1;
    if ("*_~`".includes(c)) while (text[i + n] === c) ++n;
    plain += text.slice(i, i + n);
    i += n;
  }
  flush();
  return parent;
}

function code_span(text, i, failed) {
  const ticks = /^`+/.exec(text.slice(i, i + 64))[0];
  if (failed.has(ticks)) return null;
  for (let at = text.indexOf(ticks, i + ticks.length); at >= 0; at = text.indexOf(ticks, at + 1)) {
    if (text[at - 1] === "`" || text[at + ticks.length] === "`") continue;
    let code = text.slice(i + ticks.length, at).replaceAll("\n", " ");
    if (code.length > 2 && code.startsWith(" ") && code.endsWith(" ") && code.trim()) code = code.slice(1, -1);
    return { node: element("code", {}, code), end: at + ticks.length };
  }
  failed.add(ticks);
  return null;
}

function emphasis(text, i, depth, failed) {
  const c = text[i];
  let n = 1;
  while (text[i + n] === c && n < 3) ++n;
  if (c === "~" && n !== 2) return null;
  for (; n > 0; n -= c === "~" ? 2 : 1) {
    const mark = c.repeat(n), from = i + n;
    if (failed.has(mark) || /\s|^$/.test(text[from] ?? "") || (c === "_" && i && kWord.test(text[i - 1]))) continue;
    for (let at = text.indexOf(mark, from + 1); at >= 0; at = text.indexOf(mark, at + 1)) {
      if (/[\s\\]/.test(text[at - 1]) || (text[at - 1] === c && n < 3) || text[at + n] === c || (c === "_" && kWord.test(text[at + n] ?? ""))) continue;
      const inside = text.slice(from, at);
      if (inside.split("`").length % 2 === 0) continue;               // the mark is within a code span
      const name = c === "~" ? "del" : n === 1 ? "em" : "strong";
      const inner = inline(element(name), inside, depth + 1);
      return { node: n === 3 ? element("em", {}, inner) : inner, end: at + n };
    }
    failed.add(mark);
  }
  return null;
}

// The end of "[...](address "title")" whose bracket opens at i.
function link_parts(text, i, failed) {
  if (failed.has("[")) return null;
  let level = 0, at = i;
  for (; at < text.length; ++at) {
    if (text[at] === "\\") ++at;
    else if (text[at] === "[") ++level;
    else if (text[at] === "]" && --level === 0) break;
  }
  if (at >= text.length) { failed.add("["); return null; }
  const target = /^\(\s*<?([^\s<>()]*(?:\([^\s<>()]*\)[^\s<>()]*)*)>?(?:\s+["'(]([^"')\n]{0,500})["')])?\s*\)/.exec(text.slice(at + 1, at + 4000));
  return target && { label: text.slice(i + 1, at), address: target[1], title: target[2], end: at + 1 + target[0].length };
}

function bracket_link(text, i, depth, failed) {
  const parts = link_parts(text, i, failed);
  const node = parts && link(parts.address, parts.title, a => inline(a, parts.label, kMaxDepth));
  return node && { node, end: parts.end };
}

function image_link(text, i, failed) {
  const parts = link_parts(text, i + 1, failed);
  const node = parts && link(parts.address, parts.title, a => { a.append(`image: ${parts.label || parts.address}`); return a; });
  return node && { node, end: parts.end };
}

function bare_link(text, i) {
  const angled = text[i] === "<";
  const match = (angled ? /^<((?:https?:\/\/|mailto:)[^\s<>]{1,2000})>/ : /^(https?:\/\/[^\s<>"'`]{1,2000}[^\s<>"'`.,;:!?)\]*_])/).exec(text.slice(i, i + 2010));
  const node = match && link(match[1], "", a => { a.append(match[1]); return a; });
  return node && { node, end: i + match[0].length };
}
