// Colours for code: comments, strings, numbers and words that most languages keep for themselves. One pass with one expression per family of comments; no language is parsed.
const kWords = new Set(`abstract alignas and as assert async await auto bool boolean break byte case catch char class concept const constexpr continue crate def default defer del delete do double dyn elif else end enum
  except export extends extern false False final finally float fn for foreach from func function global go goto if impl implements import in inline instanceof int interface is lambda let long loop match mod module mut
  namespace new nil None nonlocal not null nullptr of operator or override package pass private protected pub public raise range ref requires return self Self short signed sizeof static string struct super switch template
  this throw trait true True try type typedef typename typeof union unsafe unsigned use using var virtual void volatile where while with yield
  select insert update create table into values join left right inner outer on group by order having limit set then fi done esac echo local`.split(/\s+/));

const kStrings = String.raw`"(?:[^"\\\n]|\\.)*"?|'(?:[^'\\\n]|\\.)*'?` + "|`(?:[^`\\\\]|\\\\.)*`?";
const kNumbers = String.raw`\b(?:0[xX][\da-fA-F_]+|0[bB][01_]+|\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d+)?)\w*`;
const kName = String.raw`[A-Za-z_$][\w$]*`;
const family = comment => new RegExp(`(?<comment>${comment})|(?<string>${kStrings})|(?<number>${kNumbers})|(?<name>${kName})`, "g");
const kFamilies = {
  slashes: family(String.raw`//[^\n]*|/\*[\s\S]*?(?:\*/|$)`),
  hash: family(String.raw`#[^\n]*|"""[\s\S]*?(?:"""|$)|'''[\s\S]*?(?:'''|$)`),
  dashes: family(String.raw`--[^\n]*|/\*[\s\S]*?(?:\*/|$)`),
  markup: family(String.raw`<!--[\s\S]*?(?:-->|$)`),
};
const kFamilyOf = {
  python: "hash", py: "hash", bash: "hash", sh: "hash", shell: "hash", zsh: "hash", ruby: "hash", rb: "hash", yaml: "hash", yml: "hash", toml: "hash", r: "hash", perl: "hash", makefile: "hash", cmake: "hash",
  dockerfile: "hash", elixir: "hash", julia: "hash", sql: "dashes", lua: "dashes", haskell: "dashes", hs: "dashes", html: "markup", xml: "markup", svg: "markup",
};
const kPlain = new Set(["", "text", "txt", "plain", "plaintext", "output", "console", "markdown", "md", "diff"]);
const kMost = 40000;

export function highlight(parent, code, language) {
  const name = language.toLowerCase();
  if (kPlain.has(name) || code.length > kMost) return parent.append(code);
  let end = 0;
  for (const match of code.matchAll(kFamilies[kFamilyOf[name] ?? "slashes"])) {
    const groups = match.groups;
    const kind = groups.comment ? "comment" : groups.string ? "string" : groups.number ? "number" : kWords.has(groups.name) ? "word" : code[match.index + match[0].length] === "(" ? "call" : "";
    if (!kind) continue;
    const span = document.createElement("span");
    span.className = "hl-" + kind;
    span.textContent = match[0];
    parent.append(code.slice(end, match.index), span);
    end = match.index + match[0].length;
  }
  parent.append(code.slice(end));
}
